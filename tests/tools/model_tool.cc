// SPDX-License-Identifier: Apache-2.0
// model-tool: makes model files for tests and comparisons.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "devices/engine/checkpoint/inspect.h"
#include "devices/engine/checkpoint/synth.h"
#include "tests/tools/hf_export.h"
#include "tests/tools/requantise.h"

namespace {

using infos::DType;

constexpr const char* kUsage =
    "usage: model-tool hf MODEL.gguf DIRECTORY           the same model as a Hugging Face "
    "directory\n"
    "       model-tool requantise MODEL.gguf DTYPE FILE  the same model with matrices of another "
    "dtype\n"
    "       model-tool synth SHAPE DTYPE FILE [SEED]     random weights of a named shape\n"
    "       model-tool inspect MODEL                     what it is\n"
    "DTYPE: f32 f16 bf16 q8_0 q4_0 q4_k q6_k\n";

DType parse_dtype(const char* word) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k})
    if (std::strcmp(word, infos::to_string(dtype)) == 0) return dtype;
  return DType::none;
}

infos::Status run(int argc, char** argv) {
  const infos::Error usage{infos::ErrorCode::invalid_argument, kUsage};
  if (argc < 3) return usage;
  const std::string verb = argv[1];
  if (verb == "inspect") {
    std::fputs(to_text(INFOS_TRY(infos::inspect_model(argv[2]))).c_str(), stdout);
    return {};
  }
  if (argc < 4) return usage;
  if (verb == "hf") {
    const auto checkpoint = INFOS_TRY(infos::open_checkpoint(argv[2]));
    return infos::test::export_hugging_face(*checkpoint, argv[3]);
  }
  if (argc < 5 || parse_dtype(argv[3]) == DType::none) return usage;
  const DType dtype = parse_dtype(argv[3]);
  if (verb == "requantise") {
    const auto checkpoint = INFOS_TRY(infos::open_checkpoint(argv[2]));
    return infos::test::requantise(*checkpoint, dtype, argv[4]);
  }
  if (verb != "synth") return usage;
  const std::uint64_t seed = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 1;
  return infos::synth_model(
      {.shape = argv[2], .dtype = dtype, .path = argv[4], .seed = seed, .progress = {}});
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run(argc, argv);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
