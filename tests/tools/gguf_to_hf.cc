// SPDX-License-Identifier: Apache-2.0
// gguf-to-hf MODEL.gguf DIRECTORY: writes the same model as a Hugging Face directory. For tests.
#include <cstdio>

#include "tests/tools/hf_export.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: gguf-to-hf MODEL.gguf DIRECTORY\n");
    return 2;
  }
  const auto opened = infos::open_checkpoint(argv[1]);
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return 1;
  }
  const auto done = infos::test::export_hugging_face(**opened, argv[2]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
