// SPDX-License-Identifier: Apache-2.0
// Hostile letters between workers: either an error or a letter that survives writing and reading
// again; and a core in the midst of a fetch and an export takes any letter from anybody without
// waiting for what never comes (its next deadline stays ahead) or keeping what it cannot bound.
// Input: letters of two-byte length; the top bit of the length says from whom.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/control/codec_kv.h"
#include "daemon/control/transfer_core.h"

namespace {

using namespace infos;

constexpr WorkerRef kPeer{{2}, {1}}, kOther{{3}, {1}};

TransferCore busy_core(TransferEffects& out) {
  TransferConfig config;
  config.self = {{1}, {1}};
  config.identity.layers = 2;
  config.identity.block_tokens = 4;
  config.may_differ = kKvBridgeable;
  config.asks_max = 4;
  TransferCore core(config);
  core.step({1}, FetchKv{{1}, {7}, {1}, kPeer, 0, 8, {{0}, {1}}}, out);
  core.step({1}, ExportKv{{2}, {8}, {1}, kPeer, 6}, out);
  core.step({1}, AdvanceExport{{2}, 6, {{2}, {3}}}, out);
  return core;
}

/// What the shell would do at once.
void answer(TransferCore& core, Time now, TransferEffects& effects) {
  for (int round = 0; round < 8 && !effects.empty(); ++round) {
    TransferEffects more;
    for (TransferEffect& effect : effects) {
      if (const auto* open = std::get_if<OpenLease>(&effect))
        core.step(now, LeaseOpened{open->lease, {}, ""}, more);
      if (const auto* stamp = std::get_if<StampKv>(&effect))
        core.step(now, Stamped{stamp->id}, more);
      if (const auto* move = std::get_if<MoveKv>(&effect)) {
        if (move->begin >= move->end || move->into.empty() || move->end > 8) std::abort();
        core.step(now, MoveDone{move->id, MoveVerdict::failed, {}, true}, more);
      }
    }
    effects = std::move(more);
  }
  effects.clear();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  TransferEffects effects;
  TransferCore core = busy_core(effects);
  Time now{1};
  answer(core, now, effects);
  while (size >= 2) {
    const std::size_t length = std::min<std::size_t>(size - 2, (data[0] & 0x7f) << 8 | data[1]);
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, length);
    const WorkerRef from = data[0] & 0x80 ? kOther : kPeer;
    data += 2 + length, size -= 2 + length;
    const Result<KvMessage> letter = decode_kv_message(bytes);
    if (!letter.ok()) {
      if (letter.error().code != ErrorCode::corrupt || letter.error().message.empty()) std::abort();
      continue;
    }
    const std::string once = encode(*letter);
    const Result<KvMessage> again = decode_kv_message(once);
    if (!again.ok() || encode(*again) != once) std::abort();
    now = now + milliseconds(3);
    core.step(now, KvReceived{from, *letter}, effects);
    answer(core, now, effects);
    const TransferAudit audit = core.audit();
    if (!audit.broken.empty() || audit.asks > 4 || audit.leases > 1) std::abort();
    if (core.next_deadline() <= now) std::abort();
  }
  return 0;
}
