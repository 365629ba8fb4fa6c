// SPDX-License-Identifier: Apache-2.0
// The kernels in plain C++, for any machine; also the meaning that the other instruction sets are
// tested against.
#include <cstring>

#include "devices/cpu/half.h"
#include "devices/cpu/kernels.h"

namespace infos::cpu {
namespace generic {
namespace {

// Each builds on the ones above it.
// clang-format off
#include "devices/cpu/simd_generic.h"
#include "devices/cpu/body_elementwise.h"
#include "devices/cpu/body_linear.h"
#include "devices/cpu/body_attention.h"
// clang-format on

}  // namespace
}  // namespace generic

extern const Kernels kGenericKernels;
const Kernels kGenericKernels = {Isa::generic,      "generic",         generic::quantise,
                                 generic::linear,   generic::rms_norm, generic::rope,
                                 generic::add_rows, generic::silu_mul, generic::add_scaled,
                                 generic::softmax,  generic::store_kv, generic::attention};

}  // namespace infos::cpu
