// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/memory_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/random_weights.h"
#include "topology/base/check.h"

namespace infos::test {

const TensorView* MemoryCheckpoint::find(std::string_view name) const {
  const auto it = std::find_if(views_.begin(), views_.end(),
                               [&](const TensorView& v) { return v.name == name; });
  return it == views_.end() ? nullptr : &*it;
}

void MemoryCheckpoint::add(const std::string& name, DType dtype, std::vector<std::int64_t> dims,
                           std::vector<std::byte> data) {
  storage_.push_back(std::move(data));
  views_.push_back({name, dtype, std::move(dims), storage_.back()});
}

void MemoryCheckpoint::add_f32(const std::string& name, std::vector<std::int64_t> dims,
                               const float* values) {
  std::size_t n = 1;
  for (const std::int64_t dim : dims) n *= static_cast<std::size_t>(dim);
  std::vector<std::byte> data(n * sizeof(float));
  std::memcpy(data.data(), values, data.size());
  add(name, DType::f32, std::move(dims), std::move(data));
}

void MemoryCheckpoint::remove(const std::string& name) {
  std::erase_if(views_, [&](const TensorView& v) { return v.name == name; });
}

TensorView& MemoryCheckpoint::view(const std::string& name) {
  const auto it = std::find_if(views_.begin(), views_.end(),
                               [&](const TensorView& v) { return v.name == name; });
  INFOS_CHECK(it != views_.end());
  return *it;
}

namespace {

ModelConfig tiny_config(const std::string& name, DType dtype) {
  ModelConfig c;
  const bool wide = reference::block_of(static_cast<std::uint32_t>(dtype)).elements > 32;
  c.name = name;
  c.layers = 2;
  c.hidden = wide ? 256 : 64;
  c.ffn_hidden = wide ? 256 : 96;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = c.hidden / c.heads;
  c.vocab = 83;
  c.max_context = 256;
  if (name == "llama2") c.kv_heads = 4, c.rope_adjacent_pairs = true;
  if (name == "llama3") {
    c.rope_theta = 500000;
    c.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 32, {}};
  }
  if (name == "mistral") c.family = ModelFamily::mistral, c.window = 7;
  if (name == "mixtral") c.family = ModelFamily::mistral, c.experts = 4, c.experts_per_token = 2;
  if (name == "qwen2") c.family = ModelFamily::qwen2, c.qkv_bias = true, c.tied_embeddings = true;
  if (name.starts_with("qwen3")) {
    c.family = ModelFamily::qwen3;
    c.qk_norm = true;
    c.norm_epsilon = 1e-6;
    c.head_dim = wide ? 128 : 32;  // not hidden / heads
  }
  if (name == "qwen3-moe") {
    c.experts = 8;
    c.experts_per_token = 3;
    c.renormalise_experts = false;
    c.ffn_hidden = wide ? 256 : 32;
  }
  if (name.starts_with("wide")) {  // quarters of every width are whole blocks of 32, halves of 256
    c.heads = 8;
    c.kv_heads = 4;
    c.head_dim = wide ? 64 : 32;
    c.ffn_hidden = wide ? 512 : 128;
    c.tied_embeddings = name == "wide-tied";
    if (name == "wide-tied") c.qkv_bias = true, c.family = ModelFamily::qwen2;
    if (name == "wide-moe") c.experts = 4, c.experts_per_token = 2;
    if (name == "wide-moe") c.family = ModelFamily::mistral;
  }
  return c;
}

/// Adds random tensors to one checkpoint.
class TinyMaker {
 public:
  TinyMaker(MemoryCheckpoint& out, DType dtype, std::uint64_t seed)
      : out_(out), dtype_(dtype), rng_(seed) {}

  void matrix(const std::string& name, std::vector<std::int64_t> dims) {
    std::uint64_t n = 1;
    for (const std::int64_t dim : dims) n *= static_cast<std::uint64_t>(dim);
    const double amplitude = std::sqrt(3.0 / static_cast<double>(dims.back()));
    out_.add(name, dtype_, dims,
             reference::random_weights(static_cast<std::uint32_t>(dtype_), n,
                                       name == "token_embd.weight" ? 1.0 : amplitude, rng_.next()));
  }
  void vector(const std::string& name, std::int64_t n, double centre) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& v : values) v = static_cast<float>(centre + 0.4 * (rng_.uniform() - 0.5));
    out_.add_f32(name, {n}, values.data());
  }

 private:
  MemoryCheckpoint& out_;
  DType dtype_;
  Rng rng_;
};

void add_layer(TinyMaker& make, const ModelConfig& c, const std::string& blk, bool experts_apart) {
  const std::int64_t d = c.hidden, f = c.ffn_hidden, e = c.experts;
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim,
                     kv = std::int64_t{c.kv_heads} * c.head_dim;
  make.vector(blk + "attn_norm.weight", d, 1);
  make.matrix(blk + "attn_q.weight", {q, d});
  make.matrix(blk + "attn_k.weight", {kv, d});
  make.matrix(blk + "attn_v.weight", {kv, d});
  make.matrix(blk + "attn_output.weight", {d, q});
  if (c.qkv_bias) {
    make.vector(blk + "attn_q.bias", q, 0);
    make.vector(blk + "attn_k.bias", kv, 0);
    make.vector(blk + "attn_v.bias", kv, 0);
  }
  if (c.qk_norm) {
    make.vector(blk + "attn_q_norm.weight", c.head_dim, 1);
    make.vector(blk + "attn_k_norm.weight", c.head_dim, 1);
  }
  make.vector(blk + "ffn_norm.weight", d, 1);
  if (e == 0) {
    make.matrix(blk + "ffn_gate.weight", {f, d});
    make.matrix(blk + "ffn_up.weight", {f, d});
    make.matrix(blk + "ffn_down.weight", {d, f});
    return;
  }
  make.matrix(blk + "ffn_gate_inp.weight", {e, d});
  if (!experts_apart) {
    make.matrix(blk + "ffn_gate_exps.weight", {e, f, d});
    make.matrix(blk + "ffn_up_exps.weight", {e, f, d});
    make.matrix(blk + "ffn_down_exps.weight", {e, d, f});
    return;
  }
  for (std::int64_t i = 0; i < e; ++i) {
    make.matrix(blk + "ffn_gate." + std::to_string(i) + ".weight", {f, d});
    make.matrix(blk + "ffn_up." + std::to_string(i) + ".weight", {f, d});
    make.matrix(blk + "ffn_down." + std::to_string(i) + ".weight", {d, f});
  }
}

}  // namespace

