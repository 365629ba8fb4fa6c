// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/engine/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "devices/engine/graph/rope.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/graph_check.h"

namespace infos {

namespace {

std::string shape_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}
std::span<const std::int64_t> dims_of(const infos_tensor& tensor) {
  return {tensor.dims, tensor.rank};
}

std::uint64_t elements_of(std::span<const std::int64_t> dims) {
  std::uint64_t n = 1;
  for (const std::int64_t dim : dims) n *= static_cast<std::uint64_t>(dim);
  return n;
}

/// Errors: as BoundWeights::bind.
Status check_view(const TensorView& view, std::span<const std::int64_t> want,
                  std::uint64_t dtype_mask) {
  if (!std::equal(view.dims.begin(), view.dims.end(), want.begin(), want.end()))
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tensor {} is {}: the model's config wants {}", view.name,
                             shape_text(view.dims), shape_text(want))};
  const auto dtype = static_cast<std::uint32_t>(view.dtype);
  const bool known = reference::block_of(dtype).elements != 0;
  const bool taken = dtype < 64 && ((dtype_mask >> dtype) & 1) != 0;
  if (!known || !(taken || want.size() == 1)) {
    std::string allowed;
    for (std::uint32_t i = 0; i < 64; ++i)
      if (((dtype_mask >> i) & 1) != 0)
        allowed += std::string(allowed.empty() ? "" : ", ") + reference::dtype_name(i);
    return Error{ErrorCode::unsupported,
                 fmt::format("tensor {} has dtype {}: the device takes {}", view.name,
                             reference::dtype_name(dtype), allowed)};
  }
  const auto block = reference::block_of(dtype).elements;
  if (want.back() % block != 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("tensor {} has rows of {}: {} wants a multiple of {}", view.name,
                             want.back(), reference::dtype_name(dtype), block)};
  const std::uint64_t bytes = reference::dtype_bytes(dtype, elements_of(want));
  if (view.data.size() != bytes)
    return Error{ErrorCode::corrupt,
                 fmt::format("tensor {} has {} bytes: its shape and dtype want {}", view.name,
                             view.data.size(), bytes)};
  return {};
}

std::vector<std::byte> widened(const TensorView& view) {
  std::vector<double> values(elements_of(view.dims));
  reference::dequantise(static_cast<std::uint32_t>(view.dtype), view.data, values);
  std::vector<std::byte> out(values.size() * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i)
    reference::store_element(INFOS_F32, values[i], out.data() + i * sizeof(float));
  return out;
}

/// "blk.3.ffn_gate_exps.weight", 7 -> "blk.3.ffn_gate.7.weight"; empty when it is no stacked name.
std::string expert_name(const std::string& stacked, std::int64_t expert) {
  const auto at = stacked.find("_exps.weight");
  return at == std::string::npos ? std::string{}
                                 : fmt::format("{}.{}.weight", stacked.substr(0, at), expert);
}

}  // namespace

/// Fills a BoundWeights, one graph tensor after the other.
class WeightBinder {
 public:
  WeightBinder(const PhaseGraph& graph, const Checkpoint& checkpoint, std::uint64_t dtype_mask)
      : graph_(graph), checkpoint_(checkpoint), dtype_mask_(dtype_mask) {}

  Result<BoundWeights> run() {
    out_.weights_.resize(graph_.tensors().size());
    for (std::size_t t = 0; t < graph_.tensors().size(); ++t) {
      const infos_tensor& tensor = graph_.tensors()[t];
      if (tensor.role == INFOS_ROLE_CONSTANT) bind_constant(t);
      if (tensor.role != INFOS_ROLE_WEIGHT) continue;
      const std::uint32_t layers = tensor.per_layer != 0 ? graph_.n_layers() : 1;
      for (std::uint32_t layer = 0; layer < layers; ++layer)
        INFOS_TRY(bind_weight(t, weight_name(tensor, layer)));
    }
    std::uint64_t most = 0;
    for (const auto& [dtype, bytes] : matrix_bytes_)
      if (bytes > most) most = bytes, out_.main_dtype_ = dtype;
    return std::move(out_);
  }

