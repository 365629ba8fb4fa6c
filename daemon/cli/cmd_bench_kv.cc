// SPDX-License-Identifier: Apache-2.0
// `infos bench kv`: what the transports for KV do on this machine, beside its limits.
#include <fmt/format.h>

#include <cstdio>
#include <sstream>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "transports/bench/kv_bench.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/tcp_transport.h"

namespace infos::cli {
namespace {

namespace json = boost::json;
using bench::KvBenchOptions;
using bench::KvReport;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');)
    if (!word.empty()) words.push_back(word);
  return words;
}

Result<std::vector<std::uint64_t>> sizes_of(const Invocation& given, std::uint64_t most) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& word : words_of(given.text("size"))) {
    const auto bytes = parse_bytes(word);
    if (!bytes.ok() || bytes->value == 0 || bytes->value > most)
      return bad_option("size", word, "sizes from 1B to that of --memory");
    sizes.push_back(bytes->value);
  }
  return sizes;
}

Result<std::vector<std::uint32_t>> depths_of(const Invocation& given) {
  std::vector<std::uint32_t> depths;
  for (const std::string& word : words_of(given.text("depth"))) {
    const int depth = std::atoi(word.c_str());
    if (depth < 1 || depth > 1024) return bad_option("depth", word, "whole numbers from 1 to 1024");
    depths.push_back(static_cast<std::uint32_t>(depth));
  }
  return depths;
}

Status add_subjects(const Invocation& given, const std::string& name, KvBenchOptions& options) {
  if (name == "shm") {
    ShmOptions shm;
    shm.helpers = options.copy_threads - 1;
    options.subjects.push_back(
        {"shm", TransportKind::shm, [shm] { return make_shm_transport(shm); }});
  } else if (name == "tcp") {
    TcpOptions tcp, bare;
    bare.checks = TcpOptions::Checks::off;
    options.subjects.push_back(
        {"tcp", TransportKind::tcp, [tcp] { return make_tcp_transport(tcp); }});
    options.subjects.push_back(
        {"tcp, no checks", TransportKind::tcp, [bare] { return make_tcp_transport(bare); }});
    TcpOptions tls;
    tls.certificate_file = given.text("certificate");
    tls.key_file = given.text("key");
    tls.authority_file = given.text("authority");
    if (!tls.certificate_file.empty())
      options.subjects.push_back(
          {"tcp, TLS", TransportKind::tcp, [tls] { return make_tcp_transport(tls); }});
  } else {
    return bad_option("transport", name, "shm, tcp");
  }
  return {};
}

Result<KvBenchOptions> options_of(const Invocation& given) {
  KvBenchOptions options;
  const auto memory = parse_bytes(given.text("memory"));
  if (!memory.ok() || memory->value < (64u << 20) || memory->value > (std::uint64_t{1} << 40))
    return bad_option("memory", given.text("memory"), "64MiB to 1TiB");
  options.memory_bytes = memory->value;
  options.sizes = INFOS_TRY(sizes_of(given, options.memory_bytes));
  options.depths = INFOS_TRY(depths_of(given));
  options.rounds = static_cast<std::uint32_t>(INFOS_TRY(count_option(given, "rounds", 1, 100)));
  options.copy_threads =
      static_cast<std::uint32_t>(INFOS_TRY(count_option(given, "copiers", 1, 64)));
  options.pieces = INFOS_TRY(count_option(given, "pieces", 0, 1u << 20));
  const std::string direction = given.text("direction");
  if (direction != "get" && direction != "put")
    return bad_option("direction", direction, "get or put");
  if (direction == "put") options.direction = bench::Direction::put;
  if (given.has("no-compare")) options.compare = KvBenchOptions::Compare::no;
  if (given.has("no-detect")) options.detect = KvBenchOptions::Detect::no;
  for (const std::string& name : words_of(given.text("transport"))) {
    const Status added = add_subjects(given, name, options);
    if (!added.ok()) return added.error();
  }
  return options;
}

