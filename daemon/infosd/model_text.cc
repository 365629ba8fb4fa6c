// SPDX-License-Identifier: Apache-2.0
#include "daemon/infosd/model_text.h"

#include <utility>

#include "devices/engine/checkpoint.h"
#include "topology/base/log.h"

namespace infos {

Result<ServedModel> load_served_model(const std::string& name, const std::string& source,
                                      std::uint32_t max_context) {
  const std::unique_ptr<Checkpoint> checkpoint = INFOS_TRY(open_checkpoint(source));
  const TokenizerSource& text = checkpoint->tokenizer();
  ServedModel model;
  model.name = name;
  model.tokenizer = INFOS_TRY(make_tokenizer(text));
  model.bos_token = text.bos_token;
  model.eos_token = text.eos_token;
  model.generation = checkpoint->generation();
  model.config = checkpoint->config();
  if (max_context != 0) model.config.max_context = max_context;
  if (!text.chat_template.empty()) {
    auto parsed = ChatTemplate::parse(text.chat_template);
    if (parsed.ok())
      model.chat_template = *std::move(parsed);
    else
      log_warn("infosd", "the chat template cannot be used",
               {{"model", name}, {"why", parsed.error().message}});
  }
  return model;
}

}  // namespace infos
