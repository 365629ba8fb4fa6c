// SPDX-License-Identifier: Apache-2.0
// The kernels for avxvnni. Everything here is in a namespace of its own and static: nothing
// compiled for this instruction set may be shared with code that runs on other machines, so no
// header with inline functions is included.
#include <immintrin.h>

#include "devices/cpu/kernels.h"

namespace infos::cpu {
namespace avxvnni {
namespace {

// Each builds on the ones above it.
// clang-format off
#include "devices/cpu/simd_avx2.h"
#include "devices/cpu/body_elementwise.h"
#include "devices/cpu/body_linear.h"
#include "devices/cpu/body_attention.h"
// clang-format on

}  // namespace
}  // namespace avxvnni

extern const Kernels kAvxvnniKernels;
const Kernels kAvxvnniKernels = {Isa::avxvnni,      "avxvnni",         avxvnni::quantise,
                                 avxvnni::linear,   avxvnni::rms_norm, avxvnni::rope,
                                 avxvnni::add_rows, avxvnni::silu_mul, avxvnni::add_scaled,
                                 avxvnni::softmax,  avxvnni::store_kv, avxvnni::attention};

}  // namespace infos::cpu
