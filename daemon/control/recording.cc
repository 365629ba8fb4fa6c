// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/recording.h"

#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace infos {
namespace {

constexpr std::string_view kMagic = "infosrec";
constexpr std::uint32_t kVersion = 1;

void put_u32(std::string& out, std::uint32_t v) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(v >> (8 * i)));
}
std::uint32_t get_u32(std::string_view bytes) {
  std::uint32_t v = 0;
  for (int i = 0; i < 4; ++i)
    v |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[i])) << (8 * i);
  return v;
}

/// A core of any kind, and its running hash.
struct Replayer {
  ReplayedCore found;
  std::variant<GatewayCore, WorkerCore, AgentCore> core;
  Time last{INT64_MIN};

  static std::variant<GatewayCore, WorkerCore, AgentCore> build(const CoreConfig& config) {
    if (const auto* g = std::get_if<GatewayConfig>(&config)) return GatewayCore(*g);
    if (const auto* w = std::get_if<WorkerConfig>(&config)) return WorkerCore(*w);
    return AgentCore(std::get<AgentConfig>(config));
  }
  template <typename Core, typename Event, typename Effects>
  void tell(Time now, const Event& event, Effects effects) {
    std::get<Core>(core).step(now, event, effects);
    found.hash = hash_effects(found.hash, effects);
    ++found.events;
  }
  void tell(const RecordedEvent& record) {
    if (const auto* g = std::get_if<GatewayEvent>(&record.event))
      tell<GatewayCore>(record.now, *g, GatewayEffects{});
    else if (const auto* w = std::get_if<WorkerEvent>(&record.event))
      tell<WorkerCore>(record.now, *w, WorkerEffects{});
    else
      tell<AgentCore>(record.now, std::get<AgentEvent>(record.event), AgentEffects{});
  }
  void compare(const RecordedHash& recorded) {
    ++found.compared;
    const bool same = recorded.events == found.events && recorded.hash == found.hash;
    if (!same && found.differing_after == 0) found.differing_after = found.events;
  }
};

/// A recording may be damaged: what it says must not make a core of absurd size.
Status plausible(const CoreConfig& config) {
  constexpr std::uint64_t kRowsMax = 1ULL << 28;
  const auto* w = std::get_if<WorkerConfig>(&config);
  if (w && (w->block_tokens == 0 || std::uint64_t{w->kv_blocks} * w->block_tokens > kRowsMax ||
            w->kv_blocks > kRowsMax / 8)) {
    return Error{ErrorCode::corrupt, "recording: a worker with " + std::to_string(w->kv_blocks) +
                                         " KV blocks of " + std::to_string(w->block_tokens) +
                                         " tokens, want at most 2^28 tokens in all"};
  }
  return {};
}

using Key = std::pair<CoreKind, std::uint64_t>;

std::string describe(const Key& key) {
  return std::string(to_string(key.first)) + " " + std::to_string(key.second);
}

}  // namespace

std::string recording_header() {
  std::string out(kMagic);
  put_u32(out, kVersion);
  return out;
}

std::string Recorder::frame(const Record& record) {
  const std::string payload = encode(record);
  std::string out;
  out.reserve(payload.size() + 4);
  put_u32(out, static_cast<std::uint32_t>(payload.size()));
  out += payload;
  return out;
}

std::string Recorder::start(std::uint64_t instance, const CoreConfig& config) {
  RecordedStart record{instance, config};
  running_[{record.core(), instance}] = Running{};
  return frame(Record(std::move(record)));
}

std::string Recorder::hashes() const {
  std::string out;
  for (const auto& [key, running] : running_) {
    out += frame(Record(RecordedHash{key.first, key.second, running.events, running.hash}));
  }
  return out;
}

RecordingReader::RecordingReader(std::string_view bytes) : all_(bytes), rest_(bytes) {}

Result<RecordingReader> RecordingReader::open(std::string_view bytes) {
  if (bytes.size() < kMagic.size() + 4 || bytes.substr(0, kMagic.size()) != kMagic) {
    return Error{ErrorCode::corrupt, "recording: does not begin with \"infosrec\""};
  }
  const std::uint32_t version = get_u32(bytes.substr(kMagic.size()));
  if (version != kVersion) {
    return Error{ErrorCode::unsupported, "recording: version " + std::to_string(version) +
                                             ", want " + std::to_string(kVersion)};
  }
  RecordingReader reader(bytes);
  reader.rest_.remove_prefix(kMagic.size() + 4);
  reader.look_ahead();
  return reader;
}

void RecordingReader::look_ahead() {
  if (rest_.empty()) return;
  if (rest_.size() < 4 || get_u32(rest_) > rest_.size() - 4) {
    torn_ = true;
    rest_ = {};
  }
}

Result<Record> RecordingReader::next() {
  INFOS_CHECK(!rest_.empty());
  const std::uint32_t size = get_u32(rest_);
  Result<Record> record = decode_record(rest_.substr(4, size));
  if (!record.ok()) {
    const auto offset = static_cast<std::size_t>(rest_.data() - all_.data());
    return Error{record.error().code,
                 "recording, byte " + std::to_string(offset) + ": " + record.error().message};
  }
  rest_.remove_prefix(4 + static_cast<std::size_t>(size));
  look_ahead();
  return record;
}

Result<ReplayReport> replay(std::string_view bytes) {
  RecordingReader reader = INFOS_TRY(RecordingReader::open(bytes));
  std::map<Key, Replayer> cores;
  ReplayReport report;
  while (!reader.at_end()) {
    const Record record = INFOS_TRY(reader.next());
    if (const auto* start = std::get_if<RecordedStart>(&record)) {
      const Key key{start->core(), start->instance};
      if (Status fine = plausible(start->config); !fine.ok()) return fine.error();
      cores.erase(key);
      cores.emplace(key, Replayer{{key.first, key.second}, Replayer::build(start->config)});
      continue;
    }
    const auto* event = std::get_if<RecordedEvent>(&record);
    const auto* hash = std::get_if<RecordedHash>(&record);
    const Key key = event ? Key{event->core(), event->instance} : Key{hash->core, hash->instance};
    const auto found = cores.find(key);
    if (found == cores.end())
      return Error{ErrorCode::corrupt,
                   "recording: " + describe(key) + " was told something before its start"};
    if (hash) {
      found->second.compare(*hash);
      continue;
    }
    if (event->now < std::max(found->second.last, Time{}))
      return Error{ErrorCode::corrupt,
                   "recording: time goes back, or below zero, for " + describe(key)};
    found->second.last = event->now;
    found->second.tell(*event);
    ++report.events;
  }
  report.torn = reader.is_torn();
  for (const auto& [key, core] : cores) {
    report.cores.push_back(core.found);
    report.hash = XXH3_64bits_withSeed(&core.found.hash, sizeof core.found.hash, report.hash);
    if (core.found.differing_after != 0) report.matches = false;
  }
  return report;
}

}  // namespace infos