std::unique_ptr<MemoryCheckpoint> tiny_model(const std::string& name, DType dtype,
                                             std::uint64_t seed) {
  auto out = std::make_unique<MemoryCheckpoint>(tiny_config(name, dtype));
  const ModelConfig& c = out->config();
  TinyMaker make(*out, dtype, seed);
  make.matrix("token_embd.weight", {c.vocab, c.hidden});
  for (std::uint32_t i = 0; i < c.layers; ++i)
    add_layer(make, c, "blk." + std::to_string(i) + ".", name == "qwen3-moe");
  make.vector("output_norm.weight", c.hidden, 1);
  if (!c.tied_embeddings) make.matrix("output.weight", {c.vocab, c.hidden});
  return out;
}

std::unique_ptr<MemoryCheckpoint> read_llama2c(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::int32_t header[7];  // dim, hidden, layers, heads, kv heads, vocab, context
  if (!file.read(reinterpret_cast<char*>(header), sizeof header)) return nullptr;
  ModelConfig c;
  c.name = "stories260K";
  c.hidden = static_cast<std::uint32_t>(header[0]);
  c.ffn_hidden = static_cast<std::uint32_t>(header[1]);
  c.layers = static_cast<std::uint32_t>(header[2]);
  c.heads = static_cast<std::uint32_t>(header[3]);
  c.kv_heads = static_cast<std::uint32_t>(header[4]);
  c.vocab = static_cast<std::uint32_t>(header[5]);
  c.max_context = static_cast<std::uint32_t>(header[6]);
  c.head_dim = c.hidden / c.heads;
  c.rope_adjacent_pairs = true;
  c.tied_embeddings = true;
  c.bos = 1;
  c.eos = {2};
  auto out = std::make_unique<MemoryCheckpoint>(c);
  const auto read = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    out->add_f32(name, rows == 1 ? std::vector<std::int64_t>{columns} : std::vector{rows, columns},
                 values.data());
  };
  const std::int64_t d = c.hidden, f = c.ffn_hidden, kv = std::int64_t{c.kv_heads} * c.head_dim;
  read("token_embd.weight", c.vocab, d);
  const struct {
    const char* name;
    std::int64_t rows, columns;
  } parts[] = {{"attn_norm", 1, d}, {"attn_q", d, d},      {"attn_k", kv, d},
               {"attn_v", kv, d},   {"attn_output", d, d}, {"ffn_norm", 1, d},
               {"ffn_gate", f, d},  {"ffn_down", d, f},    {"ffn_up", f, d}};
  for (const auto& part : parts)
    for (std::uint32_t i = 0; i < c.layers; ++i)
      read("blk." + std::to_string(i) + "." + part.name + ".weight", part.rows, part.columns);
  read("output_norm.weight", 1, d);
  return file ? std::move(out) : nullptr;
}

Llama2cTokenizer::Llama2cTokenizer(const std::string& path, std::size_t vocab) {
  std::ifstream file(path, std::ios::binary);
  std::int32_t longest = 0;
  file.read(reinterpret_cast<char*>(&longest), sizeof longest);
  for (std::size_t i = 0; i < vocab && file; ++i) {
    float score = 0;
    std::int32_t length = 0;
    file.read(reinterpret_cast<char*>(&score), sizeof score);
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string piece(static_cast<std::size_t>(length), ' ');
    file.read(piece.data(), length);
    ids_.emplace(piece, static_cast<TokenId>(i));
    pieces_.push_back(piece);
    scores_.push_back(score);
  }
}

std::vector<TokenId> Llama2cTokenizer::encode(const std::string& text) const {
  std::vector<TokenId> out = {1};
  if (text.empty()) return out;
  for (const char c : " " + text) out.push_back(ids_.at(std::string(1, c)));
  for (;;) {
    std::size_t best = 0;
    TokenId merged = -1;
    for (std::size_t i = 1; i + 1 < out.size(); ++i) {
      const auto it = ids_.find(pieces_[static_cast<std::size_t>(out[i])] +
                                pieces_[static_cast<std::size_t>(out[i + 1])]);
      if (it == ids_.end()) continue;
      if (merged >= 0 && scores_[static_cast<std::size_t>(it->second)] <=
                             scores_[static_cast<std::size_t>(merged)])
        continue;
      best = i;
      merged = it->second;
    }
    if (merged < 0) return out;
    out[best] = merged;
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::string Llama2cTokenizer::piece(TokenId previous, TokenId token) const {
  std::string text = pieces_[static_cast<std::size_t>(token)];
  if (previous == 1 && text.starts_with(' ')) text.erase(0, 1);
  if (text.size() == 6 && text.starts_with("<0x"))
    return std::string(1, static_cast<char>(std::stoi(text.substr(3, 2), nullptr, 16)));
  return text;
}

}  // namespace infos::test
