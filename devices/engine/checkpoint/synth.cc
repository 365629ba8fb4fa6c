// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/synth.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "devices/engine/checkpoint/gguf_export.h"
#include "devices/engine/checkpoint/gguf_writer.h"
#include "devices/engine/checkpoint/quant.h"
#include "devices/engine/checkpoint/shapes.h"
#include "devices/engine/checkpoint/tensor_specs.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

constexpr std::size_t kPoolElements = 1 << 20;
constexpr std::size_t kPieceElements =
    64;  ///< of plain types and 32-element blocks; larger blocks go one by one
constexpr std::size_t kBufferBytes = 16 << 20;

/// A sum of four uniform draws, scaled to variance 1: bell-shaped, never beyond 3.5, cheap.
float bell(Rng& rng) {
  const std::uint64_t bits = rng.next();
  float sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<float>((bits >> (16 * i)) & 0xFFFF) / 65535.0F - 0.5F;
  return sum * std::sqrt(3.0F);
}

/// Quantised random numbers of one scale, from which tensors of any length are pieced together.
/// Pieces are short, so that no two rows of a large vocabulary come out alike: a row of 896 has 14
/// pieces out of 16,384 each.
class Pool {
 public:
  Pool(DType dtype, float deviation, Rng& rng) {
    std::vector<float> values(kPoolElements);
    for (float& value : values) value = bell(rng) * deviation;
    bytes_.resize(bytes_of(dtype, kPoolElements));
    quantise(dtype, values, bytes_);
    const auto block = block_shape(dtype);
    const std::size_t elements = std::max<std::size_t>(kPieceElements, block.elements);
    piece_bytes_ = elements / block.elements * block.bytes;
    pieces_ = kPoolElements / elements;
  }

  /// Fills `out`; a last piece may be cut short.
  void draw(std::span<std::byte> out, Rng& rng) const {
    while (!out.empty()) {
      const std::size_t n = std::min(out.size(), piece_bytes_);
      std::memcpy(out.data(), bytes_.data() + rng.below(pieces_) * piece_bytes_, n);
      out = out.subspan(n);
    }
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t piece_bytes_ = 0, pieces_ = 0;
};

struct Planned {
  TensorSpec spec;
  DType dtype = DType::f32;
};

class Synth {
 public:
  Synth(const SynthOptions& options, ModelConfig config)
      : options_(options), config_(std::move(config)), rng_(options.seed) {}

  Status run() {
    GgufHeader header = INFOS_TRY(
        gguf_header(config_, synth_tokenizer(config_.family, config_.vocab), options_.dtype));
    INFOS_TRY(plan(header));
    auto writer = INFOS_TRY(GgufWriter::create(options_.path, header));
    for (const std::uint64_t size : header.tensor_bytes()) total_ += size;
    for (std::size_t i = 0; i < planned_.size(); ++i)
      INFOS_TRY(write(writer, planned_[i], header.tensor_bytes()[i]));
    const auto divisors = rope_divisors(config_);
    if (!divisors.empty()) INFOS_TRY(writer.append(std::as_bytes(std::span(divisors))));
    INFOS_TRY(writer.commit());
    if (options_.progress) options_.progress(Bytes{total_}, Bytes{total_});
    return {};
  }

 private:
  Status plan(GgufHeader& header) {
    INFOS_TRY(visit_tensors(config_, ExpertForm::stacked, [&](const TensorSpec& spec) -> Status {
      const bool is_matrix = spec.role == TensorRole::matrix;
      const DType dtype =
          is_matrix ? synth_row_dtype(options_.dtype, spec.dims.back()) : DType::f32;
      header.add_tensor(spec.name, dtype, spec.dims);
      planned_.push_back({spec, dtype});
      return {};
    }));
    const std::int64_t divisors = static_cast<std::int64_t>(rope_divisors(config_).size());
    if (divisors > 0) header.add_tensor("rope_freqs.weight", DType::f32, std::span(&divisors, 1));
    return {};
  }

  Status write(GgufWriter& writer, const Planned& tensor, std::uint64_t size) {
    if (tensor.spec.role == TensorRole::norm || tensor.spec.role == TensorRole::bias)
      return write_vector(writer, tensor.spec);
    const Pool& source = pool(tensor.dtype, tensor.spec.dims.back());
    buffer_.resize(kBufferBytes);
    for (std::uint64_t done = 0; done < size;) {
      // Whole pieces, but for the last: what a buffer ends with must not show in the bytes.
      const auto part = std::span(buffer_).first(
          std::min<std::uint64_t>(size - done, whole_pieces(tensor.dtype)));
      source.draw(part, rng_);
      INFOS_TRY(writer.append(part));
      done += part.size();
      done_ += part.size();
      if (options_.progress) options_.progress(Bytes{done_}, Bytes{total_});
    }
    return {};
  }

  static std::uint64_t whole_pieces(DType dtype) {
    const auto block = block_shape(dtype);
    return kBufferBytes / (block.bytes * kPieceElements) * (block.bytes * kPieceElements);
  }

  Status write_vector(GgufWriter& writer, const TensorSpec& spec) {
    std::vector<float> values(static_cast<std::size_t>(spec.dims[0]));
    const float base = spec.role == TensorRole::norm ? 1.0F : 0.0F;
    for (float& value : values) value = base + 0.05F * bell(rng_);
    done_ += values.size() * sizeof(float);
    return writer.append(std::as_bytes(std::span(values)));
  }

  /// Deviation 1/sqrt(in): a normalised input gives outputs of about 1, so activations stay finite
  /// at any depth.
  const Pool& pool(DType dtype, std::int64_t in) {
    const auto key = std::pair(dtype, in);
    auto found = pools_.find(key);
    if (found == pools_.end())
      found =
          pools_.emplace(key, Pool(dtype, 1.0F / std::sqrt(static_cast<float>(in)), rng_)).first;
    return found->second;
  }

  const SynthOptions& options_;
  ModelConfig config_;
  Rng rng_;
  std::vector<Planned> planned_;
  std::map<std::pair<DType, std::int64_t>, Pool> pools_;
  std::vector<std::byte> buffer_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

DType synth_row_dtype(DType wanted, std::int64_t row_elements) {
  if (row_elements % block_shape(wanted).elements == 0) return wanted;
  return wanted == DType::q6_k ? DType::q8_0 : DType::q4_0;
}

Status synth_model(const SynthOptions& options) {
  switch (options.dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_k:
    case DType::q6_k:
      break;
    default:
      return Error{ErrorCode::unsupported,
                   fmt::format("dtype is {}: want f32, f16, bf16, q8_0, q4_0, q4_k or q6_k",
                               to_string(options.dtype))};
  }
  return Synth(options, INFOS_TRY(named_shape(options.shape))).run();
}

}  // namespace infos
