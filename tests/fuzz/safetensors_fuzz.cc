// SPDX-License-Identifier: Apache-2.0
// Any bytes parsed as a safetensors file: an error, or tensors that tile the data exactly. The
// first bit of the input chooses whether the length field is put right, so that the JSON behind it
// is reached.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "devices/engine/checkpoint/hf_names.h"
#include "devices/engine/checkpoint/quant.h"
#include "devices/engine/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* raw = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(raw, raw + size);
  if (bytes.size() > 8 && (data[0] & 1)) {
    // The header ends at the last '}'.
    std::uint64_t length = bytes.size() - 8;
    while (length > 0 && bytes[8 + length - 1] != std::byte{'}'}) --length;
    std::memcpy(bytes.data(), &length, sizeof length);
  }
  const auto read = infos::parse_safetensors(bytes, "fuzz");
  if (!read) {
    if (read.error().message.find("fuzz: ") != 0) std::abort();
    return 0;
  }
  const std::byte* at = read->empty() ? nullptr : read->front().data.data();
  for (const auto& tensor : *read) {
    if (tensor.data.data() != at) std::abort();
    at += tensor.data.size();
    std::uint64_t elements = 1;
    for (const auto dim : tensor.dims) elements *= static_cast<std::uint64_t>(dim);
    if (infos::bytes_of(tensor.dtype, elements) != tensor.data.size()) std::abort();
    (void)infos::canonical_name(tensor.name);
  }
  if (at && at != bytes.data() + bytes.size()) std::abort();
  return 0;
}