json::object report_json(const KvReport& report) {
  json::array rows, limits, ratios, detections, notes;
  for (const auto& row : report.rows)
    rows.push_back(json::object{{"transport", row.subject},
                                {"bytes", row.op_bytes},
                                {"pieces", row.pieces},
                                {"depth", row.depth},
                                {"bytes_per_second", row.bytes_per_second},
                                {"p50_us", row.p50_us},
                                {"p99_us", row.p99_us},
                                {"cpu_ns_per_byte", row.cpu_ns_per_byte}});
  for (const auto& limit : report.limits)
    limits.push_back(json::object{{"name", limit.name},
                                  {"bytes_per_second", limit.bytes_per_second},
                                  {"cpu_ns_per_byte", limit.cpu_ns_per_byte}});
  for (const auto& ratio : report.ratios) {
    json::object one{{"name", ratio.name}, {"value", ratio.value}};
    if (ratio.at_least) one["at_least"] = *ratio.at_least;
    ratios.push_back(std::move(one));
  }
  for (const auto& seen : report.detections)
    detections.push_back(
        json::object{{"transport", seen.subject}, {"what", seen.what}, {"seconds", seen.seconds}});
  for (const auto& note : report.notes) notes.push_back(json::string(note));
  return {{"rows", rows},
          {"limits", limits},
          {"ratios", ratios},
          {"detections", detections},
          {"notes", notes},
          {"load_before", report.load_before},
          {"load_after", report.load_after}};
}

std::string gigabytes(double rate) { return fmt::format("{:.2f} GB/s", rate * 1e-9); }

std::string report_table(const KvReport& report) {
  std::vector<std::vector<std::string>> rows, limits, ratios, detections;
  for (const auto& row : report.rows) {
    const std::string size =
        row.pieces == 1
            ? to_string(Bytes{row.op_bytes})
            : fmt::format("{} x {}", row.pieces, to_string(Bytes{row.op_bytes / row.pieces}));
    rows.push_back({row.subject, size, std::to_string(row.depth), gigabytes(row.bytes_per_second),
                    fmt::format("{:.1f}", row.p50_us), fmt::format("{:.1f}", row.p99_us),
                    fmt::format("{:.3f}", row.cpu_ns_per_byte)});
  }
  for (const auto& limit : report.limits)
    limits.push_back(
        {limit.name, gigabytes(limit.bytes_per_second),
         limit.cpu_ns_per_byte > 0 ? fmt::format("{:.3f}", limit.cpu_ns_per_byte) : ""});
  for (const auto& ratio : report.ratios)
    ratios.push_back({ratio.name, fmt::format("{:.2f}", ratio.value),
                      ratio.at_least ? fmt::format("{:.2f}", *ratio.at_least) : "",
                      !ratio.at_least                  ? ""
                      : ratio.value >= *ratio.at_least ? "met"
                                                       : "missed"});
  for (const auto& seen : report.detections)
    detections.push_back({seen.subject, seen.what, fmt::format("{:.0f}", seen.seconds * 1e3)});
  std::string out =
      print_table({"transport", "size", "depth", "bandwidth", "p50 us", "p99 us", "cpu ns/B"},
                  rows) +
      "\n" + print_table({"this machine", "best", "cpu ns/B"}, limits) + "\n" +
      print_table({"ratio", "value", "at least", ""}, ratios);
  if (!detections.empty())
    out += "\n" + print_table({"loss noticed", "signal", "worst ms"}, detections);
  for (const std::string& note : report.notes) out += "\nnote: " + note;
  out += fmt::format("\nload average {:.1f} before, {:.1f} after\n", report.load_before,
                     report.load_after);
  return out;
}

}  // namespace

void describe_bench_kv(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("transport", text("LIST")->default_value("shm,tcp"), "which, separated by commas");
  add("size", text("LIST")->default_value("4KiB,64KiB,1MiB,16MiB,64MiB"), "bytes per operation");
  add("depth", text("LIST")->default_value("1,4"), "operations in flight");
  add("direction", text("WORD")->default_value("get"), "get or put");
  add("pieces", text("N")->default_value("100000"),
      "pieces of 4 KiB in one scattered transfer; 0: none");
  add("memory", text("SIZE")->default_value("512MiB"), "walked through on each side");
  add("copiers", text("N")->default_value("2"), "threads that copy, of shm and its yardstick");
  add("rounds", text("N")->default_value("3"), "the best round counts");
  add("certificate", text("FILE"), "also TLS: certificate of both sides, PEM");
  add("key", text("FILE"), "... its key");
  add("authority", text("FILE"), "... who signed it");
  add("no-compare", "without ucx_perftest");
  add("no-detect", "do not kill or stop peers");
  describe_output(add);
}

int run_bench_kv(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const KvBenchOptions options = INFOS_CLI_TRY(options_of(given));
  const auto draw = [](const std::string& now) {
    if (stderr_is_terminal()) std::fprintf(stderr, "\r\033[K%s", now.c_str());
  };
  const auto report = bench::run_kv_bench(options, draw);
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
  if (!report.ok()) return complain(kFailed, report.error());
  if (output == Output::json)
    std::fputs(pretty(report_json(*report)).c_str(), stdout);
  else
    std::fputs(report_table(*report).c_str(), stdout);
  return kDone;
}

}  // namespace infos::cli
