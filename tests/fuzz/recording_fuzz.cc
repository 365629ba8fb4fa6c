// SPDX-License-Identifier: Apache-2.0
// Hostile recordings: an error with its place, or a replay that says the same twice. Whatever a
// recording tells them, the cores neither crash nor fail a check. Recordings of large cores are
// only read, so that the fuzzer's memory limit finds other things than large vectors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/control/recording.h"

namespace {

constexpr std::uint64_t kKvTokensMax = 1U << 16;

/// Reads all. Returns: whether a replay is cheap.
bool read_all(infos::RecordingReader reader) {
  bool small = true;
  while (!reader.at_end()) {
    const infos::Result<infos::Record> record = reader.next();
    if (!record.ok()) {
      if (record.error().message.empty()) std::abort();
      break;
    }
    const auto* start = std::get_if<infos::RecordedStart>(&*record);
    const auto* worker = start ? std::get_if<infos::WorkerConfig>(&start->config) : nullptr;
    if (worker && (worker->kv_blocks > kKvTokensMax ||
                   std::uint64_t{worker->kv_blocks} * worker->block_tokens > kKvTokensMax))
      small = false;
  }
  return small;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto reader = infos::RecordingReader::open(bytes);
  if (reader.ok() && !read_all(*reader)) return 0;
  const auto first = infos::replay(bytes);
  if (!first.ok()) {
    if (first.error().message.empty()) std::abort();
    return 0;
  }
  const auto second = infos::replay(bytes);
  if (!second.ok() || second->hash != first->hash || second->events != first->events) std::abort();
  return 0;
}
