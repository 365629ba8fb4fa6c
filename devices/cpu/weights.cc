// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace infos::cpu {
namespace {

std::string tensor_name(const infos_tensor& t, std::uint32_t layer) {
  std::string name = t.name;
  const std::size_t at = name.find("%d");
  if (at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name.empty() ? "weight" : name;
}

ErrorCode error_code(infos_code code) {
  switch (code) {
    case INFOS_INVALID:
      return ErrorCode::invalid_argument;
    case INFOS_UNSUPPORTED:
      return ErrorCode::unsupported;
    case INFOS_EXHAUSTED:
      return ErrorCode::resource_exhausted;
    case INFOS_DEADLINE:
      return ErrorCode::deadline_exceeded;
    case INFOS_CANCELLED:
      return ErrorCode::cancelled;
    case INFOS_CORRUPT:
      return ErrorCode::corrupt;
    default:
      return ErrorCode::unavailable;
  }
}

}  // namespace

void Table::read(std::uint32_t row, float* out) const {
  if (rows) {
    read_row(kind, rows + row * stride, k, out);
  } else {
    read_packed_row(packed, row, out);
  }
}

Weights::~Weights() {
  for (const Memory& m : memory_) device_.release(m.bytes());
}

Result<Weights::Source> Weights::fetch(std::uint32_t tensor, std::uint32_t layer) {
  const infos_tensor& t = plan_.tensors[tensor];
  Source source;
  source.name = tensor_name(t, layer);
  infos_weight w{};
  w.struct_size = sizeof w;
  const infos_code code = source_(context_, tensor, t.per_layer ? layer : 0, &w);
  if (code != INFOS_OK)
    return Error{error_code(code),
                 fmt::format("{}: the host has no such weight (code {})", source.name, +code)};
  const auto kind = weight_kind(w.dtype);
  if (!kind) {
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: dtype {}, allowed f32, f16, bf16, Q8_0, Q4_0, Q4_K, Q6_K",
                             source.name, w.dtype)};
  }
  source.kind = *kind;
  const auto k = static_cast<std::uint64_t>(t.dims[t.rank - 1]);
  std::uint64_t rows = 1;
  for (std::uint32_t i = 0; i + 1 < t.rank; ++i) rows *= static_cast<std::uint64_t>(t.dims[i]);
  if (k % block_elements(*kind)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: rows of {} are not whole blocks of {}", source.name, k,
                             block_elements(*kind))};
  }
  const std::uint64_t expected = rows * row_bytes(*kind, k);
  if (!w.data || w.bytes != expected) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: {} bytes, its shape needs {}", source.name, w.data ? w.bytes : 0,
                             expected)};
  }
  source.data = static_cast<const std::uint8_t*>(w.data);
  return source;
}

Result<std::uint8_t*> Weights::keep(std::uint64_t bytes, const std::string& name) {
  memory_.push_back(INFOS_TRY(device_.allocate(bytes, name.c_str())));
  return memory_.back().data();
}

Result<std::vector<PackedMatrix>> Weights::pack(std::uint32_t tensor, std::uint32_t layer,
                                                std::uint32_t count, std::uint32_t n,
                                                std::uint32_t k) {
  const std::pair key{tensor, plan_.tensors[tensor].per_layer ? layer : 0};
  if (const auto it = packed_.find(key); it != packed_.end()) return it->second;
  const Source source = INFOS_TRY(fetch(tensor, layer));
  const PackedMatrix shape = packed_shape(source.kind, n, k);
  const std::uint64_t each = shape.panels * shape.panel_bytes,
                      from_each = n * row_bytes(source.kind, k);
  std::uint8_t* to = INFOS_TRY(keep(each * count, source.name));
  const std::uint64_t panels = std::uint64_t{count} * shape.panels;
  const auto tasks =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(panels, 8 * device_.pool().threads()));
  device_.pool().for_each(tasks, [&](std::uint32_t task, std::uint32_t) {
    for (std::uint64_t p = panels * task / tasks; p < panels * (task + 1) / tasks; ++p) {
      const std::uint64_t e = p / shape.panels;
      const auto in = static_cast<std::uint32_t>(p % shape.panels);
      pack_panels(shape, source.data + e * from_each, in, in + 1, to + e * each);
    }
  });
  std::vector<PackedMatrix> result(count, shape);
  for (std::uint32_t e = 0; e < count; ++e) result[e].data = to + e * each;
  packed_.emplace(key, result);
  return result;
}

Result<PackedMatrix> Weights::matrix(std::uint32_t tensor, std::uint32_t layer) {
  const infos_tensor& t = plan_.tensors[tensor];
  const auto one = INFOS_TRY(pack(tensor, layer, 1, static_cast<std::uint32_t>(t.dims[0]),
                                  static_cast<std::uint32_t>(t.dims[1])));
  return one[0];
}

Result<std::vector<PackedMatrix>> Weights::experts(std::uint32_t tensor, std::uint32_t layer) {
  const infos_tensor& t = plan_.tensors[tensor];
  return pack(tensor, layer, static_cast<std::uint32_t>(t.dims[0]),
              static_cast<std::uint32_t>(t.dims[1]), static_cast<std::uint32_t>(t.dims[2]));
}

Result<const float*> Weights::vector(std::uint32_t tensor, std::uint32_t layer) {
  const std::pair key{tensor, plan_.tensors[tensor].per_layer ? layer : 0};
  if (const auto it = vectors_.find(key); it != vectors_.end()) return it->second;
  const Source source = INFOS_TRY(fetch(tensor, layer));
  const auto n = static_cast<std::uint64_t>(plan_.tensors[tensor].dims[0]);
  // Padded: kernels read whole lanes.
  auto* to =
      reinterpret_cast<float*>(INFOS_TRY(keep(round_up(n, kLanes) * sizeof(float), source.name)));
  read_row(source.kind, source.data, n, to);
  vectors_.emplace(key, to);
  return to;
}

Result<Table> Weights::table(std::uint32_t tensor) {
  const infos_tensor& t = plan_.tensors[tensor];
  Table table;
  table.k = static_cast<std::uint32_t>(t.dims[1]);
  bool multiplied = false;
  for (const infos_op& op : plan_.ops)
    multiplied |= op.kind == INFOS_OP_LINEAR && op.inputs[1] == tensor;
  if (multiplied) {
    table.packed = INFOS_TRY(matrix(tensor, 0));
    table.kind = table.packed.kind;
    return table;
  }
  const Source source = INFOS_TRY(fetch(tensor, 0));
  table.kind = source.kind;
  table.stride = row_bytes(source.kind, table.k);
  const std::uint64_t bytes = table.stride * static_cast<std::uint64_t>(t.dims[0]);
  std::uint8_t* to = INFOS_TRY(keep(bytes, source.name));
  std::memcpy(to, source.data, bytes);
  table.rows = to;
  return table;
}

}  // namespace infos::cpu
