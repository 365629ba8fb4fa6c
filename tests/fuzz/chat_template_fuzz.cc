// SPDX-License-Identifier: Apache-2.0
// Fuzz target: any bytes as a chat template, rendered over a small conversation with tools, under
// tight limits. The input is "template NUL extra variables as JSON". Every outcome but a crash, a
// hang or too long an output is fine.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/gateway/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = input.find('\0');
  infos::ChatTemplateLimits limits;
  limits.steps = 20'000;
  limits.output_bytes = 64 << 10;
  const auto parsed = infos::ChatTemplate::parse(input.substr(0, cut), limits);
  if (!parsed.ok()) return 0;
  infos::ChatTemplate::Input values;
  values.messages = {{"system", "Be brief.", ""},
                     {"user", " Hi <think>a</think> ", "ann"},
                     {"assistant", "Hello!", ""}};
  values.bos_token = "<s>";
  values.eos_token = "</s>";
  values.extra_json = cut == std::string_view::npos
                          ? R"({"tools":[{"name":"f","parameters":{"x":1.5}}],"flag":true})"
                          : std::string(input.substr(cut + 1));
  const auto out = parsed.value()->render(values);
  if (out.ok() && out->size() > limits.output_bytes) std::abort();
  return 0;
}
