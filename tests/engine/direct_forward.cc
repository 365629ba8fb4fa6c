// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/direct_forward.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <string>

#include "devices/engine/reference/dequantise.h"
#include "topology/base/check.h"

namespace infos::test {

namespace {

using Vector = std::vector<double>;

class Forward {
 public:
  explicit Forward(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), c_(checkpoint.config()) {}

  Vector run(const std::vector<TokenId>& tokens) {
    const Vector embedding = weight("token_embd.weight");
    std::vector<Vector> x;
    for (const TokenId token : tokens) {
      const auto at = embedding.begin() + static_cast<std::ptrdiff_t>(token) * c_.hidden;
      x.emplace_back(at, at + c_.hidden);
    }
    for (std::uint32_t layer = 0; layer < c_.layers; ++layer) {
      blk_ = "blk." + std::to_string(layer) + ".";
      attend(x);
      for (Vector& row : x) add(row, feed_forward(norm(row, blk_ + "ffn_norm.weight")));
    }
    Vector logits;
    for (const Vector& row : x) {
      const Vector y = times(norm(row, "output_norm.weight"),
                             c_.tied_embeddings ? "token_embd.weight" : "output.weight");
      logits.insert(logits.end(), y.begin(), y.end());
    }
    return logits;
  }

 private:
  Vector weight(const std::string& name) const {
    const TensorView* view = checkpoint_.find(name);
    INFOS_CHECK(view != nullptr);
    std::size_t n = 1;
    for (const std::int64_t dim : view->dims) n *= static_cast<std::size_t>(dim);
    Vector out(n);
    reference::dequantise(static_cast<std::uint32_t>(view->dtype), view->data, out);
    return out;
  }
  static void add(Vector& a, const Vector& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  }
  static Vector multiply(const Vector& x, const double* w, std::size_t rows) {
    Vector y(rows, 0.0);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += w[r * x.size() + i] * x[i];
    return y;
  }
  Vector times(const Vector& x, const std::string& name) const {
    const Vector w = weight(name);
    return multiply(x, w.data(), w.size() / x.size());
  }
  Vector norm(const Vector& x, const std::string& name) const {
    const Vector w = weight(name);
    double mean = 0;
    for (const double v : x) mean += v * v / static_cast<double>(x.size());
    Vector y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = w[i] * x[i] / std::sqrt(mean + c_.norm_epsilon);
    return y;
  }

