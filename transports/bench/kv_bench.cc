// SPDX-License-Identifier: Apache-2.0
#include "transports/bench/kv_bench.h"

#include <unistd.h>

#include <cstdlib>

#include <algorithm>
#include <map>

#include "transports/bench/limits.h"
#include "transports/bench/perftest.h"

namespace infos::bench {
namespace {

constexpr std::uint64_t kLarge = 16u << 20;  ///< from here on a figure is of bandwidth
/// What takes longer than a wake-up is slept through.
constexpr std::uint64_t kSpinBytesMax = 1u << 20;
constexpr std::uint64_t kBytesPerCell = 1u << 30, kOpsPerCellMax = 4000;

double load_now() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// One subject with its peer process and memory that has been touched.
class Link {
 public:
  static Result<std::unique_ptr<Link>> open(const Subject& subject, const KvBenchOptions& options) {
    std::unique_ptr<Link> link(new Link(subject, options));
    link->peer_ = INFOS_TRY(BenchPeer::start(subject.make, options.memory_bytes));
    link->transport_ = INFOS_TRY(subject.make());
    link->region_ = INFOS_TRY(link->transport_->allocate(options.memory_bytes, link->memory_));
    const PeerId peer = INFOS_TRY(link->transport_->connect(link->peer_->address()));
    const bool is_get = options.direction == Direction::get;
    link->remote_ = INFOS_TRY(link->transport_->open_remote(
        peer, is_get ? link->peer_->read_key() : link->peer_->write_key()));
    KvRow warm_up;
    warm_up.op_bytes = kLarge;
    warm_up.depth = 2;
    const Status warm = link->measure(warm_up, options.memory_bytes / kLarge);
    if (!warm.ok()) return warm.error();
    return link;
  }

  /// Fills the row's figures in; they replace worse ones.
  Status measure(KvRow& row, std::uint64_t ops) {
    const std::vector<Piece> shape = shape_of(row);
    std::vector<double> latencies;
    std::uint64_t given = 0, ended = 0, not_ok = 0, at = 0;
    const auto cpu = [&] { return cpu_seconds(getpid()) + cpu_seconds(peer_->pid()); };
    const double begin = seconds_now(), cpu_begin = cpu();
    const auto give = [&] {
      if (at + row.op_bytes > options_.memory_bytes) at = 0;
      pieces_ = shape;
      for (Piece& piece : pieces_) {
        piece.local += at;
        piece.remote += at;
      }
      at += (row.op_bytes + 4095) / 4096 * 4096;
      ++given;
      const double since = seconds_now();
      const auto done = [&, since](OpId, Verdict verdict) {
        ++ended;
        not_ok += verdict == Verdict::ok ? 0 : 1;
        latencies.push_back((seconds_now() - since) * 1e6);
      };
      if (options_.direction == Direction::get)
        transport_->get(remote_, region_, pieces_, done);
      else
        transport_->put(remote_, region_, pieces_, done);
    };
    const Spin spin = row.op_bytes * row.depth < kSpinBytesMax ? Spin::brief : Spin::none;
    while (ended < ops) {
      while (given < ops && given - ended < row.depth) give();
      const std::uint64_t before = ended;
      if (!wait_until(*transport_, spin, [&] { return ended > before; })) break;
    }
    if (ended < ops || not_ok > 0)
      return Error{ErrorCode::io, subject_.name + ": " + std::to_string(not_ok) + " of " +
                                      std::to_string(ended) + " operations failed"};
    const auto bytes = static_cast<double>(ops * row.op_bytes);
    const double rate = bytes / (seconds_now() - begin), cpu_ns = (cpu() - cpu_begin) * 1e9 / bytes;
    if (row.cpu_ns_per_byte == 0 || cpu_ns < row.cpu_ns_per_byte) row.cpu_ns_per_byte = cpu_ns;
    if (rate <= row.bytes_per_second) return {};
    row.bytes_per_second = rate;
    row.p50_us = percentile(latencies, 0.5);
    row.p99_us = percentile(latencies, 0.99);
    return {};
  }

  std::span<std::byte> memory() const { return memory_; }

 private:
  Link(const Subject& subject, const KvBenchOptions& options)
      : subject_(subject), options_(options) {}

