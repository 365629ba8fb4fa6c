// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/codec_peer.h"

#include "daemon/control/codec.h"
#include "daemon/control/codec_peer_fields.h"

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
  if (bytes.size() > kFrameBytesMax)
    return Error{ErrorCode::corrupt, std::string(what) + ": " + std::to_string(bytes.size()) +
                                         " bytes, at most " + std::to_string(kFrameBytesMax) +
                                         " allowed"};
  T message{};
  wire::WireReader reader(bytes);
  if (!reader.read(message))
    return Error{ErrorCode::corrupt, std::string(what) + ": " + reader.error()};
  return message;
}

}  // namespace

std::string encode(const PeerMessage& message) { return encode_any(message); }
std::string encode_plan(const Plan& plan) { return encode_any(plan); }

Result<PeerMessage> decode_peer_message(std::string_view bytes) {
  return decode_any<PeerMessage>("message of a peer", bytes);
}
Result<Plan> decode_plan(std::string_view bytes) { return decode_any<Plan>("plan", bytes); }

}  // namespace infos
