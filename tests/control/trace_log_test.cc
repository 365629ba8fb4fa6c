// SPDX-License-Identifier: Apache-2.0
// Goal: a trace's spans tell where a request's time went, whatever happened to it, and memory stays
// bounded. Method: events and effects as a core would make them, told by hand.
#include "daemon/control/trace_log.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

constexpr Time at(std::int64_t ms) { return Time{ms * 1'000'000}; }

Arrive arrive(std::uint64_t request) {
  Arrive event;
  event.request = {request};
  event.model = "m";
  event.prompt = {1, 2, 3};
  return event;
}

SendWorker submission(std::uint64_t request, std::uint32_t attempt, std::uint64_t worker) {
  Submit submit;
  submit.request = {request};
  submit.attempt = {attempt};
  return {{worker}, {1}, submit};
}

Deliver delivery(std::uint64_t request, std::size_t tokens = 1) {
  return {{request}, std::vector<SampledToken>(tokens)};
}

Finish finish(std::uint64_t request) {
  Finish end;
  end.request = {request};
  end.attempts = 2;
  return end;
}

/// "queue 0-5, prefill 5-9 by 1, ..." in ms.
std::string spans_of(const RequestTrace& trace) {
  std::string out;
  for (const TraceSpan& s : trace.spans) {
    out += (out.empty() ? "" : ", ") + std::string(to_string(s.kind)) + " " +
           std::to_string(s.begin.ns / 1'000'000) + "-" + std::to_string(s.end.ns / 1'000'000);
    if (s.worker.worker) out += " by " + std::to_string(s.worker.worker.value);
  }
  return out;
}

TEST(TraceLog, OneWorker_QueuePrefillDecode) {
  TraceLog log;
  log.name({7}, {"req-a", "cmpl-a", ""});
  log.observe(at(0), arrive(7), {});
  log.observe(at(5), GatewayTick{}, {submission(7, 1, 1)});
  log.observe(at(9), GatewayTick{}, {delivery(7)});
  log.observe(at(11), GatewayTick{}, {delivery(7, 2)});
  log.observe(at(12), GatewayTick{}, {finish(7)});
  for (const char* name : {"req-a", "cmpl-a", "7"}) ASSERT_EQ(log.find(name).size(), 1U) << name;
  const RequestTrace& trace = *log.find("req-a")[0];
  EXPECT_EQ(spans_of(trace), "queue 0-5, prefill 5-9 by 1, decode 9-12 by 1");
  EXPECT_EQ(trace.outcome, "stop");
  EXPECT_EQ(trace.tokens, 3U);
  EXPECT_TRUE(log.find("").empty());
  EXPECT_TRUE(log.find("req-b").empty());
}

TEST(TraceLog, SplitRequest_ShowsBothHalvesAndEachLayer) {
  TraceLog log;
  log.observe(at(0), arrive(7), {});
  SendWorker prefill = submission(7, 1, 1);
  std::get<Submit>(prefill.message).kv_for = {{{2}, {1}}, 2};
  SendWorker decode = submission(7, 1, 2);
  std::get<Submit>(decode.message).kv_from = {{{1}, {1}}, 2};
  log.observe(at(1), GatewayTick{}, {prefill, decode});
  StepReport report;
  report.fetches.push_back({{7},
                            {1},
                            {{1}, {1}},
                            2,
                            640,
                            milliseconds(4),
                            milliseconds(3),
                            {milliseconds(2), milliseconds(4)}});
  log.observe(at(6), WorkerSaid{{2}, {1}, report}, {});
  log.observe(at(8), GatewayTick{}, {delivery(7)});
  log.observe(at(20), GatewayTick{}, {finish(7)});
  const RequestTrace& trace = *log.find("7")[0];
  EXPECT_EQ(spans_of(trace), "queue 0-1, prefill 1-8 by 1, kv 2-6 by 2, decode 8-20 by 2");
  EXPECT_EQ(trace.spans[2].bytes, 640U);
  EXPECT_EQ(trace.spans[2].layers.size(), 2U);
}

TEST(TraceLog, Retry_OpensNewSpansAndLateReportsAreNotTaken) {
  TraceLog log;
  log.observe(at(0), arrive(7), {submission(7, 1, 1)});
  log.observe(at(2), GatewayTick{}, {delivery(7)});
  log.observe(at(4), WorkerDown{{1}, {1}}, {submission(7, 2, 3)});
  StepReport late;
  late.fetches.push_back({{7}, {1}, {{1}, {1}}, 2, 640, milliseconds(1), {}, {}});
  log.observe(at(5), WorkerSaid{{1}, {1}, late}, {});
  log.observe(at(6), GatewayTick{}, {delivery(7)});
  EXPECT_EQ(log.latest(9)[0]->outcome, "");
  log.observe(at(9), GatewayTick{}, {finish(7)});
  EXPECT_EQ(spans_of(*log.find("7")[0]),
            "queue 0-0, prefill 0-2 by 1, decode 2-4 by 1, prefill 4-6 by 3, decode 6-9 by 3");
}

TEST(TraceLog, Rejected_HasItsStatusAndNoOpenSpan) {
  TraceLog log;
  Reject no;
  no.request = {7};
  no.http_status = 429;
  log.observe(at(0), arrive(7), {});
  log.observe(at(3), GatewayTick{}, {no});
  EXPECT_EQ(log.find("7")[0]->outcome, "429");
  EXPECT_EQ(spans_of(*log.find("7")[0]), "queue 0-3");
}

TEST(TraceLog, Endless_KeepsTheLastOnesAndGivesEachToExportersOnce) {
  TraceLog log(4);
  for (std::uint64_t i = 1; i <= 10; ++i)
    log.observe(at(0), arrive(i), {submission(i, 1, 1), finish(i)});
  EXPECT_EQ(log.latest(99).size(), 4U);
  EXPECT_EQ(log.latest(2)[0]->request.value, 10U);
  EXPECT_EQ(log.take_ended().size(), 4U);
  EXPECT_TRUE(log.take_ended().empty());
  log.observe(at(1), arrive(11), {finish(11)});
  ASSERT_EQ(log.take_ended().size(), 1U);
  EXPECT_TRUE(log.find("8").size() == 1 && log.find("7").empty());
}

}  // namespace
}  // namespace infos
