// SPDX-License-Identifier: Apache-2.0
// Strong ids: integers that cannot be mixed up. Ordered, hashable, printable through `.value`.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace infos {

/// An id of the kind named by Tag. 0 is "none".
template <typename Tag, typename Rep = std::uint64_t>
struct Id {
  Rep value = 0;
  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  explicit constexpr operator bool() const { return value != 0; }
};

/// One sequence being generated. Unique in a cluster: the top 16 bits are the node of the gateway
/// that admitted it, the next 16 its incarnation.
using RequestId = Id<struct RequestTag>;
using NodeId = Id<struct NodeTag, std::uint32_t>;  ///< a member of the cluster, given when it joins
using Epoch = Id<struct EpochTag>;                 ///< numbers the plans of a cluster, from 1
using WorkerId = Id<struct WorkerTag>;  ///< one worker slot of the cluster; survives restarts
using Generation =
    Id<struct GenerationTag, std::uint32_t>;  ///< orders a worker slot's processes, from 1
using Attempt =
    Id<struct AttemptTag, std::uint32_t>;  ///< counts a request's placements on workers, from 1
using BlockId = Id<struct BlockTag,
                   std::uint32_t>;      ///< a physical KV block of one pool; 0 is a real block here
using EffectId = Id<struct EffectTag>;  ///< names one asynchronous effect of a core
using BlockHash =
    Id<struct BlockHashTag>;  ///< hash of the chain of tokens that ends with this block

using TokenId = std::int32_t;  ///< index into a vocabulary

}  // namespace infos

template <typename Tag, typename Rep>
struct std::hash<infos::Id<Tag, Rep>> {
  std::size_t operator()(const infos::Id<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
