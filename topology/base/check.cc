// SPDX-License-Identifier: Apache-2.0
#include "topology/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace infos {
void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "infos: check failed: %s at %s:%d\n", condition, file, line);
  std::fflush(stderr);
  std::abort();
}
}  // namespace infos
