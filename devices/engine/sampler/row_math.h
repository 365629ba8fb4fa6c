// SPDX-License-Identifier: Apache-2.0
// Passes over one row of logits: largest value, exponentials, and the cut that keeps the likeliest.
// All are linear, give the same bits on every machine, and allocate only while their scratch grows.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace infos {

/// Elements of one chunk, whose largest value is kept by chunk_maxima.
inline constexpr std::size_t kChunk = 64;

/// The largest value of each chunk of 64. Returns false when a value is NaN or infinite (then
/// `maxima` means nothing).
bool chunk_maxima(std::span<const float> row, std::vector<float>& maxima);
/// Index of the largest value, the lowest index on ties. Requires: maxima as chunk_maxima gave
/// them.
std::size_t argmax(std::span<const float> row, std::span<const float> maxima);
/// Index of the first value that is NaN or infinite.
std::optional<std::size_t> first_not_finite(std::span<const float> row);

/// out[i] = exp((row[i] - largest) * factor), 0 below exp(-87); within 3e-7 of exact, relatively.
/// Returns the sum. Requires: largest >= every value, factor > 0.
double exponentials(std::span<const float> row, float largest, float factor, std::span<float> out);

/// The sum in double, in a fixed order.
double sum_of(std::span<const float> values);

/// A prefix of the order "larger value first, lower index first on ties".
struct Cut {
  float value = 0;        ///< the last value kept
  std::size_t index = 0;  ///< the last index kept of that value
  bool keeps(float v, std::size_t i) const { return (v > value) | ((v == value) & (i <= index)); }
};

/// The shortest prefix whose weights sum to `goal` or more; everything when they never do. An empty
/// `weights` counts one for each. Requires: row not empty, largest its largest value, weights not
/// negative and equal where values are equal.
Cut find_cut(std::span<const float> row, std::span<const float> weights, float largest,
             double goal);

/// Indices of the `k` largest, larger first, lower index first on ties. Requires: 1 <= k <=
/// row.size().
std::vector<std::uint32_t> largest_indices(std::span<const float> row,
                                           std::span<const float> maxima, std::size_t k);

}  // namespace infos
