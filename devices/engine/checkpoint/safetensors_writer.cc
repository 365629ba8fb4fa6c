// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "devices/engine/checkpoint/atomic_file.h"

namespace infos {
namespace {

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::f64:
      return "F64";
    case DType::i32:
      return "I32";
    case DType::i8:
      return "I8";
    default:
      return nullptr;
  }
}

}  // namespace

std::vector<std::byte> safetensors_header(std::span<const TensorView> tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const auto& tensor : tensors) {
    const char* dtype = safetensors_name(tensor.dtype);
    INFOS_CHECK(dtype != nullptr);
    text +=
        fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                    dtype, fmt::join(tensor.dims, ","), at, at + tensor.data.size());
    at += tensor.data.size();
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::vector<std::byte> out(8 + text.size());
  const std::uint64_t length = text.size();
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, text.data(), text.size());
  return out;
}

Status write_safetensors(const std::string& path, std::span<const TensorView> tensors) {
  auto file = INFOS_TRY(AtomicFile::create(path));
  INFOS_TRY(file.write(safetensors_header(tensors)));
  for (const auto& tensor : tensors) INFOS_TRY(file.write(tensor.data));
  return file.commit();
}

}  // namespace infos
