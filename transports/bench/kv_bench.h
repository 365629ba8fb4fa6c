// SPDX-License-Identifier: Apache-2.0
// Measures transports between two processes of this host: size by depth, beside what the machine
// can do at best. Source and destination are walked through, larger than the caches, so that every
// byte is cold. A transport and its yardstick are measured in turns, the best of each counts: other
// load only takes away.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/base/units.h"
#include "transports/bench/bench_peer.h"

namespace infos::bench {

enum class Direction { get, put };

struct Subject {
  std::string name;  ///< "tcp, no checks"
  TransportKind kind = TransportKind::tcp;
  MakeTransport make;
};

struct KvBenchOptions {
  std::vector<Subject> subjects;
  std::vector<std::uint64_t> sizes;   ///< of one operation
  std::vector<std::uint32_t> depths;  ///< operations in flight
  Direction direction = Direction::get;
  std::uint64_t memory_bytes = 512u << 20;             ///< on each side
  std::uint64_t piece_bytes = 4096, pieces = 100'000;  ///< of the scattered transfer; 0: none
  std::uint32_t rounds = 3;
  std::uint32_t copy_threads = 2;
  enum class Compare { yes, no } compare = Compare::yes;  ///< with ucx_perftest
  enum class Detect { yes, no } detect = Detect::yes;     ///< killed and stopped peers
};

struct KvRow {
  std::string subject;
  std::uint64_t op_bytes = 0, pieces = 1;
  std::uint32_t depth = 1;
  double bytes_per_second = 0;
  double p50_us = 0, p99_us = 0;  ///< from giving an operation to its verdict
  double cpu_ns_per_byte = 0;     ///< of both processes; hardly changed by other load
};

/// A yardstick, or a comparison.
struct KvLimit {
  std::string name;
  double bytes_per_second = 0;
  double cpu_ns_per_byte = 0;  ///< 0: not measured
};

struct KvDetection {
  std::string subject, what;
  double seconds = 0;
};

/// One measured quotient, with the bar that it is held to.
struct KvRatio {
  std::string name;
  double value = 0;
  std::optional<double> at_least;
};

struct KvReport {
  std::vector<KvRow> rows;
  std::vector<KvLimit> limits;
  std::vector<KvRatio> ratios;
  std::vector<KvDetection> detections;
  std::vector<std::string> notes;  ///< what could not be measured, and why
  double load_before = 0, load_after = 0;
};

/// Requires: this process has one thread. Errors: a subject cannot be made, or an operation failed.
Result<KvReport> run_kv_bench(const KvBenchOptions& options,
                              const std::function<void(const std::string& now)>& progress);

/// detect.cc: how long until a peer that is killed or stopped is lost.
Status measure_detection(const Subject& subject, KvReport& report);

}  // namespace infos::bench