 private:
  void add(std::size_t t, DType dtype, std::span<const std::byte> data) {
    out_.weights_[t].push_back(
        {sizeof(infos_weight), static_cast<std::uint32_t>(dtype), data.data(), data.size()});
    out_.bytes_ += data.size();
    if (graph_.tensors()[t].rank > 1) matrix_bytes_[dtype] += data.size();
  }
  void add_made(std::size_t t, DType dtype, std::vector<std::byte> data) {
    out_.made_.push_back(std::move(data));
    add(t, dtype, out_.made_.back());
  }

  Status bind_weight(std::size_t t, const std::string& name) {
    const auto want = dims_of(graph_.tensors()[t]);
    const TensorView* view = checkpoint_.find(name);
    if (view == nullptr && !expert_name(name, 0).empty()) return bind_experts(t, name);
    if (view == nullptr)
      return Error{ErrorCode::not_found,
                   fmt::format("tensor {} is missing: a {} model wants it, {}", name,
                               to_string(checkpoint_.config().family), shape_text(want))};
    INFOS_TRY(check_view(*view, want, dtype_mask_));
    if (want.size() == 1 && view->dtype != DType::f32)
      add_made(t, DType::f32, widened(*view));
    else
      add(t, view->dtype, view->data);
    return {};
  }

  /// Stacks experts that the checkpoint has one by one.
  Status bind_experts(std::size_t t, const std::string& name) {
    const auto want = dims_of(graph_.tensors()[t]);
    std::vector<std::byte> stacked;
    DType dtype = DType::none;
    for (std::int64_t e = 0; e < want[0]; ++e) {
      const TensorView* view = checkpoint_.find(expert_name(name, e));
      if (view == nullptr)
        return Error{
            ErrorCode::not_found,
            fmt::format(
                "neither tensor {} nor {} is there: a model of {} experts wants one of them", name,
                expert_name(name, e), want[0])};
      INFOS_TRY(check_view(*view, want.subspan(1), dtype_mask_));
      if (e > 0 && view->dtype != dtype)
        return Error{
            ErrorCode::unsupported,
            fmt::format("tensor {} has dtype {}: the experts before it have {}", view->name,
                        reference::dtype_name(static_cast<std::uint32_t>(view->dtype)),
                        reference::dtype_name(static_cast<std::uint32_t>(dtype)))};
      dtype = view->dtype;
      if (e == 0) stacked.reserve(view->data.size() * static_cast<std::size_t>(want[0]));
      stacked.insert(stacked.end(), view->data.begin(), view->data.end());
    }
    add_made(t, dtype, std::move(stacked));
    return {};
  }

  void bind_constant(std::size_t t) {
    const std::vector<float> frequencies = rope_frequencies(checkpoint_.config());
    std::vector<std::byte> bytes(frequencies.size() * sizeof(float));
    std::memcpy(bytes.data(), frequencies.data(), bytes.size());
    add_made(t, DType::f32, std::move(bytes));
  }

  const PhaseGraph& graph_;
  const Checkpoint& checkpoint_;
  const std::uint64_t dtype_mask_;
  std::map<DType, std::uint64_t> matrix_bytes_;
  BoundWeights out_;
};

Result<BoundWeights> BoundWeights::bind(const PhaseGraph& graph, const Checkpoint& checkpoint,
                                        std::uint64_t dtype_mask) {
  return WeightBinder(graph, checkpoint, dtype_mask).run();
}

infos_code BoundWeights::source(void* context, std::uint32_t tensor, std::uint32_t layer,
                                infos_weight* out) {
  const auto& weights = static_cast<const BoundWeights*>(context)->weights_;
  if (tensor >= weights.size() || layer >= weights[tensor].size()) return INFOS_INVALID;
  reference::write_struct(weights[tensor][layer], out);
  return INFOS_OK;
}

}  // namespace infos
