// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: the instruction sets of this machine, random vectors and packed
// random matrices with their exact values.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "devices/abi/infos_device.h"
#include "devices/cpu/kernels.h"
#include "devices/cpu/pack.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/random_weights.h"
#include "topology/base/rng.h"

namespace infos::cpu::test {

inline std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avxvnni, Isa::avx512}) {
    if (isa_supported(isa)) all.push_back(isa);
  }
  return all;
}

inline constexpr std::uint32_t kWeightTypes[] = {INFOS_F32,  INFOS_F16,  INFOS_BF16, INFOS_Q8_0,
                                                 INFOS_Q4_0, INFOS_Q4_K, INFOS_Q6_K};

inline std::vector<float> random_floats(std::size_t n, Rng& rng, double amplitude = 1.0) {
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>((rng.uniform() * 2 - 1) * amplitude);
  return v;
}

/// A random [n, k] matrix: bytes as in a file, exact values, panels.
struct Matrix {
  std::vector<std::byte> bytes;
  std::vector<double> values;
  std::vector<std::uint8_t> panels;
  PackedMatrix packed;

  Matrix(std::uint32_t dtype, std::uint32_t n, std::uint32_t k, std::uint64_t seed) {
    bytes = reference::random_weights(dtype, std::uint64_t{n} * k, 0.5, seed);
    values.resize(std::size_t{n} * k);
    reference::dequantise(dtype, bytes, values);
    packed = packed_shape(*weight_kind(dtype), n, k);
    panels.resize(packed.panels * packed.panel_bytes + 64);
    std::uint8_t* to =
        panels.data() + (64 - reinterpret_cast<std::uintptr_t>(panels.data()) % 64) % 64;
    pack_panels(packed, bytes.data(), 0, packed.panels, to);
    packed.data = to;
  }
};

/// True when both hold the same bits.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace infos::cpu::test
