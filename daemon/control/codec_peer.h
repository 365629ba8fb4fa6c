// SPDX-License-Identifier: Apache-2.0
// Protobuf bytes of plans (stored and sent) and of the words between daemons (schema:
// messages.proto). Unknown fields are skipped and absent ones take their default. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/control/peer_messages.h"
#include "topology/base/result.h"

namespace infos {

std::string encode(const PeerMessage& message);
std::string encode_plan(const Plan& plan);
/// Errors: corrupt, naming the field.
Result<PeerMessage> decode_peer_message(std::string_view bytes);
Result<Plan> decode_plan(std::string_view bytes);

}  // namespace infos
