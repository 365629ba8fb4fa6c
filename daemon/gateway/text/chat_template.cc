// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/chat_template.h"

#include "daemon/gateway/text/jinja_render.h"

namespace infos {
namespace {

using text::jinja::Value;

constexpr std::size_t kSourceBytesMax = 256 << 10;

class JinjaTemplate final : public ChatTemplate {
 public:
  JinjaTemplate(text::jinja::Template parsed, const ChatTemplateLimits& limits)
      : parsed_(std::move(parsed)), limits_(limits) {}

  Result<std::string> render(const Input& input) const override {
    std::vector<std::pair<std::string, Value>> variables;
    std::vector<Value> messages;
    for (const ChatMessage& message : input.messages) {
      std::vector<std::pair<std::string, Value>> fields = {
          {"role", Value::string(message.role)}, {"content", Value::string(message.content)}};
      if (!message.name.empty()) fields.emplace_back("name", Value::string(message.name));
      messages.push_back(INFOS_TRY(text::jinja::make_dict(std::move(fields))));
    }
    variables.emplace_back("messages", INFOS_TRY(text::jinja::make_list(std::move(messages))));
    variables.emplace_back("add_generation_prompt", Value::boolean(input.add_generation_prompt));
    variables.emplace_back("bos_token", Value::string(input.bos_token));
    variables.emplace_back("eos_token", Value::string(input.eos_token));
    if (!input.extra_json.empty()) {
      const Value extra =
          INFOS_TRY(text::jinja::from_json_text(input.extra_json, "template variables"));
      if (!extra.dict())
        return Error{ErrorCode::invalid_argument, std::string("template variables: found ") +
                                                      extra.kind() + ", want a JSON object"};
      for (const auto& [name, value] : extra.dict()->items) variables.emplace_back(name, value);
    }
    return text::jinja::render(parsed_, std::move(variables), limits_);
  }

 private:
  text::jinja::Template parsed_;
  ChatTemplateLimits limits_;
};

}  // namespace

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view text,
                                                          const ChatTemplateLimits& limits) {
  if (text.size() > kSourceBytesMax)
    return Error{ErrorCode::resource_exhausted, "chat template: " + std::to_string(text.size()) +
                                                    " bytes, want at most " +
                                                    std::to_string(kSourceBytesMax)};
  text::jinja::Template parsed = INFOS_TRY(text::jinja::parse(text, {limits.depth}));
  return std::unique_ptr<ChatTemplate>(std::make_unique<JinjaTemplate>(std::move(parsed), limits));
}

}  // namespace infos
