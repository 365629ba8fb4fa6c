// SPDX-License-Identifier: Apache-2.0
// Chat templates: a sandboxed subset of Jinja, with bounds on steps, depth and output. Immutable
// after parse; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos {

struct ChatMessage {
  std::string role;
  std::string content;
  std::string name;
};

struct ChatTemplateLimits {
  std::uint64_t steps = 1'000'000;
  std::uint32_t depth = 64;
  std::size_t output_bytes = 8u << 20;
};

class ChatTemplate {
 public:
  /// Errors: invalid_argument with line and column; unsupported, naming the construct.
  static Result<std::unique_ptr<ChatTemplate>> parse(std::string_view text,
                                                     const ChatTemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;

  struct Input {
    std::vector<ChatMessage> messages;
    bool add_generation_prompt = true;
    std::string bos_token, eos_token;
    std::string extra_json;  ///< further top-level variables as a JSON object
                             ///< (`chat_template_kwargs`, `tools`); may be empty
  };
  /// Errors: invalid_argument when the template raises or reads what is not there,
  /// resource_exhausted at a limit.
  virtual Result<std::string> render(const Input& input) const = 0;
};

}  // namespace infos
