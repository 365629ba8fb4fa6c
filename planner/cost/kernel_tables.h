// SPDX-License-Identifier: Apache-2.0
// KernelTables: measured times of the kernels of one device, as CSV tables give them, read by size.
// Knows nothing of models. Where there is no table it says so, and the caller falls back on a
// roofline. Pure values: text in, never a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cost/curve.h"
#include "topology/base/result.h"

namespace infos {

/// How numbers are held in a matrix product.
enum class MathType : std::uint8_t { bf16, f8, f8_block, f4, i4_weights };
const char* to_string(MathType type);

/// y[m, n] = x[m, k] w[n, k]^T
struct GemmSize {
  double m = 1, n = 1, k = 1;
};

/// Attention of one layer on one device: `batch` sequences.
struct AttentionSize {
  double batch = 1;
  double tokens = 1;  ///< context: of each prompt; generation: in each sequence's KV
  double heads = 1, kv_heads = 1;
};

/// A layer of experts, all devices of its group together; `tokens` is of the whole group.
struct MoeSize {
  double tokens = 1;
  double hidden = 1, inter = 1, top_k = 1, experts = 1;
  double tp = 1, ep = 1;
};

/// What devices say to each other at once; bytes held by one of them.
enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
struct CollectiveSize {
  Collective op = Collective::all_reduce;
  double devices = 2;
  double bytes = 1;
};

class KernelTables {
 public:
  /// One table each; the header names the columns, of which those that are not needed are ignored.
  /// `name` is for errors. Errors: invalid_argument as "name:line: what".
  Status add_gemm(std::string_view name, std::string_view csv);
  Status add_context_attention(std::string_view name, std::string_view csv);
  Status add_generation_attention(std::string_view name, std::string_view csv);
  Status add_moe(std::string_view name, std::string_view csv);
  Status add_collectives(std::string_view name, std::string_view csv);

  // Units: s. None: no table that fits.
  std::optional<double> gemm(MathType type, const GemmSize& size) const;
  std::optional<double> context_attention(const AttentionSize& size) const;
  std::optional<double> generation_attention(const AttentionSize& size) const;
  std::optional<double> moe(MathType type, const MoeSize& size) const;
  std::optional<double> collective(const CollectiveSize& size) const;

 private:
  struct GemmGrid {
    std::vector<double> ns, ks;
    std::map<std::pair<double, double>, LogCurve> columns;  ///< (n, k) -> time over m
  };
  /// By (heads, kv_heads): by batch, the time over tokens.
  using AttentionTable = std::map<std::pair<double, double>, std::map<double, LogCurve>>;
  struct MoeKey {
    double hidden, inter, top_k, experts, tp, ep;
    friend auto operator<=>(const MoeKey&, const MoeKey&) = default;
  };
  static Status add_attention(AttentionTable& table, std::string_view name, std::string_view csv);
  static std::optional<double> attention(const AttentionTable& table, const AttentionSize& size);

  std::map<MathType, GemmGrid> gemm_;
  AttentionTable context_, generation_;
  std::map<MathType, std::map<MoeKey, LogCurve>> moe_;
  std::map<std::pair<Collective, double>, LogCurve> collectives_;
};

}  // namespace infos
