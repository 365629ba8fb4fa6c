// SPDX-License-Identifier: Apache-2.0
// Any text read as each of the JSON files of a Hugging Face directory: an error that names the
// file, or values that can be checked.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "devices/engine/checkpoint/hf_config.h"

namespace {
template <typename T>
void expect_named(const infos::Result<T>& read) {
  if (!read.ok() && read.error().message.find("fuzz: ") != 0) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = infos::hf_config(text, "fuzz");
  expect_named(config);
  if (config.ok()) (void)config->validate();
  expect_named(infos::hf_generation(text, "fuzz"));
  expect_named(infos::hf_tokenizer_config(text, "fuzz"));
  return 0;
}
