// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/tensor_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>
#include <unordered_map>

#include "devices/engine/checkpoint/tensor_specs.h"

namespace infos {
namespace {

using Remaining = std::unordered_map<std::string_view, const TensorView*>;

Error tensor_error(ErrorCode code, const std::string& label, std::string_view name,
                   const std::string& what) {
  return {code, fmt::format("{}: tensor \"{}\": {}", label, name, what)};
}

bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

Status check_one(const TensorSpec& spec, Remaining& remaining, const std::string& label) {
  const auto found = remaining.find(spec.name);
  if (found == remaining.end())
    return tensor_error(ErrorCode::corrupt, label, spec.name, "is missing");
  const TensorView& tensor = *found->second;
  if (tensor.dims != spec.dims)
    return tensor_error(ErrorCode::corrupt, label, spec.name,
                        fmt::format("shape is {}: want {}", tensor.dims, spec.dims));
  const bool is_vector = spec.role == TensorRole::norm || spec.role == TensorRole::bias;
  if (is_vector && !is_plain_float(tensor.dtype))
    return tensor_error(ErrorCode::unsupported, label, spec.name,
                        fmt::format("dtype is {}: want f32, f16 or bf16", to_string(tensor.dtype)));
  if (tensor.dtype == DType::i8 || tensor.dtype == DType::i32 || tensor.dtype == DType::f64)
    return tensor_error(ErrorCode::unsupported, label, spec.name,
                        fmt::format("dtype is {}: want f32, f16, bf16, q8_0, q4_0, q4_k or q6_k",
                                    to_string(tensor.dtype)));
  remaining.erase(found);
  return {};
}

Error left_over(const ModelConfig& config, const Remaining& remaining, const std::string& label) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : remaining) names.insert(name);
  const std::string others =
      names.size() > 1 ? fmt::format(" (nor are {} others)", names.size() - 1) : "";
  return tensor_error(
      ErrorCode::unsupported, label, *names.begin(),
      fmt::format("is not a weight of this {} model{}", to_string(config.family), others));
}

}  // namespace

Status check_tensors(const ModelConfig& config, std::span<const TensorView> tensors,
                     const std::string& label) {
  Remaining remaining;
  for (const auto& tensor : tensors) remaining.emplace(tensor.name, &tensor);
  const auto form =
      remaining.count("blk.0.ffn_gate_exps.weight") ? ExpertForm::stacked : ExpertForm::separate;
  INFOS_TRY(visit_tensors(
      config, form, [&](const TensorSpec& spec) { return check_one(spec, remaining, label); }));
  remaining.erase("rope_freqs.weight");  // already read into the configuration
  if (!remaining.empty()) return left_over(config, remaining, label);
  return {};
}

}  // namespace infos
