// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/codec.h"

#include <xxhash.h>

#include "daemon/control/codec_fields.h"

namespace infos {
namespace {

template <typename T>
std::string encode_any(const T& message) {
  std::string out;
  wire::WireWriter(out).put_body(message);
  return out;
}

template <typename T>
Result<T> decode_any(const char* what, std::string_view bytes) {
  if (bytes.size() > kFrameBytesMax) {
    return Error{ErrorCode::corrupt, std::string(what) + ": " + std::to_string(bytes.size()) +
                                         " bytes, at most " + std::to_string(kFrameBytesMax) +
                                         " allowed"};
  }
  T message{};
  wire::WireReader reader(bytes);
  if (!reader.read(message))
    return Error{ErrorCode::corrupt, std::string(what) + ": " + reader.error()};
  return message;
}

template <typename E>
std::uint64_t hash_any(std::uint64_t running, const std::vector<E>& effects) {
  if (effects.empty()) return running;
  std::string bytes;
  wire::WireWriter(bytes).always(1, "effects", effects);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), running);
}

}  // namespace

std::string encode(const ToWorker& message) { return encode_any(message); }
std::string encode(const FromWorker& message) { return encode_any(message); }
std::string encode(const Record& record) { return encode_any(record); }
Result<ToWorker> decode_to_worker(std::string_view bytes) {
  return decode_any<ToWorker>("message to a worker", bytes);
}
Result<FromWorker> decode_from_worker(std::string_view bytes) {
  return decode_any<FromWorker>("message from a worker", bytes);
}
Result<Record> decode_record(std::string_view bytes) { return decode_any<Record>("record", bytes); }

const char* to_string(CoreKind core) {
  switch (core) {
    case CoreKind::gateway:
      return "gateway";
    case CoreKind::worker:
      return "worker";
    case CoreKind::agent:
      return "agent";
  }
  return "unknown";
}

std::uint64_t hash_effects(std::uint64_t running, const GatewayEffects& effects) {
  return hash_any(running, effects);
}
std::uint64_t hash_effects(std::uint64_t running, const WorkerEffects& effects) {
  return hash_any(running, effects);
}
std::uint64_t hash_effects(std::uint64_t running, const AgentEffects& effects) {
  return hash_any(running, effects);
}

}  // namespace infos
