// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint/gguf_checkpoint.h"

#include <fmt/format.h>

#include "devices/engine/checkpoint/gguf_config.h"
#include "devices/engine/checkpoint/gguf_file.h"
#include "devices/engine/checkpoint/loaded_checkpoint.h"
#include "devices/engine/checkpoint/printable.h"
#include "devices/engine/checkpoint/tensor_check.h"

namespace infos {
namespace {

Result<LoadedCheckpoint::Parts> read_parts(FileBytes file, const std::string& label) {
  const GgufFile gguf = INFOS_TRY(parse_gguf(file.bytes(), label));
  LoadedCheckpoint::Parts parts;
  parts.path = label;
  parts.config = INFOS_TRY(gguf_config(gguf));
  if (const auto valid = parts.config.validate(); !valid)
    return Error{valid.error().code, fmt::format("{}: {}", label, valid.error().message)};
  parts.tokenizer = INFOS_TRY(gguf_tokenizer(gguf));
  parts.config = INFOS_TRY(with_special_tokens(std::move(parts.config), gguf, parts.tokenizer));
  for (const auto& tensor : gguf.tensors)
    parts.tensors.push_back({std::string(tensor.name), tensor.dtype, tensor.dims, tensor.data});
  INFOS_TRY(check_tensors(parts.config, parts.tensors, label));
  parts.files.push_back(std::move(file));
  return parts;
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf(FileBytes file, const std::string& label) {
  auto parts = read_parts(std::move(file), label);
  // Errors quote names out of the file.
  if (!parts) return Error{parts.error().code, printable(parts.error().message)};
  return std::unique_ptr<Checkpoint>(std::make_unique<LoadedCheckpoint>(std::move(parts).value()));
}

}  // namespace infos
