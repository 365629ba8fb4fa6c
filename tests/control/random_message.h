// SPDX-License-Identifier: Apache-2.0
// Fills any message that has a field list with random values, hostile numbers included. For tests
// of the codec.
#pragma once

#include <bit>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "daemon/control/codec_fields.h"
#include "topology/base/rng.h"

namespace infos::test {

class RandomMessage {
 public:
  explicit RandomMessage(std::uint64_t seed) : rng_(seed) {}

  template <typename T>
  void fill(T& v) {
    if constexpr (std::is_same_v<T, bool>)
      v = rng_.chance(0.5);
    else if constexpr (wire::Wrapped<T>)
      fill(v.value);
    else if constexpr (wire::Clocked<T>)
      fill(v.ns);
    else if constexpr (std::is_enum_v<T>)
      v = static_cast<T>(rng_.below(wire::kEnumMax<T> + 1));
    else if constexpr (std::is_integral_v<T>)
      v = integer<T>();
    else if constexpr (std::is_floating_point_v<T>)
      v = static_cast<T>(rng_.chance(0.2) ? 0.0 : rng_.uniform() * 1e6 - 5e5);
    else if constexpr (std::is_same_v<T, std::string>)
      v.assign(rng_.below(4) * rng_.below(60), 'x');
    else if constexpr (wire::is_vector<T>) {
      v.resize(rng_.below(4) * rng_.below(3));
      for (auto& e : v) fill(e);
    } else if constexpr (wire::is_map<T>) {
      for (std::uint64_t i = rng_.below(3); i > 0; --i)
        v["key" + std::to_string(rng_.below(9))] = std::string(rng_.below(4), 'v');
    } else if constexpr (wire::is_variant<T>) {
      emplace(v, rng_.below(std::variant_size_v<T>),
              std::make_index_sequence<std::variant_size_v<T>>{});
    } else if constexpr (std::is_same_v<T, std::pair<TokenId, float>>) {
      fill(v.first), fill(v.second);
    } else {
      fields(*this, v);
    }
  }
  template <typename T>
  void operator()(std::uint32_t, const char*, T& v) {
    fill(v);
  }
  template <typename T>
  void always(std::uint32_t, const char*, T& v) {
    fill(v);
  }
  void fixed(std::uint32_t, const char*, std::uint64_t& v) { fill(v); }

 private:
  template <typename T>
  T integer() {
    switch (rng_.below(5)) {
      case 0:
        return 0;
      case 1:
        return std::numeric_limits<T>::max();
      case 2:
        return std::numeric_limits<T>::min();
      case 3:
        return static_cast<T>(rng_.below(300));
      default:
        return static_cast<T>(rng_.next());
    }
  }
  template <typename V, std::size_t... I>
  void emplace(V& v, std::uint64_t which, std::index_sequence<I...>) {
    ((which == I ? fill(v.template emplace<I>()) : void()), ...);
  }
  Rng rng_;
};

}  // namespace infos::test