  /// The pieces of an operation: one, or many that go from all over to all over.
  static std::vector<Piece> shape_of(const KvRow& row) {
    if (row.pieces == 1) return {{0, 0, row.op_bytes}};
    std::vector<Piece> shape;
    const std::uint64_t bytes = row.op_bytes / row.pieces;
    for (std::uint64_t i = 0; i < row.pieces; ++i)  // 7919 is prime: a permutation
      shape.push_back({i * bytes, i * 7919 % row.pieces * bytes, bytes});
    return shape;
  }

  const Subject& subject_;
  const KvBenchOptions& options_;
  std::unique_ptr<BenchPeer> peer_;
  std::unique_ptr<Transport> transport_;
  std::span<std::byte> memory_;
  RegionId region_;
  RemoteId remote_;
  std::vector<Piece> pieces_;
};

class Bench {
 public:
  Bench(const KvBenchOptions& options, const std::function<void(const std::string&)>& progress)
      : options_(options), progress_(progress) {}

  Result<KvReport> run() {
    report_.load_before = load_now();
    for (std::uint32_t round = 0; round < options_.rounds; ++round) {
      round_ = std::to_string(round + 1) + " of " + std::to_string(options_.rounds);
      const Status limits = measure_limits();
      if (!limits.ok()) return limits.error();
      for (const Subject& subject : options_.subjects) {
        const Status measured = measure(subject);
        if (!measured.ok()) return measured.error();
      }
      if (options_.compare == KvBenchOptions::Compare::yes) compare();
    }
    for (const auto& [name, limit] : limits_) report_.limits.push_back(limit);
    add_ratios();
    if (options_.detect == KvBenchOptions::Detect::yes)
      for (const Subject& subject : options_.subjects) {
        progress_("detection, " + subject.name);
        const Status detected = measure_detection(subject, report_);
        if (!detected.ok()) report_.notes.push_back(detected.error().message);
      }
    report_.load_after = load_now();
    return report_;
  }

 private:
  void note_limit(const std::string& name, const RawRate& rate) {
    KvLimit& limit = limits_[name];
    limit.name = name;
    limit.bytes_per_second = std::max(limit.bytes_per_second, rate.bytes_per_second);
    if (limit.cpu_ns_per_byte == 0 || rate.cpu_ns_per_byte < limit.cpu_ns_per_byte)
      limit.cpu_ns_per_byte = rate.cpu_ns_per_byte;
  }

  Status measure_limits() {
    progress_("yardsticks, round " + round_);
    const std::uint64_t bytes = options_.memory_bytes;
    const std::string threads = std::to_string(options_.copy_threads);
    {
      const TouchedMemory source(bytes, TouchedMemory::Kind::shared);
      const TouchedMemory destination(bytes, TouchedMemory::Kind::shared);
      const auto copy = [&](const std::string& name, CopyKind kind, std::uint32_t count) {
        note_limit(name, copy_rate(destination.bytes(), source.bytes(), kind, count));
      };
      copy("memcpy, 1 thread", CopyKind::memcpy_libc, 1);
      copy("streaming copy, 1 thread", CopyKind::streaming, 1);
      copy("streaming copy, " + threads + " threads", CopyKind::streaming, options_.copy_threads);
    }
    const TouchedMemory into(bytes, TouchedMemory::Kind::anonymous);
    for (const std::uint64_t piece : {std::uint64_t{256 * 1024}, options_.piece_bytes}) {
      if (piece == 0) continue;
      const RawTcpOptions raw{bytes, bytes, piece};
      note_limit(raw_name(piece), INFOS_TRY(raw_tcp_rate(raw, into.bytes())));
    }
    return {};
  }

  static std::string raw_name(std::uint64_t piece) {
    return "raw tcp frames, pieces of " + to_string(Bytes{piece});
  }

  Status measure(const Subject& subject) {
    progress_(subject.name + ", round " + round_);
    const auto link = INFOS_TRY(Link::open(subject, options_));
    for (const std::uint64_t size : options_.sizes)
      for (const std::uint32_t depth : options_.depths) {
        const std::uint64_t ops =
            std::clamp<std::uint64_t>(kBytesPerCell / size, depth, kOpsPerCellMax);
        const Status measured = link->measure(row(subject.name, size, 1, depth), ops);
        if (!measured.ok()) return measured;
      }
    const std::uint64_t scattered = options_.pieces * options_.piece_bytes;
    if (scattered == 0 || scattered > options_.memory_bytes) return {};
    return link->measure(row(subject.name, scattered, options_.pieces, 1), 2);
  }

