// SPDX-License-Identifier: Apache-2.0
// The weights of one program, packed once at load on the device's threads and shared by the ops
// that name the same tensor. Owns their memory. Never keeps a pointer into the bytes that the host
// gave.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "devices/cpu/device.h"
#include "devices/cpu/pack.h"
#include "devices/cpu/plan.h"

namespace infos::cpu {

/// Rows of an embedding table, as they lie in the file or as panels of a matrix that is used
/// elsewhere too.
struct Table {
  WeightKind kind = WeightKind::f32;
  std::uint32_t k = 0;
  const std::uint8_t* rows = nullptr;
  std::uint64_t stride = 0;
  PackedMatrix packed;  ///< when rows is null
  void read(std::uint32_t row, float* out) const;
};

class Weights {
 public:
  Weights(Device& device, const Plan& plan, infos_weight_source source, void* context)
      : device_(device), plan_(plan), source_(source), context_(context) {}
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  /// Errors of all: those of the source; invalid_argument and unsupported with the tensor's name.
  Result<PackedMatrix> matrix(std::uint32_t tensor, std::uint32_t layer);
  /// One matrix per expert.
  Result<std::vector<PackedMatrix>> experts(std::uint32_t tensor, std::uint32_t layer);
  /// A vector as f32.
  Result<const float*> vector(std::uint32_t tensor, std::uint32_t layer);
  Result<Table> table(std::uint32_t tensor);

 private:
  struct Source {
    WeightKind kind = WeightKind::f32;
    const std::uint8_t* data = nullptr;
    std::string name;
  };
  Result<Source> fetch(std::uint32_t tensor, std::uint32_t layer);
  Result<std::uint8_t*> keep(std::uint64_t bytes, const std::string& name);
  Result<std::vector<PackedMatrix>> pack(std::uint32_t tensor, std::uint32_t layer,
                                         std::uint32_t count, std::uint32_t n, std::uint32_t k);

  Device& device_;
  const Plan& plan_;
  infos_weight_source source_;
  void* context_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<PackedMatrix>> packed_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, const float*> vectors_;
  std::vector<Memory> memory_;
};

}  // namespace infos::cpu
