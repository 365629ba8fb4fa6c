// SPDX-License-Identifier: Apache-2.0
// A model's files, opened by memory map: config, weights by canonical name, tokenizer material,
// chat template. Reads Hugging Face directories and GGUF files; nothing is copied, every bound is
// checked at open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"
#include "topology/model/model_config.h"

namespace infos {

/// Same values as infos_dtype of the device ABI.
enum class DType : std::uint32_t {
  none = 0,
  f32 = 1,
  f16 = 2,
  bf16 = 3,
  i8 = 4,
  i32 = 5,
  f64 = 6,
  q8_0 = 16,
  q4_0 = 17,
  q4_k = 18,
  q6_k = 19
};
const char* to_string(DType dtype);
/// Elements and bytes of one block; 1 element for plain types.
struct BlockShape {
  std::uint32_t elements = 1;
  std::uint32_t bytes = 0;
};
BlockShape block_shape(DType dtype);

/// A weight as it lies in the file. Dims are row-major, outermost first (GGUF's are reversed on
/// reading). Experts come as one stacked tensor, blk.N.ffn_gate_exps.weight [experts, out, in]
/// (newer GGUF), or one by one, blk.N.ffn_gate.E.weight [out, in] for E = 0 .. experts - 1 (Hugging
/// Face, older GGUF), and likewise ffn_up and ffn_down: never both in one checkpoint's layer; who
/// loads stacks them. Router: blk.N.ffn_gate_inp.weight [experts, in]. Experts come either stacked,
/// as GGUF has them (blk.N.ffn_{gate,up,down}_exps.weight, [experts, out, in]), or one by one as
/// Hugging Face has them: blk.N.ffn_{gate,up,down}.E.weight, [out, in], E from 0; the engine stacks
/// those at load. The router is blk.N.ffn_gate_inp.weight, [experts, hidden].
struct TensorView {
  std::string name;  ///< canonical, GGUF-style: token_embd.weight, blk.N.attn_q.weight,
                     ///< output_norm.weight, output.weight, ...
  DType dtype = DType::none;
  std::vector<std::int64_t> dims;
  std::span<const std::byte> data;
};

/// What a tokenizer is made of, whatever file it came from. At most one of the two forms is filled;
/// none: the checkpoint has no tokenizer that we can read.
struct TokenizerSource {
  std::string tokenizer_json;  ///< Hugging Face tokenizer.json, whole text
  struct Gguf {
    std::string model;  ///< "llama" (SentencePiece BPE), "gpt2" (byte-level BPE), "t5" (unigram)
    std::string pre;    ///< pre-tokenizer name: "llama-bpe", "qwen2", "default", ...
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<std::int32_t>
        types;  ///< 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    std::vector<std::string> merges;
    bool add_bos = false;
    bool add_eos = false;
    bool add_space_prefix = true;
    std::int32_t bos = -1, eos = -1, unknown = -1, padding = -1;
  };
  std::optional<Gguf> gguf;
  std::string chat_template;         ///< Jinja text, empty: none
  std::string bos_token, eos_token;  ///< texts that templates refer to
  bool add_bos = false;  ///< GGUF, or add_bos_token of tokenizer_config.json; false there when it
                         ///< does not say: tokenizer.json's post_processor then decides
};

/// Defaults that the model's makers suggest (generation_config.json).
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int32_t> top_k;
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const TokenizerSource& tokenizer() const = 0;
  virtual const GenerationDefaults& generation() const = 0;
  /// Null when there is none of that name. The view lives as long as the checkpoint.
  virtual const TensorView* find(std::string_view canonical_name) const = 0;
  virtual const std::vector<TensorView>& tensors() const = 0;
  virtual std::string path() const = 0;
};

/// Opens a directory with config.json or a .gguf file. What comes back is checked as a whole: the
/// configuration is valid, and the tensors are exactly those of its family, each with its shape.
/// Errors: not_found, io, corrupt, unsupported, invalid_argument: each names the file and the
/// field.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path);

}  // namespace infos
