// SPDX-License-Identifier: Apache-2.0
// Writes a SentencePiece BPE vocabulary (pieces and scores) in the form of a Hugging Face
// tokenizer.json: a BPE model with byte fallback whose merges follow from the scores. Pure. Source:
// the layout of Llama 2's published tokenizer.json.
#pragma once

#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos::test {

/// Errors: unsupported, when the vocabulary is not of model "llama".
Result<std::string> tokenizer_json_of(const TokenizerSource::Gguf& vocabulary);

/// `text` as a JSON string, with its quotes.
std::string json_quote(std::string_view text);

}  // namespace infos::test