  KvRow& row(const std::string& subject, std::uint64_t bytes, std::uint64_t pieces,
             std::uint32_t depth) {
    for (KvRow& row : report_.rows)
      if (row.subject == subject && row.op_bytes == bytes && row.pieces == pieces &&
          row.depth == depth)
        return row;
    return report_.rows.emplace_back(KvRow{subject, bytes, pieces, depth});
  }

  void compare() {
    const std::uint64_t cold = std::max<std::uint64_t>(options_.memory_bytes / 2, kLarge);
    const struct {
      const char* name;
      const char* transports;
      std::uint64_t bytes, iterations;
    } cases[] = {{"ucx_perftest posix, cold", "posix,self", cold, 6},
                 {"ucx_perftest tcp, 4KiB", "tcp,self", 4096, 50'000},
                 {"ucx_perftest tcp, cold", "tcp,self", cold, 3}};
    for (const auto& c : cases)
      for (const char* test : {"tag_bw", "ucp_put_bw"}) {
        progress_(std::string(c.name) + " " + test + ", round " + round_);
        const auto rate = perftest_rate({c.transports, test, c.bytes, c.iterations});
        if (rate.ok())
          note_limit(c.name, {*rate, 0});
        else
          note(std::string(c.name) + " " + test + ": " + rate.error().message);
      }
  }

  void note(const std::string& text) {
    if (std::find(report_.notes.begin(), report_.notes.end(), text) == report_.notes.end())
      report_.notes.push_back(text);
  }

  double best_large(const std::string& subject) const {
    double best = 0;
    for (const KvRow& row : report_.rows)
      if (row.subject == subject && row.pieces == 1 && row.op_bytes >= kLarge)
        best = std::max(best, row.bytes_per_second);
    return best;
  }

  double scattered(const std::string& subject) const {
    for (const KvRow& row : report_.rows)
      if (row.subject == subject && row.pieces > 1) return row.bytes_per_second;
    return 0;
  }

  void ratio(const std::string& name, double value, const std::string& limit,
             std::optional<double> at_least) {
    const auto at = limits_.find(limit);
    if (value > 0 && at != limits_.end() && at->second.bytes_per_second > 0)
      report_.ratios.push_back(
          {name + " / " + limit, value / at->second.bytes_per_second, at_least});
  }

  void add_ratios() {
    const std::string streaming =
        "streaming copy, " + std::to_string(options_.copy_threads) + " threads";
    std::map<TransportKind, std::string> first;
    for (const Subject& subject : options_.subjects) {
      const double large = best_large(subject.name), pieces = scattered(subject.name);
      const bool is_first = first.emplace(subject.kind, subject.name).second;
      if (subject.kind == TransportKind::shm) {
        ratio(subject.name + ", large", large, streaming, 0.9);
        ratio(subject.name + ", large", large, "ucx_perftest posix, cold", 1.4);
        ratio(subject.name + ", pieces", pieces, streaming, std::nullopt);
      }
      if (subject.kind == TransportKind::tcp) {
        const auto bar = is_first ? std::optional<double>(0.9) : std::nullopt;
        ratio(subject.name + ", large", large, raw_name(256 * 1024), bar);
        ratio(subject.name + ", pieces", pieces, raw_name(options_.piece_bytes), bar);
        ratio(subject.name + ", pieces", pieces, "ucx_perftest tcp, 4KiB",
              is_first ? std::optional<double>(2) : std::nullopt);
      }
      if (!is_first && best_large(first[subject.kind]) > 0 && large > 0)
        report_.ratios.push_back({first[subject.kind] + " / " + subject.name + ", large",
                                  best_large(first[subject.kind]) / large, std::nullopt});
    }
  }

  const KvBenchOptions& options_;
  const std::function<void(const std::string&)>& progress_;
  KvReport report_;
  std::map<std::string, KvLimit> limits_;
  std::string round_;
};

}  // namespace

Result<KvReport> run_kv_bench(const KvBenchOptions& options,
                              const std::function<void(const std::string& now)>& progress) {
  return Bench(options, progress).run();
}

}  // namespace infos::bench
