// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/requantise.h"

#include <vector>

#include "devices/engine/checkpoint/gguf_export.h"
#include "devices/engine/checkpoint/quant.h"
#include "devices/engine/checkpoint/synth.h"

namespace infos::test {
namespace {

std::size_t elements_of(const TensorView& tensor) {
  std::size_t elements = 1;
  for (const auto dim : tensor.dims) elements *= static_cast<std::size_t>(dim);
  return elements;
}

DType target(const TensorView& tensor, DType wanted) {
  const bool is_router = tensor.name.find("ffn_gate_inp") != std::string::npos;
  if (tensor.dims.size() < 2 || is_router) return DType::f32;
  const DType fitting = synth_row_dtype(wanted, tensor.dims.back());
  return tensor.dims.back() % block_shape(fitting).elements == 0 ? fitting : DType::f16;
}

}  // namespace

Status requantise(const Checkpoint& checkpoint, DType dtype, const std::string& path) {
  GgufHeader header = INFOS_TRY(gguf_header(checkpoint.config(), checkpoint.tokenizer(), dtype));
  for (const auto& tensor : checkpoint.tensors())
    header.add_tensor(tensor.name, target(tensor, dtype), tensor.dims);
  // A file that has the table as a tensor already brings it along.
  const auto divisors = rope_divisors(checkpoint.config());
  const auto count = static_cast<std::int64_t>(divisors.size());
  const bool adds_divisors = count > 0 && !checkpoint.find("rope_freqs.weight");
  if (adds_divisors) header.add_tensor("rope_freqs.weight", DType::f32, std::span(&count, 1));
  auto writer = INFOS_TRY(GgufWriter::create(path, header));
  for (const auto& tensor : checkpoint.tensors()) {
    std::vector<float> values(elements_of(tensor));
    dequantise(tensor.dtype, tensor.data, values);
    const DType to = target(tensor, dtype);
    std::vector<std::byte> raw(bytes_of(to, values.size()));
    quantise(to, values, raw);
    INFOS_TRY(writer.append(raw));
  }
  if (adds_divisors) INFOS_TRY(writer.append(std::as_bytes(std::span(divisors))));
  return writer.commit();
}

}  // namespace infos::test
