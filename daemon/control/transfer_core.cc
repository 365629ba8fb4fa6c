// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/transfer_core.h"

namespace infos {

const char* to_string(MoveVerdict verdict) {
  switch (verdict) {
    case MoveVerdict::landed:
      return "landed";
    case MoveVerdict::cancelled:
      return "cancelled";
    case MoveVerdict::peer_lost:
      return "peer lost";
    case MoveVerdict::refused:
      return "refused";
    case MoveVerdict::failed:
      return "failed";
  }
  return "unknown";
}

const char* to_string(KvBlockState state) {
  switch (state) {
    case KvBlockState::reserved:
      return "reserved";
    case KvBlockState::filling:
      return "filling";
    case KvBlockState::verifying:
      return "verifying";
    case KvBlockState::ready:
      return "ready";
    case KvBlockState::quarantined:
      return "quarantined";
  }
  return "unknown";
}

struct TransferCore::State {};

TransferCore::TransferCore(const TransferConfig&) : state_(std::make_unique<State>()) {}
TransferCore::~TransferCore() = default;
TransferCore::TransferCore(TransferCore&&) noexcept = default;
TransferCore& TransferCore::operator=(TransferCore&&) noexcept = default;

/// No protocol yet: nothing is fetched or exported; what is not fetched is computed.
void TransferCore::step(Time, const TransferEvent& event, TransferEffects& out) {
  if (const auto* fetch = std::get_if<FetchKv>(&event))
    out.push_back(FetchDone{fetch->id, 0, "no transfers yet"});
  if (const auto* wanted = std::get_if<ExportKv>(&event)) out.push_back(ExportDone{wanted->id});
}

Time TransferCore::next_deadline() const { return kNever; }
TransferAudit TransferCore::audit() const { return {}; }

}  // namespace infos
