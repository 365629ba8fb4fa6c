// SPDX-License-Identifier: Apache-2.0
// Goal: the production cores keep every promise under faults, and a world is the same each time.
// Method: worlds from seeds with invariants after each event; planted bugs that the invariants must
// catch.
#include <gtest/gtest.h>

#include "simulator/world/run.h"

namespace infos {
namespace {

TEST(World, NoFaults_EveryRequestIsAnsweredInFull) {
  SimulateOptions options;
  options.workers = 2;
  options.workload.requests = 60;
  options.checks = SimulateOptions::Checks::every_event;
  options.worker.kv_blocks = 200;
  const SimulateReport report = simulate(options);
  EXPECT_EQ(report.violation, "");
  EXPECT_EQ(report.outcomes.at("length") + report.outcomes.at("stop"), 60U) << to_json(report);
  EXPECT_EQ(report.retries, 0U);
  EXPECT_GT(report.cached_tokens, 0U);
}

SimulateOptions two_pools() {
  SimulateOptions options;
  options.workers = 4;
  options.cluster.nodes = 3;
  options.cluster.prefill_workers = 2;
  options.cluster.prefill_block_tokens = 8;
  options.workload.requests = 80;
  options.workload.prompt_tokens_min = 100;
  options.checks = SimulateOptions::Checks::every_event;
  options.worker.kv_blocks = 200;
  return options;
}

TEST(World, TwoPoolsWithoutFaults_FetchWhatTheOtherComputed) {
  const SimulateReport report = simulate(two_pools());
  EXPECT_EQ(report.violation, "");
  EXPECT_EQ(report.outcomes.at("length") + report.outcomes.at("stop"), 80U) << to_json(report);
  EXPECT_EQ(report.retries, 0U);
  EXPECT_GT(report.split, 40U);
  EXPECT_GT(report.fetched_tokens, report.split * 50) << to_json(report);
  EXPECT_GT(report.bytes_received, 0U);
  EXPECT_EQ(report.bytes_received, report.bytes_sent) << to_json(report);
}

TEST(World, EveryMoveIsCorruptSomewhere_IsComputedInstead) {
  SimulateOptions options = two_pools();
  options.faults.move_corrupt = 1;
  options.heal_after = seconds(1000);
  const SimulateReport report = simulate(options);
  EXPECT_EQ(report.outcomes.at("length") + report.outcomes.at("stop"), 80U) << to_json(report);
  EXPECT_EQ(report.violation, "");
  EXPECT_GT(report.split, 0U);
  EXPECT_LT(report.fetched_tokens, report.split * 20) << "more than the sound blocks before it";
}

TEST(World, OnePoolIsLost_TheOtherServesAlone) {
  for (const std::uint32_t prefill : {0U, 1U}) {
    SimulateOptions options = two_pools();
    options.workers = 1;  // all that is left
    options.cluster.prefill_workers = prefill;
    options.workload.requests = 20;
    options.workload.requests_per_second = 2;
    const SimulateReport report = simulate(options);
    EXPECT_EQ(report.violation, "");
    EXPECT_EQ(report.outcomes.at("length") + report.outcomes.at("stop"), 20U) << to_json(report);
  }
}

TEST(World, Swarm_NoSeedBreaksAnInvariant) {
  FuzzOptions options;
  options.seeds = 40;
  const FuzzReport report = fuzz(options);
  for (const FuzzFailure& f : report.failures) {
    ADD_FAILURE() << f.violation << "\nrerun: infos simulate --fuzz --seeds 1 --seed " << f.seed;
  }
  EXPECT_EQ(report.faults.size(), 26U) << "a kind of fault never struck: " << to_json(report);
  for (const char* outcome :
       {"stop", "length", "cancelled", "rejected-400", "rejected-404", "rejected-429"}) {
    EXPECT_TRUE(report.outcomes.contains(outcome))
        << outcome << " never happened: " << to_json(report);
  }
}

TEST(World, SameSeed_SameHashAndAnotherSeedAnother) {
  for (std::uint64_t seed = 100; seed < 105; ++seed) {
    const std::string first = to_json(simulate(fuzz_options(seed, 30)));
    EXPECT_EQ(first, to_json(simulate(fuzz_options(seed, 30))));
    EXPECT_NE(first, to_json(simulate(fuzz_options(seed + 1000, 30))));
  }
}

TEST(World, Recording_ReplaysToTheSameHashes) {
  std::uint64_t replayed = 0;
  for (std::uint64_t seed = 200; seed < 205; ++seed) {
    SimulateOptions options = fuzz_options(seed, 30);
    options.record = SimulateOptions::Record::on;
    const SimulateReport report = simulate(options);
    const Result<ReplayReport> again = replay(report.recording);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_TRUE(again->matches) << to_json(*again);
    for (const ReplayedCore& core : again->cores)
      EXPECT_GE(core.compared, core.events > 0 ? 1U : 0U);
    replayed += again->events;
    EXPECT_EQ(again->hash, replay(report.recording)->hash);
  }
  EXPECT_GT(replayed, 1000U);
}

TEST(World, TamperedRecording_DoesNotMatch) {
  SimulateOptions options = fuzz_options(300, 20);
  options.record = SimulateOptions::Record::on;
  const std::string recording = simulate(options).recording;
  // Drop one event that mattered: take the recording apart and leave out the first arrival.
  RecordingReader reader = RecordingReader::open(recording).value();
  std::string without = recording_header();
  bool dropped = false;
  while (!reader.at_end()) {
    const Record record = reader.next().value();
    const auto* event = std::get_if<RecordedEvent>(&record);
    const auto* gateway = event ? std::get_if<GatewayEvent>(&event->event) : nullptr;
    if (!dropped && gateway && std::holds_alternative<Arrive>(*gateway)) {
      dropped = true;
      continue;
    }
    const std::string bytes = encode(record);
    for (int i = 0; i < 4; ++i) without.push_back(static_cast<char>(bytes.size() >> (8 * i)));
    without += bytes;
  }
  ASSERT_TRUE(dropped);
  const ReplayReport report = replay(without).value();
  EXPECT_FALSE(report.matches);
  EXPECT_TRUE(replay(recording.substr(0, recording.size() - 1))->torn);
  EXPECT_FALSE(replay("nonsense").ok());
  Recorder recorder;
  EXPECT_EQ(replay(recording_header() +
                   recorder.start(1, WorkerConfig{.kv_blocks = 9, .block_tokens = 0}))
                .error()
                .code,
            ErrorCode::corrupt);
  EXPECT_FALSE(
      replay(recording_header() + recorder.start(1, WorkerConfig{.kv_blocks = 4'000'000'000}))
          .ok());
}

/// Planted bugs: each must be caught by some invariant within a few seeds, and named.
struct Bug {
  const char* name;
  void (*gateway)(GatewayEffects&);
  void (*worker)(WorkerEffects&);
};
const Bug kBugs[] = {
    {"none", nullptr, nullptr},
    {"a delivery is lost",
     [](GatewayEffects& e) {
       std::erase_if(e, [](const GatewayEffect& x) { return std::holds_alternative<Deliver>(x); });
     },
     nullptr},
    {"a delivery is repeated",
     [](GatewayEffects& e) {
       for (std::size_t i = e.size(); i-- > 0;)
         if (std::holds_alternative<Deliver>(e[i])) {
           e.push_back(e[i]);
           return;
         }
     },
     nullptr},
    {"a token is changed",
     [](GatewayEffects& e) {
       for (auto& x : e)
         if (auto* d = std::get_if<Deliver>(&x)) d->tokens[0].token ^= 1;
     },
     nullptr},
    {"a last word is lost",
     [](GatewayEffects& e) {
       std::erase_if(e, [](const GatewayEffect& x) { return std::holds_alternative<Finish>(x); });
     },
     nullptr},
    {"a last word is repeated",
     [](GatewayEffects& e) {
       for (std::size_t i = e.size(); i-- > 0;)
         if (std::holds_alternative<Finish>(e[i])) {
           e.push_back(e[i]);
           return;
         }
     },
     nullptr},
    {"a submission is lost",
     [](GatewayEffects& e) {
       std::erase_if(e, [](const GatewayEffect& x) {
         const auto* s = std::get_if<SendWorker>(&x);
         return s && std::holds_alternative<Submit>(s->message);
       });
     },
     nullptr},
    {"two blocks of a table are swapped", nullptr,
     [](WorkerEffects& e) {
       for (auto& x : e) {
         if (auto* run = std::get_if<RunStep>(&x))
           for (auto& s : run->sequences)
             if (s.blocks.size() > 1) std::swap(s.blocks[0], s.blocks[1]);
       }
     }},
    {"a step starts one row late", nullptr,
     [](WorkerEffects& e) {
       for (auto& x : e)
         if (auto* run = std::get_if<RunStep>(&x))
           for (auto& s : run->sequences)
             if (s.tokens.size() > 1) s.tokens.erase(s.tokens.begin()), ++s.start;
     }},
    {"a sampler stays open", nullptr,
     [](WorkerEffects& e) {
       std::erase_if(
           e, [](const WorkerEffect& x) { return std::holds_alternative<CloseSequence>(x); });
     }},
    {"a report is lost", nullptr,
     [](WorkerEffects& e) {
       std::erase_if(e, [](const WorkerEffect& x) { return std::holds_alternative<Report>(x); });
     }},
    {"a step runs twice", nullptr,
     [](WorkerEffects& e) {
       for (std::size_t i = e.size(); i-- > 0;)
         if (std::holds_alternative<RunStep>(e[i])) {
           e.push_back(e[i]);
           return;
         }
     }},
};

TEST(World, PlantedBugs_AreCaught) {
  for (const Bug& bug : kBugs) {
    std::string caught;
    for (std::uint64_t seed = 1; seed <= 8 && caught.empty(); ++seed) {
      SimulateOptions options = fuzz_options(seed, 20);
      options.faults = {};
      options.workload.nonsense = 0;
      options.worker.kv_blocks = 60, options.worker.max_context = 60,
      options.workload.prompt_tokens_max = 40;
      options.converge_within = seconds(200);
      if (bug.gateway) options.spoil_gateway = bug.gateway;
      if (bug.worker) options.spoil_worker = bug.worker;
      caught = simulate(options).violation;
    }
    EXPECT_EQ(caught.empty(), bug.gateway == nullptr && bug.worker == nullptr)
        << bug.name << ": " << caught;
    std::printf("  planted: %-36s caught: %s\n", bug.name, caught.c_str());
  }
}

}  // namespace
}  // namespace infos
