// SPDX-License-Identifier: Apache-2.0
// Makes model files of real shape with random weights, for benchmarks and tests: a GGUF file with a
// working byte-level tokenizer. Streams, so a model may be larger than memory; the same options
// give the same bytes on every machine. Runs on the caller's thread. Never pretends to be trained:
// its text means nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "devices/engine/checkpoint.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

struct SynthOptions {
  std::string shape;         ///< a name of shape_names()
  DType dtype = DType::f16;  ///< of the matrices: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k
  std::string path;          ///< replaced as a whole when done
  std::uint64_t seed = 1;
  std::function<void(Bytes done, Bytes total)>
      progress;  ///< called about every 16 MiB and at the end; may be empty
};

/// The dtype that rows of this many elements get: `wanted`, or, where its blocks do not fit, q8_0
/// for q6_k and q4_0 for q4_k. Requires: rows of a multiple of 32 elements.
DType synth_row_dtype(DType wanted, std::int64_t row_elements);

/// A byte-level BPE vocabulary of exactly `vocab` tokens: the 256 bytes, a few merges, the special
/// tokens of the family, and words that no text reaches but a random model emits. Requires: vocab
/// >= 320.
TokenizerSource synth_tokenizer(ModelFamily family, std::uint32_t vocab);

/// Errors: not_found (shape), unsupported (dtype), io; each names what it is about.
Status synth_model(const SynthOptions& options);

}  // namespace infos
