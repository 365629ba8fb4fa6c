// SPDX-License-Identifier: Apache-2.0
// Frames on a worker's socket: payload bytes and process generation (two little-endian u32), then
// the payload. Decides what is a legal frame; never allocates by a length that it has not checked.
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/ids.h"
#include "topology/base/result.h"

namespace infos {

constexpr std::size_t kFrameHeaderBytes = 8;

/// Appends one frame to `out`. Requires: payload.size() <= kFrameBytesMax.
void append_frame(std::string& out, Generation generation, std::string_view payload);

/// Cuts a byte stream into frames.
class FrameReader {
 public:
  explicit FrameReader(Generation generation) : generation_(generation) {}

  void append(std::string_view bytes);
  /// The next whole payload, valid until the next call of append() or next(); nothing when more
  /// bytes are needed. Errors: corrupt: a length above kFrameBytesMax or a foreign generation; the
  /// stream is useless then.
  Result<std::optional<std::string_view>> next();

 private:
  Generation generation_;
  std::string buffer_;
  std::size_t begin_ = 0;  ///< of the first byte not yet given out
};

}  // namespace infos
