// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/checkpoint.h"

namespace infos {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::none:
      return "none";
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i8:
      return "i8";
    case DType::i32:
      return "i32";
    case DType::f64:
      return "f64";
    case DType::q8_0:
      return "q8_0";
    case DType::q4_0:
      return "q4_0";
    case DType::q4_k:
      return "q4_k";
    case DType::q6_k:
      return "q6_k";
  }
  return "unknown";
}

BlockShape block_shape(DType dtype) {
  switch (dtype) {
    case DType::none:
      return {1, 0};
    case DType::f32:
      return {1, 4};
    case DType::f16:
      return {1, 2};
    case DType::bf16:
      return {1, 2};
    case DType::i8:
      return {1, 1};
    case DType::i32:
      return {1, 4};
    case DType::f64:
      return {1, 8};
    case DType::q8_0:
      return {32, 34};  // f16 scale, 32 signed bytes
    case DType::q4_0:
      return {32, 18};  // f16 scale, 32 nibbles
    case DType::q4_k:
      return {256, 144};  // f16 scale and minimum, 8 six-bit pairs of them, 256 nibbles
    case DType::q6_k:
      return {256, 210};  // 256 six-bit values in 4 + 2 bits, 16 signed scales, f16 scale
  }
  return {1, 0};
}

}  // namespace infos
