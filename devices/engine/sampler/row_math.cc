// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/sampler/row_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "topology/base/check.h"

namespace infos {

namespace {

// Eight lanes, which the compiler splits where the machine has fewer: the results are the same
// bits.
#pragma GCC diagnostic ignored "-Wpsabi"  // everything with lanes is inlined, so no ABI is involved
#define INFOS_LANES [[gnu::always_inline]] inline
using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
constexpr std::size_t kLanes = 8;

INFOS_LANES Floats load(const float* at) {
  Floats v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
INFOS_LANES Floats all(float x) { return Floats{} + x; }

/// exp(x) for x <= 0; 0 below -87. Range reduction by whole powers of two, then Taylor to degree 7
/// on |r| <= ln(2)/2, whose remainder is below 6e-9.
INFOS_LANES Floats exp_not_positive(Floats x) {
  const Ints tiny = x < -87.0F;
  x = x < -87.0F ? all(-87.0F) : x;
  const Ints power = __builtin_convertvector(x * 1.44269504F - 0.5F, Ints);
  const Floats n = __builtin_convertvector(power, Floats);
  const Floats r = (x - n * 0.693359375F) + n * 2.12194440e-4F;  // ln(2) in two parts
  Floats y = r * (1.0F / 5040) + 1.0F / 720;
  y = y * r + 1.0F / 120;
  y = y * r + 1.0F / 24;
  y = y * r + 1.0F / 6;
  y = y * r + 0.5F;
  y = y * r + 1.0F;
  y = y * r + 1.0F;
  const Ints scale = (power + 127) << 23;
  Floats factor;
  std::memcpy(&factor, &scale, sizeof factor);
  return tiny ? Floats{} : y * factor;
}

INFOS_LANES float largest_lane(Floats v) {
  float best = v[0];
  for (std::size_t i = 1; i < kLanes; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

}  // namespace

namespace {

INFOS_LANES bool chunk_maxima_body(std::span<const float> row, std::vector<float>& maxima) {
  Floats poison{};  // x * 0 is 0, or NaN when x is not finite
  std::size_t i = 0;
  std::size_t chunk = 0;
  for (; i + kChunk <= row.size(); i += kChunk, ++chunk) {
    Floats best = load(&row[i]);
    for (std::size_t j = 0; j < kChunk; j += kLanes) {
      const Floats x = load(&row[i + j]);
      poison += x * 0.0F;
      best = x > best ? x : best;
    }
    maxima[chunk] = largest_lane(best);
  }
  float tail_poison = 0;
  if (i < row.size()) maxima[chunk] = row[i];
  for (; i < row.size(); ++i) {
    tail_poison += row[i] * 0.0F;
    maxima[chunk] = std::max(maxima[chunk], row[i]);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) tail_poison += poison[lane];
  return tail_poison == 0.0F;
}

INFOS_LANES double exponentials_body(std::span<const float> row, float largest, float factor,
                                     std::span<float> out) {
  // Lanes are summed in float over short stretches only, so that the error does not grow with the
  // vocabulary.
  constexpr std::size_t kStretch = 128;
  double sum = 0;
  std::size_t i = 0;
  while (i + kLanes <= row.size()) {
    const std::size_t end = std::min(i + kStretch, row.size());
    Floats lanes{};
    for (; i + kLanes <= end; i += kLanes) {
      const Floats e = exp_not_positive((load(&row[i]) - largest) * factor);
      std::memcpy(&out[i], &e, sizeof e);
      lanes += e;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(lanes[lane]);
  }
  for (; i < row.size(); ++i) {
    out[i] = exp_not_positive(all((row[i] - largest) * factor))[0];
    sum += static_cast<double>(out[i]);
  }
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool chunk_maxima_avx2(std::span<const float> row,
                                                       std::vector<float>& maxima) {
  return chunk_maxima_body(row, maxima);
}
__attribute__((target("avx2"))) double exponentials_avx2(std::span<const float> row, float largest,
                                                         float factor, std::span<float> out) {
  return exponentials_body(row, largest, factor, out);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

}  // namespace

bool chunk_maxima(std::span<const float> row, std::vector<float>& maxima) {
  maxima.resize((row.size() + kChunk - 1) / kChunk);
#if defined(__x86_64__)
  if (has_avx2()) return chunk_maxima_avx2(row, maxima);
#endif
  return chunk_maxima_body(row, maxima);
}

double exponentials(std::span<const float> row, float largest, float factor, std::span<float> out) {
#if defined(__x86_64__)
  if (has_avx2()) return exponentials_avx2(row, largest, factor, out);
#endif
  return exponentials_body(row, largest, factor, out);
}

std::size_t argmax(std::span<const float> row, std::span<const float> maxima) {
  const auto chunk =
      static_cast<std::size_t>(std::max_element(maxima.begin(), maxima.end()) - maxima.begin());
  std::size_t i = chunk * kChunk;
  while (row[i] != maxima[chunk]) ++i;
  return i;
}

std::optional<std::size_t> first_not_finite(std::span<const float> row) {
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!std::isfinite(row[i])) return i;
  return std::nullopt;
}

namespace {

constexpr std::size_t kBins = 2048;
/// 0 for the largest value, growing as values fall; equal values share a bin. Covers a fall of 32.
std::size_t bin_of(float value, float largest) {
  const float at = (largest - value) * 64.0F;
  return at < static_cast<float>(kBins - 1) ? static_cast<std::size_t>(at) : kBins - 1;
}

struct Candidate {
  float value;
  std::uint32_t index;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.index < b.index);
  }
};

}  // namespace

namespace {

template <typename WeightOf>
Cut find_cut_by(std::span<const float> row, float largest, double goal, const WeightOf& weight_of) {
  std::array<double, kBins> mass{};
  for (std::size_t i = 0; i < row.size(); ++i) mass[bin_of(row[i], largest)] += weight_of(i);
  std::size_t bin = 0;
  double before = 0;
  while (bin + 1 < kBins && before + mass[bin] < goal) before += mass[bin++];
  std::vector<Candidate> in_bin;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (bin_of(row[i], largest) == bin) in_bin.push_back({row[i], static_cast<std::uint32_t>(i)});
  // The goal may lie beyond everything.
  if (in_bin.empty()) return {-std::numeric_limits<float>::infinity(), 0};
  std::sort(in_bin.begin(), in_bin.end());
  for (const Candidate& c : in_bin) {
    before += weight_of(c.index);
    if (before >= goal) return {c.value, c.index};
  }
  return {in_bin.back().value, in_bin.back().index};
}

}  // namespace

Cut find_cut(std::span<const float> row, std::span<const float> weights, float largest,
             double goal) {
  if (weights.empty()) return find_cut_by(row, largest, goal, [](std::size_t) { return 1.0; });
  const float* w = weights.data();
  return find_cut_by(row, largest, goal, [w](std::size_t i) { return static_cast<double>(w[i]); });
}

double sum_of(std::span<const float> values) {
  double lanes[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= values.size(); i += 4)
    for (std::size_t lane = 0; lane < 4; ++lane)
      lanes[lane] += static_cast<double>(values[i + lane]);
  for (; i < values.size(); ++i) lanes[0] += static_cast<double>(values[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

std::vector<std::uint32_t> largest_indices(std::span<const float> row,
                                           std::span<const float> maxima, std::size_t k) {
  INFOS_CHECK(k >= 1);
  INFOS_CHECK(k <= row.size());
  // k chunks have a value of at least the k-th largest maximum, so nothing below it can be among
  // the k largest.
  float floor = -std::numeric_limits<float>::infinity();
  if (k < maxima.size()) {
    std::vector<float> order(maxima.begin(), maxima.end());
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k - 1), order.end(),
                     std::greater<>());
    floor = order[k - 1];
  }
  std::vector<Candidate> candidates;
  for (std::size_t chunk = 0; chunk < maxima.size(); ++chunk) {
    if (maxima[chunk] < floor) continue;
    const std::size_t end = std::min((chunk + 1) * kChunk, row.size());
    for (std::size_t i = chunk * kChunk; i < end; ++i)
      if (row[i] >= floor) candidates.push_back({row[i], static_cast<std::uint32_t>(i)});
  }
  const auto kth = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  if (kth != candidates.end()) std::nth_element(candidates.begin(), kth - 1, candidates.end());
  std::sort(candidates.begin(), kth);
  std::vector<std::uint32_t> out;
  for (auto it = candidates.begin(); it != kth; ++it) out.push_back(it->index);
  return out;
}

}  // namespace infos
