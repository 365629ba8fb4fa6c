// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_hash.h"

#include "transports/tcp/frame_hash_build.h"

namespace infos {

extern const HashBuild kHash_avx2, kHash_avx512;

namespace {

constexpr HashBuild kPlain = kThisBuild;

const HashBuild* widest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &kHash_avx512;
  if (__builtin_cpu_supports("avx2")) return &kHash_avx2;
#endif
  return &kPlain;
}

}  // namespace

FrameHash::FrameHash() : build_(widest()) { reset(); }

}  // namespace infos
