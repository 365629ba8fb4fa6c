// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/kv_messages.h"

namespace infos {
namespace {

std::string shown(const std::string& value) { return "\"" + value + "\""; }
std::string shown(std::uint32_t value) { return std::to_string(value); }
std::string shown(Epoch value) { return std::to_string(value.value); }

}  // namespace

const char* to_string(KvField field) {
  static constexpr const char* kNames[] = {"model",      "checkpoint", "plugin build", "epoch",
                                           "layers",     "KV heads",   "head dim",     "dtype",
                                           "block size", "ranks",      "layout"};
  static_assert(std::size(kNames) == kKvFields);
  const auto i = static_cast<std::uint32_t>(field);
  return i < kKvFields ? kNames[i] : "unknown";
}

std::optional<KvMismatch> mismatch(const KvIdentity& source, const KvIdentity& destination,
                                   std::uint32_t may_differ) {
  std::optional<KvMismatch> found;
  const auto compare = [&](KvField field, const auto& theirs, const auto& ours) {
    if (found || theirs == ours || (may_differ & kKvBridgeable & bit(field)) != 0) return;
    found = KvMismatch{field, std::string(to_string(field)) + " differs: the source has " +
                                  shown(theirs) + ", the destination " + shown(ours)};
  };
  compare(KvField::model, source.model, destination.model);
  compare(KvField::checkpoint, source.checkpoint, destination.checkpoint);
  compare(KvField::plugin_build, source.plugin_build, destination.plugin_build);
  compare(KvField::epoch, source.epoch, destination.epoch);
  compare(KvField::layers, source.layers, destination.layers);
  compare(KvField::kv_heads, source.kv_heads, destination.kv_heads);
  compare(KvField::head_dim, source.head_dim, destination.head_dim);
  compare(KvField::dtype, source.dtype, destination.dtype);
  compare(KvField::block_size, source.block_tokens, destination.block_tokens);
  compare(KvField::ranks, source.ranks, destination.ranks);
  compare(KvField::layout, source.layout, destination.layout);
  return found;
}

KvIdentity identity_of(const std::string& model, Epoch epoch, const KvLayout& layout) {
  KvIdentity identity;
  identity.model = model;
  identity.checkpoint = layout.model;
  identity.plugin_build = layout.build;
  identity.epoch = epoch;
  identity.layers = layout.layers;
  identity.kv_heads = layout.heads;
  identity.head_dim = layout.head_dim;
  identity.dtype = to_string(layout.dtype);
  identity.block_tokens = layout.block_tokens;
  identity.ranks = layout.ranks;
  identity.layout = encode(layout);
  return identity;
}

std::uint32_t bridges(KvPolicy policy) {
  return policy == KvPolicy::exact ? kKvBridgeable & ~bit(KvField::plugin_build) : kKvBridgeable;
}

std::string reasons_against(const KvIdentity& source, const KvIdentity& destination,
                            KvPolicy policy) {
  if (source.layout.empty() || destination.layout.empty()) return {};
  const Result<KvLayout> from = decode_kv_layout(source.layout);
  if (!from.ok()) return "layout: " + from.error().message;
  const Result<KvLayout> to = decode_kv_layout(destination.layout);
  if (!to.ok()) return "layout: " + to.error().message;
  if (from->layers != source.layers || from->block_tokens != source.block_tokens)
    return "layout: the source's says something else than its own fields";
  const Result<KvFidelity> may = can_reshard(*from, *to, policy);
  return may.ok() ? std::string{} : "layout: " + may.error().message;
}

const TransferId& transfer_of(const KvMessage& message) {
  return std::visit([](const auto& m) -> const TransferId& { return m.transfer; }, message);
}

}  // namespace infos
