// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_tables.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/cost/csv.h"

namespace infos {
namespace {

constexpr double kMilliseconds = 1e-3;  // tables are in ms

std::optional<MathType> math_type(std::string_view word) {
  if (word == "bfloat16" || word == "float16" || word == "half") return MathType::bf16;
  if (word == "fp8") return MathType::f8;
  if (word == "fp8_block") return MathType::f8_block;
  if (word == "nvfp4") return MathType::f4;
  if (word == "int4_wo") return MathType::i4_weights;
  return std::nullopt;
}

std::optional<Collective> collective_of(std::string_view word) {
  if (word == "all_reduce") return Collective::all_reduce;
  if (word == "all_gather") return Collective::all_gather;
  if (word == "reduce_scatter") return Collective::reduce_scatter;
  if (word == "alltoall" || word == "all_to_all") return Collective::all_to_all;
  return std::nullopt;
}

void insert_sorted(std::vector<double>& values, double value) {
  const auto at = std::ranges::lower_bound(values, value);
  if (at == values.end() || *at != value) values.insert(at, value);
}

}  // namespace

const char* to_string(MathType type) {
  switch (type) {
    case MathType::bf16:
      return "bf16";
    case MathType::f8:
      return "f8";
    case MathType::f8_block:
      return "f8 in blocks";
    case MathType::f4:
      return "f4";
    case MathType::i4_weights:
      return "i4 weights";
  }
  return "unknown";
}

// ---- reading ----

Status KernelTables::add_gemm(std::string_view name, std::string_view csv) {
  CsvReader rows = INFOS_TRY(CsvReader::open(name, csv, {"gemm_dtype", "m", "n", "k", "latency"}));
  while (INFOS_TRY(rows.next())) {
    const std::optional<MathType> type = math_type(rows.text("gemm_dtype"));
    if (!type) continue;
    const double m = INFOS_TRY(rows.positive("m"));
    const double n = INFOS_TRY(rows.positive("n"));
    const double k = INFOS_TRY(rows.positive("k"));
    GemmGrid& grid = gemm_[*type];
    insert_sorted(grid.ns, n);
    insert_sorted(grid.ks, k);
    grid.columns[{n, k}].add(m, INFOS_TRY(rows.positive("latency")) * kMilliseconds);
  }
  return {};
}

/// KV in 8 bits is not told apart: its kernels were within a few percent.
Status KernelTables::add_attention(AttentionTable& table, std::string_view name,
                                   std::string_view csv) {
  CsvReader rows = INFOS_TRY(CsvReader::open(
      name, csv, {"batch_size", "isl", "num_heads", "num_key_value_heads", "step", "latency"}));
  while (INFOS_TRY(rows.next())) {
    if (rows.has("head_dim") && INFOS_TRY(rows.number("head_dim")) != 128) continue;
    const double tokens = INFOS_TRY(rows.number("isl")) + INFOS_TRY(rows.number("step"));
    if (tokens <= 0) return rows.error("isl + step is 0, want at least one token");
    const double heads = INFOS_TRY(rows.positive("num_heads"));
    const double kv_heads = INFOS_TRY(rows.positive("num_key_value_heads"));
    const double batch = INFOS_TRY(rows.positive("batch_size"));
    table[{heads, kv_heads}][batch].add(tokens,
                                        INFOS_TRY(rows.positive("latency")) * kMilliseconds);
  }
  return {};
}

Status KernelTables::add_context_attention(std::string_view name, std::string_view csv) {
  return add_attention(context_, name, csv);
}
Status KernelTables::add_generation_attention(std::string_view name, std::string_view csv) {
  return add_attention(generation_, name, csv);
}

Status KernelTables::add_moe(std::string_view name, std::string_view csv) {
  CsvReader rows =
      INFOS_TRY(CsvReader::open(name, csv,
                                {"moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk",
                                 "num_experts", "moe_tp_size", "moe_ep_size", "latency"}));
  while (INFOS_TRY(rows.next())) {
    const std::optional<MathType> type = math_type(rows.text("moe_dtype"));
    // Routing is never even; of the measured distributions the mildly uneven one is used.
    const bool uneven =
        !rows.has("distribution") || rows.text("distribution").starts_with("power_law_1.01");
    if (!type || !uneven) continue;
    const MoeKey key{
        INFOS_TRY(rows.positive("hidden_size")), INFOS_TRY(rows.positive("inter_size")),
        INFOS_TRY(rows.positive("topk")),        INFOS_TRY(rows.positive("num_experts")),
        INFOS_TRY(rows.positive("moe_tp_size")), INFOS_TRY(rows.positive("moe_ep_size"))};
    const double tokens = INFOS_TRY(rows.positive("num_tokens"));
    moe_[*type][key].add(tokens, INFOS_TRY(rows.positive("latency")) * kMilliseconds);
  }
  return {};
}

Status KernelTables::add_collectives(std::string_view name, std::string_view csv) {
  CsvReader rows =
      INFOS_TRY(CsvReader::open(name, csv, {"op_name", "num_gpus", "message_size", "latency"}));
  while (INFOS_TRY(rows.next())) {
    const std::optional<Collective> op = collective_of(rows.text("op_name"));
    const bool other_type = rows.has("nccl_dtype") && rows.text("nccl_dtype") != "half";
    const bool eager = rows.has("backend") && rows.text("backend").ends_with("eager");
    if (!op || other_type || eager) continue;
    const double devices = INFOS_TRY(rows.positive("num_gpus"));
    const double bytes = INFOS_TRY(rows.positive("message_size"));
    collectives_[{*op, devices}].add(bytes, INFOS_TRY(rows.positive("latency")) * kMilliseconds);
  }
  return {};
}

// ---- asking ----

std::optional<double> KernelTables::gemm(MathType type, const GemmSize& size) const {
  const auto found = gemm_.find(type);
  if (found == gemm_.end()) return std::nullopt;
  const GemmGrid& grid = found->second;
  const LogBracket n = log_bracket(grid.ns, size.n);
  const LogBracket k = log_bracket(grid.ks, size.k);
  double sum = 0, weights = 0;
  for (const auto& [ni, nw] : {std::pair(n.low, 1 - n.weight), std::pair(n.high, n.weight)}) {
    for (const auto& [ki, kw] : {std::pair(k.low, 1 - k.weight), std::pair(k.high, k.weight)}) {
      const auto column = grid.columns.find({grid.ns[ni], grid.ks[ki]});
      if (nw * kw <= 0 || column == grid.columns.end()) continue;
      sum += nw * kw * std::log(column->second.at(size.m));
      weights += nw * kw;
    }
  }
  if (weights <= 0) return std::nullopt;
  // Beyond the table the work grows with the size.
  const double beyond =
      std::max(1.0, size.n / grid.ns.back()) * std::max(1.0, size.k / grid.ks.back());
  return std::exp(sum / weights) * beyond;
}

/// The table of the nearest numbers of heads, scaled by the work when they are not equal.
std::optional<double> KernelTables::attention(const AttentionTable& table,
                                              const AttentionSize& size) {
  const AttentionTable::mapped_type* best = nullptr;
  double best_distance = std::numeric_limits<double>::infinity(), scale = 1;
  for (const auto& [heads, by_batch] : table) {
    const double distance = 3 * std::abs(std::log(heads.second / size.kv_heads)) +
                            std::abs(std::log(heads.first / size.heads));
    if (distance >= best_distance) continue;
    best = &by_batch, best_distance = distance;
    scale = size.heads / heads.first;
  }
  if (!best) return std::nullopt;
  const auto above = best->lower_bound(size.batch);
  if (above == best->end()) {
    const auto& [batch, curve] = *best->rbegin();
    return scale * curve.at(size.tokens) * size.batch / batch;
  }
  if (above->first == size.batch || above == best->begin())
    return scale * above->second.at(size.tokens);
  const auto below = std::prev(above);
  const double weight = std::log(size.batch / below->first) / std::log(above->first / below->first);
  const double low = below->second.at(size.tokens), high = above->second.at(size.tokens);
  return scale * low * std::pow(high / low, weight);
}

std::optional<double> KernelTables::context_attention(const AttentionSize& size) const {
  return attention(context_, size);
}
std::optional<double> KernelTables::generation_attention(const AttentionSize& size) const {
  return attention(generation_, size);
}

std::optional<double> KernelTables::moe(MathType type, const MoeSize& size) const {
  const auto found = moe_.find(type);
  if (found == moe_.end()) return std::nullopt;
  const auto curve =
      found->second.find({size.hidden, size.inter, size.top_k, size.experts, size.tp, size.ep});
  if (curve == found->second.end()) return std::nullopt;
  return curve->second.at(size.tokens);
}

std::optional<double> KernelTables::collective(const CollectiveSize& size) const {
  const auto found = collectives_.find({size.op, size.devices});
  if (found == collectives_.end()) return std::nullopt;
  return found->second.at(size.bytes);
}

}  // namespace infos
