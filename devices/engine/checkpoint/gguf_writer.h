// SPDX-License-Identifier: Apache-2.0
// Writes GGUF version 3: first everything that is known (keys, the tensor directory), then the
// tensors' bytes as a stream, so that no model has to fit memory. One thread. Never invents keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/atomic_file.h"
#include "topology/base/result.h"

namespace infos {

/// The head of a file. Keys and tensors keep the order of the calls.
class GgufHeader {
 public:
  static constexpr std::uint64_t kAlignment = 32;

  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_flag(std::string_view key, bool value);
  void add_text(std::string_view key, std::string_view value);
  void add_texts(std::string_view key, std::span<const std::string> values);
  void add_floats(std::string_view key, std::span<const float> values);
  void add_integers(std::string_view key, std::span<const std::int32_t> values);
  /// Dims row-major, outermost first. Requires: a dtype with blocks, rows of whole blocks.
  void add_tensor(std::string_view name, DType dtype, std::span<const std::int64_t> dims);

  /// Bytes of each tensor, without padding, in order.
  std::span<const std::uint64_t> tensor_bytes() const { return sizes_; }
  /// The head as it stands in the file, padded to where the data begins.
  std::vector<std::byte> bytes() const;

 private:
  void put_key(std::string_view key, std::uint32_t type);
  std::vector<std::byte> keys_, directory_;
  std::uint64_t key_count_ = 0, next_offset_ = 0;
  std::vector<std::uint64_t> sizes_;
};

class GgufWriter {
 public:
  static Result<GgufWriter> create(const std::string& path, const GgufHeader& header);
  /// More bytes of the current tensor. Pads and goes on to the next when it is whole.
  /// Requires: no more bytes than the current tensor still wants.
  Status append(std::span<const std::byte> bytes);
  /// Requires: every tensor is whole.
  Status commit();

 private:
  GgufWriter(AtomicFile file, std::vector<std::uint64_t> sizes)
      : file_(std::move(file)), sizes_(std::move(sizes)) {}
  AtomicFile file_;
  std::vector<std::uint64_t> sizes_;
  std::size_t tensor_ = 0;
  std::uint64_t in_tensor_ = 0;
};

}  // namespace infos
