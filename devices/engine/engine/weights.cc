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

/// Dims of the whole weight of which a graph's weight is a slice.
std::vector<std::int64_t> whole_dims(const infos_tensor& tensor, const WeightSlice& slice) {
  std::vector<std::int64_t> dims(tensor.dims, tensor.dims + tensor.rank);
  if (slice.axis != WeightSlice::kNoAxis) dims[slice.axis] = slice.whole;
  return dims;
}

/// A part of some bytes: `pieces` runs of `bytes`, the first at `begin`, one every `stride`.
struct Runs {
  std::uint64_t pieces = 1, begin = 0, bytes = 0, stride = 0;
};

/// Where `slice`, `count` wide, of a weight with `whole` dims lies. Errors: unsupported when it
/// cuts a quantisation block.
Result<Runs> runs_of(const TensorView& view, std::span<const std::int64_t> whole,
                     const WeightSlice& slice, std::int64_t count) {
  const auto dtype = static_cast<std::uint32_t>(view.dtype);
  const std::int64_t block = reference::block_of(dtype).elements;
  const bool within_rows = slice.axis + 1 == whole.size();
  if (within_rows && (slice.begin % block != 0 || count % block != 0)) {
    std::string allowed = "1";
    for (std::int64_t n = 2; n <= 64; ++n)
      if (slice.whole % (n * block) == 0) allowed += fmt::format(", {}", n);
    return Error{
        ErrorCode::unsupported,
        fmt::format("tensor {} has rows of {} in {} blocks of {}: tensor_parallel {} would "
                    "cut blocks; {} would not",
                    view.name, slice.whole, reference::dtype_name(dtype), block,
                    slice.whole / count, allowed)};
  }
  const auto inner = elements_of(whole.subspan(slice.axis + 1));
  const auto bytes = [&](std::int64_t n) {
    return reference::dtype_bytes(dtype, static_cast<std::uint64_t>(n) * inner);
  };
  return Runs{elements_of(whole.first(slice.axis)), bytes(slice.begin), bytes(count),
              bytes(slice.whole)};
}

void append_runs(std::span<const std::byte> data, const Runs& runs, std::vector<std::byte>& out) {
  for (std::uint64_t i = 0; i < runs.pieces; ++i) {
    const auto piece = data.subspan(i * runs.stride + runs.begin, runs.bytes);
    out.insert(out.end(), piece.begin(), piece.end());
  }
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
  const WeightSlice& slice(std::size_t t) const {
    return graph_.slice(static_cast<std::uint32_t>(t));
  }

  /// A slice of a whole weight; no copy when it is in one piece.
  Status add_slice(std::size_t t, const TensorView& whole) {
    const WeightSlice& part = slice(t);
    const Runs runs =
        INFOS_TRY(runs_of(whole, whole.dims, part, graph_.tensors()[t].dims[part.axis]));
    if (runs.pieces == 1)
      return add(t, whole.dtype, whole.data.subspan(runs.begin, runs.bytes)), Status();
    std::vector<std::byte> copy;
    copy.reserve(runs.pieces * runs.bytes);
    append_runs(whole.data, runs, copy);
    add_made(t, whole.dtype, std::move(copy));
    return {};
  }

  Status bind_weight(std::size_t t, const std::string& name) {
    const auto want = whole_dims(graph_.tensors()[t], slice(t));
    const TensorView* view = checkpoint_.find(name);
    if (view == nullptr && !expert_name(name, 0).empty()) return bind_experts(t, name);
    if (view == nullptr)
      return Error{ErrorCode::not_found,
                   fmt::format("tensor {} is missing: a {} model wants it, {}", name,
                               to_string(checkpoint_.config().family), shape_text(want))};
    INFOS_TRY(check_view(*view, want, dtype_mask_));
    if (want.size() == 1 && view->dtype != DType::f32) return bind_narrow_vector(t, *view);
    if (slice(t).axis != WeightSlice::kNoAxis) return add_slice(t, *view);
    add(t, view->dtype, view->data);
    return {};
  }

  /// Vectors are f32 on the device, whatever the file has.
  Status bind_narrow_vector(std::size_t t, const TensorView& view) {
    std::vector<std::byte> wide = widened(view);
    if (slice(t).axis == WeightSlice::kNoAxis)
      return add_made(t, DType::f32, std::move(wide)), Status();
    const auto begin = static_cast<std::ptrdiff_t>(slice(t).begin * std::int64_t{sizeof(float)});
    const auto end = begin + graph_.tensors()[t].dims[0] * std::int64_t{sizeof(float)};
    add_made(t, DType::f32, {wide.begin() + begin, wide.begin() + end});
    return {};
  }

  /// Stacks experts that the checkpoint has one by one.
  Status bind_experts(std::size_t t, const std::string& name) {
    const auto whole = whole_dims(graph_.tensors()[t], slice(t));
    const std::span<const std::int64_t> want = whole;
    WeightSlice part = slice(t);  // of one expert
    if (part.axis != WeightSlice::kNoAxis) --part.axis;
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
      Runs runs{1, 0, view->data.size(), 0};
      if (part.axis != WeightSlice::kNoAxis)
        runs = INFOS_TRY(runs_of(*view, view->dims, part, graph_.tensors()[t].dims[part.axis + 1]));
      if (e == 0) stacked.reserve(runs.pieces * runs.bytes * static_cast<std::size_t>(want[0]));
      append_runs(view->data, runs, stacked);
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
