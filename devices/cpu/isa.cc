// SPDX-License-Identifier: Apache-2.0
// Which instruction sets this machine and this build have.
#include "devices/cpu/kernels.h"

#include <initializer_list>

#include "topology/base/check.h"

namespace infos::cpu {

extern const Kernels kGenericKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxvnniKernels;
extern const Kernels kAvx512Kernels;
#endif

namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

// AVX-VNNI: CPUID leaf 7, subleaf 1, EAX bit 4. The compiler's name list does not have it.
bool has_avxvnni() {
  unsigned a = 7, b = 0, c = 1, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return has_avx2() && ((a >> 4) & 1U) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

bool isa_supported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return has_avx2();
    case Isa::avxvnni:
      return has_avxvnni();
    case Isa::avx512:
      return has_avx512();
  }
  return false;
#else
  return isa == Isa::generic;
#endif
}

Isa best_isa() {
  for (const Isa isa : {Isa::avx512, Isa::avxvnni, Isa::avx2}) {
    if (isa_supported(isa)) return isa;
  }
  return Isa::generic;
}

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avxvnni:
      return "avxvnni";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

const Kernels& kernels_for(Isa isa) {
  INFOS_CHECK(isa_supported(isa));
#if defined(__x86_64__)
  switch (isa) {
    case Isa::generic:
      break;
    case Isa::avx2:
      return kAvx2Kernels;
    case Isa::avxvnni:
      return kAvxvnniKernels;
    case Isa::avx512:
      return kAvx512Kernels;
  }
#endif
  return kGenericKernels;
}

}  // namespace infos::cpu