  double frequency(std::size_t pair) const {
    const double f = std::pow(c_.rope_theta, -2.0 * static_cast<double>(pair) / c_.head_dim);
    const RopeScaling& s = c_.rope_scaling;
    if (s.kind == RopeScaling::Kind::none) return f;
    if (s.kind == RopeScaling::Kind::linear) return f / s.factor;
    // llama3: how many turns fit into the original context decides.
    const double turns = s.original_context * f / (2 * std::numbers::pi);
    const double mix = std::clamp(
        (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    return f * (mix + (1 - mix) / s.factor);
  }

  /// Heads of one row: bias, norm and rotation as the family has them.
  std::vector<Vector> heads(const Vector& x, const std::string& name, std::uint32_t n,
                            std::size_t position) const {
    Vector y = times(x, blk_ + name + ".weight");
    if (c_.qkv_bias) add(y, weight(blk_ + name + ".bias"));
    std::vector<Vector> out;
    for (std::uint32_t h = 0; h < n; ++h) {
      Vector head(y.begin() + h * c_.head_dim, y.begin() + (h + 1) * c_.head_dim);
      if (name != "attn_v") {
        if (c_.qk_norm) head = norm(head, blk_ + name + "_norm.weight");
        for (std::size_t i = 0; i < c_.head_dim / 2; ++i) {
          double& a = head[c_.rope_adjacent_pairs ? 2 * i : i];
          double& b = head[c_.rope_adjacent_pairs ? 2 * i + 1 : i + c_.head_dim / 2];
          const std::complex<double> z =
              std::complex(a, b) * std::polar(1.0, static_cast<double>(position) * frequency(i));
          a = z.real();
          b = z.imag();
        }
      }
      out.push_back(std::move(head));
    }
    return out;
  }

  void attend(std::vector<Vector>& x) const {
    std::vector<std::vector<Vector>> k, v;
    for (std::size_t p = 0; p < x.size(); ++p) {
      const Vector h = norm(x[p], blk_ + "attn_norm.weight");
      const auto q = heads(h, "attn_q", c_.heads, p);
      k.push_back(heads(h, "attn_k", c_.kv_heads, p));
      v.push_back(heads(h, "attn_v", c_.kv_heads, p));
      Vector joined;
      for (std::uint32_t head = 0; head < c_.heads; ++head) {
        const std::size_t shared = head * c_.kv_heads / c_.heads;
        Vector out(c_.head_dim, 0.0);
        double total = 0;
        for (std::size_t j = 0; j <= p; ++j) {
          if (c_.window > 0 && j + c_.window <= p) continue;
          double dot = 0;
          for (std::size_t i = 0; i < c_.head_dim; ++i) dot += q[head][i] * k[j][shared][i];
          const double e = std::exp(dot / std::sqrt(static_cast<double>(c_.head_dim)));
          total += e;
          for (std::size_t i = 0; i < c_.head_dim; ++i) out[i] += e * v[j][shared][i];
        }
        for (const double o : out) joined.push_back(o / total);
      }
      add(x[p], times(joined, blk_ + "attn_output.weight"));
    }
  }

  Vector gated(const Vector& x, const Vector& gate, const Vector& up, const Vector& down) const {
    const std::size_t f = gate.size() / x.size();
    Vector g = multiply(x, gate.data(), f);
    const Vector u = multiply(x, up.data(), f);
    for (std::size_t i = 0; i < f; ++i) g[i] *= u[i] / (1 + std::exp(-g[i]));
    return multiply(g, down.data(), x.size());
  }

  Vector expert_weight(const std::string& part, std::size_t e) const {
    const std::string apart = blk_ + "ffn_" + part + "." + std::to_string(e) + ".weight";
    if (checkpoint_.find(apart) != nullptr) return weight(apart);
    const Vector all = weight(blk_ + "ffn_" + part + "_exps.weight");
    const std::size_t n = all.size() / c_.experts;
    return {all.begin() + static_cast<std::ptrdiff_t>(e * n),
            all.begin() + static_cast<std::ptrdiff_t>((e + 1) * n)};
  }

  Vector feed_forward(const Vector& x) const {
    if (c_.experts == 0)
      return gated(x, weight(blk_ + "ffn_gate.weight"), weight(blk_ + "ffn_up.weight"),
                   weight(blk_ + "ffn_down.weight"));
    Vector share = times(x, blk_ + "ffn_gate_inp.weight");
    double all = 0;
    for (double& s : share) all += s = std::exp(s);
    std::vector<std::pair<double, std::size_t>> best;
    for (std::size_t e = 0; e < share.size(); ++e) best.emplace_back(share[e] / all, e);
    std::sort(best.rbegin(), best.rend());
    best.resize(c_.experts_per_token);
    double kept = 0;
    for (const auto& [s, e] : best) kept += s;
    Vector y(x.size(), 0.0);
    for (const auto& [s, e] : best) {
      Vector out =
          gated(x, expert_weight("gate", e), expert_weight("up", e), expert_weight("down", e));
      for (double& o : out) o *= c_.renormalise_experts ? s / kept : s;
      add(y, out);
    }
    return y;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& c_;
  std::string blk_;
};

}  // namespace

std::vector<double> direct_forward(const Checkpoint& checkpoint,
                                   const std::vector<TokenId>& tokens) {
  return Forward(checkpoint).run(tokens);
}

}  // namespace infos::test
