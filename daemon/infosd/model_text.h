// SPDX-License-Identifier: Apache-2.0
// Opens the text side of a model (tokenizer, chat template, limits) for the gateway. Any thread;
// may take a second.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/gateway/gateway.h"
#include "topology/base/result.h"

namespace infos {

/// `max_context`: tokens of one sequence as the spec wants them; 0: what the model says.
/// A chat template that this build cannot read is logged and left out; completions still work.
/// Errors: those of open_checkpoint and make_tokenizer, naming file and field.
Result<ServedModel> load_served_model(const std::string& name, const std::string& source,
                                      std::uint32_t max_context);

}  // namespace infos
