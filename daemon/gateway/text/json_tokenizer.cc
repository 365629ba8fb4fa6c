// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/text_tokenizer.h"

namespace infos::text {

Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const TokenizerSource&) {
  return Error{ErrorCode::unsupported, "tokenizer.json is not supported yet; use a GGUF file"};
}

}  // namespace infos::text
