// SPDX-License-Identifier: Apache-2.0
// The kernels for avx512. Everything here is in a namespace of its own and static: nothing compiled
// for this instruction set may be shared with code that runs on other machines, so no header with
// inline functions is included.
#include <immintrin.h>

#include "devices/cpu/kernels.h"

namespace infos::cpu {
namespace avx512 {
namespace {

// Each builds on the ones above it.
// clang-format off
#include "devices/cpu/simd_avx512.h"
#include "devices/cpu/body_elementwise.h"
#include "devices/cpu/body_linear.h"
#include "devices/cpu/body_attention.h"
// clang-format on

}  // namespace
}  // namespace avx512

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = {Isa::avx512,      "avx512",         avx512::quantise,
                                avx512::linear,   avx512::rms_norm, avx512::rope,
                                avx512::add_rows, avx512::silu_mul, avx512::add_scaled,
                                avx512::softmax,  avx512::store_kv, avx512::attention};

}  // namespace infos::cpu
