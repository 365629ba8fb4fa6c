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

using RequestId =
    Id<struct RequestTag>;  ///< one sequence being generated, unique in one gateway's life
using WorkerId = Id<struct WorkerTag>;  ///< one configured worker slot of a node; survives restarts
using Generation =
    Id<struct GenerationTag, std::uint32_t>;  ///< counts a worker slot's processes, from 1
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
