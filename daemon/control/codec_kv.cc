// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/codec_kv.h"

#include "daemon/control/codec_kv_fields.h"

namespace infos {

std::string encode(const KvMessage& message) {
  std::string out;
  wire::WireWriter(out).put_body(message);
  return out;
}

Result<KvMessage> decode_kv_message(std::string_view bytes) {
  if (bytes.size() > kKvLetterBytesMax) {
    return Error{ErrorCode::corrupt, "KV letter: " + std::to_string(bytes.size()) +
                                         " bytes, at most " + std::to_string(kKvLetterBytesMax) +
                                         " allowed"};
  }
  KvMessage message;
  wire::WireReader reader(bytes);
  if (!reader.read(message)) return Error{ErrorCode::corrupt, "KV letter: " + reader.error()};
  return message;
}

}  // namespace infos
