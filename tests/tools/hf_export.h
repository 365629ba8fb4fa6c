// SPDX-License-Identifier: Apache-2.0
// Turns an opened checkpoint into an equivalent Hugging Face directory, so that one set of weights
// can be read through both readers. For tests: whole tensors are held in memory. One thread.
#pragma once

#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"

namespace infos::test {

enum class Shards { one, two };

struct HfExportOptions {
  Shards shards = Shards::one;
};

/// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and the
/// weights into `directory`, which is made when missing. Rotary pairs that were permuted are put
/// back in halves order. Errors: unsupported (block-quantised weights, a tokenizer that is not
/// SentencePiece BPE), io.
Status export_hugging_face(const Checkpoint& checkpoint, const std::string& directory,
                           const HfExportOptions& options = {});

}  // namespace infos::test
