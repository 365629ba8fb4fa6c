// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "devices/engine/checkpoint.h"
#include "devices/engine/checkpoint/file_bytes.h"
#include "devices/engine/checkpoint/gguf_checkpoint.h"
#include "devices/engine/checkpoint/hf_checkpoint.h"

namespace infos {

Result<std::unique_ptr<Checkpoint>> open_checkpoint(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) return open_hugging_face(path);
  return open_gguf(INFOS_TRY(FileBytes::map(path)), path);
}

}  // namespace infos
