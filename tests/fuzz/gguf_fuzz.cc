// SPDX-License-Identifier: Apache-2.0
// Any bytes opened as a GGUF checkpoint: an error, or a model whose views can all be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "devices/engine/checkpoint/gguf_checkpoint.h"
#include "devices/engine/checkpoint/inspect.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  const auto opened = infos::open_gguf(infos::FileBytes::own({bytes, bytes + size}), "fuzz");
  if (!opened) {
    if (opened.error().message.find("fuzz: ") != 0) std::abort();
    return 0;
  }
  if (!(*opened)->config().validate().ok()) std::abort();
  unsigned sum = 0;
  for (const auto& tensor : (*opened)->tensors())
    for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
  return to_text(infos::summarise(**opened)).empty() && sum == 1 ? 1 : 0;
}
