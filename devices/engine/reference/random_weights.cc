// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/random_weights.h"

#include "devices/engine/reference/dequantise.h"
#include "topology/base/check.h"
#include "topology/base/rng.h"

namespace infos::reference {

namespace {
/// The scales of one random block, so that its elements lie in about [-a, a] with mean 0.
void set_scales(std::uint32_t dtype, double a, std::byte* block) {
  switch (dtype) {
    case INFOS_Q8_0:
      return store_element(INFOS_F16, a / 127, block);
    case INFOS_Q4_0:
      return store_element(INFOS_F16, a / 8, block);
    case INFOS_Q4_K:  // quants 0..15 times scales 0..63, less 7.5 times as much a minimum
      store_element(INFOS_F16, a / 300, block);
      return store_element(INFOS_F16, 7.5 * a / 300, block + 2);
    case INFOS_Q6_K:
      return store_element(INFOS_F16, a / (32 * 90), block + 208);
    default:
      return;
  }
}
}  // namespace

std::vector<std::byte> random_weights(std::uint32_t dtype, std::uint64_t elements, double amplitude,
                                      std::uint64_t seed) {
  Rng rng(seed);
  const Block block = block_of(dtype);
  std::vector<std::byte> out(dtype_bytes(dtype, elements));
  INFOS_CHECK(!out.empty());
  for (std::size_t at = 0; at < out.size(); at += block.bytes) {
    if (block.elements == 1) {
      store_element(dtype, (2 * rng.uniform() - 1) * amplitude, &out[at]);
      continue;
    }
    for (std::size_t i = 0; i < block.bytes; ++i)
      out[at + i] = static_cast<std::byte>(rng.below(256));
    set_scales(dtype, amplitude, &out[at]);
  }
  return out;
}

}  // namespace infos::reference
