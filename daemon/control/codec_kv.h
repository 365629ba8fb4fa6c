// SPDX-License-Identifier: Apache-2.0
// Protobuf bytes of KvMessage (schema: kv.proto): the body of a KvLetter. Unknown fields are
// skipped, so versions N and N-1 read each other. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/control/kv_messages.h"
#include "topology/base/result.h"

namespace infos {

std::string encode(const KvMessage& message);
/// Errors: corrupt, naming the field; more than kKvLetterBytesMax bytes.
Result<KvMessage> decode_kv_message(std::string_view bytes);

}  // namespace infos
