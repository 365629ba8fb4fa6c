// SPDX-License-Identifier: Apache-2.0
// The kernels for avx2. Everything here is in a namespace of its own and static: nothing compiled
// for this instruction set may be shared with code that runs on other machines, so no header with
// inline functions is included.
#include <immintrin.h>

#include "devices/cpu/kernels.h"

namespace infos::cpu {
namespace avx2 {
namespace {

// Each builds on the ones above it.
// clang-format off
#include "devices/cpu/simd_avx2.h"
#include "devices/cpu/body_elementwise.h"
#include "devices/cpu/body_linear.h"
#include "devices/cpu/body_attention.h"
// clang-format on

}  // namespace
}  // namespace avx2

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = {Isa::avx2,        "avx2",        avx2::quantise, avx2::linear,
                              avx2::rms_norm,   avx2::rope,    avx2::add_rows, avx2::silu_mul,
                              avx2::add_scaled, avx2::softmax, avx2::store_kv, avx2::attention};

}  // namespace infos::cpu
