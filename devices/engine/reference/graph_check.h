// SPDX-License-Identifier: Apache-2.0
// Whether a graph, a KV pool's shape and a batch keep the contract of the device ABI. What a
// backend refuses, it refuses with the sentence made here. Pure; any thread; trusts nothing but the
// arrays' lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "devices/abi/infos_device.h"

namespace infos::reference {

/// A graph's arrays, copied element by element so that structs of another ABI version are read
/// right.
struct GraphCopy {
  std::vector<infos_tensor> tensors;
  std::vector<infos_op> ops;
  std::uint32_t layer_begin = 0, layer_end = 0, n_layers = 0;
};

/// Empty when `graph` is sound (then `out` holds it), else one sentence.
std::string copy_graph(const infos_graph* graph, GraphCopy* out);
/// The same for a copy that was read from elsewhere.
std::string check_graph(const GraphCopy& graph);

/// What a batch must fit.
struct BatchLimits {
  std::uint32_t max_tokens = 0, max_sequences = 0, max_context = 0;
  std::uint32_t vocab = 0;
  std::uint32_t block_tokens = 0, n_blocks = 0;
};
std::string check_batch(const infos_batch* batch, const BatchLimits& limits);

/// Reads a struct that begins with struct_size: what its writer did not know is zero.
template <typename Struct>
Struct read_struct(const Struct* from) {
  Struct to{};
  const std::size_t n = from->struct_size < sizeof(Struct) ? from->struct_size : sizeof(Struct);
  __builtin_memcpy(&to, from, n);
  return to;
}
/// Writes a struct into a caller's room, no byte beyond it.
template <typename Struct>
void write_struct(const Struct& from, Struct* to) {
  const std::uint32_t room = to->struct_size;
  const std::uint32_t n = room < sizeof(Struct) ? room : static_cast<std::uint32_t>(sizeof(Struct));
  __builtin_memcpy(to, &from, n);
  to->struct_size = n;
}

}  // namespace infos::reference
