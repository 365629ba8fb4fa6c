// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/pack.h"

#include <cstring>

#include "devices/abi/infos_device.h"
#include "devices/cpu/half.h"

namespace infos::cpu {
namespace {

std::uint16_t load_u16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

/// 32 weights of one row: value = scale[i / 16] * (q[i] - zero) - minimum, all f32.
struct Sub {
  std::uint8_t q[kBlock];
  std::uint8_t scale_code[2];  ///< Q4_K: scale and minimum codes; Q6_K: signed scales of the halves
  std::uint16_t d = 0, d_min = 0;  ///< f16 bits
};

/// Source: the Q4_K scale packing of GGUF: eight 6-bit scales and minima in 12 bytes.
void scale_and_min(const std::uint8_t* codes, int j, std::uint8_t (&out)[2]) {
  if (j < 4) {
    out[0] = codes[j] & 63U;
    out[1] = codes[j + 4] & 63U;
  } else {
    out[0] = static_cast<std::uint8_t>((codes[j + 4] & 0xFU) | ((codes[j - 4] >> 6U) << 4U));
    out[1] = static_cast<std::uint8_t>((codes[j + 4] >> 4U) | ((codes[j] >> 6U) << 4U));
  }
}

/// Values 32*sub .. 32*sub+31 of a 256-value Q6_K block.
void read_q6_k(const std::uint8_t* block, int sub, Sub& out) {
  const std::uint8_t* ql = block + (sub / 4) * 64 + (sub % 2) * 32;
  const std::uint8_t* qh = block + 128 + (sub / 4) * 32;
  const int part = sub % 4;
  for (int i = 0; i < 32; ++i) {
    const unsigned low = part < 2 ? ql[i] & 0xFU : ql[i] >> 4U;
    out.q[i] = static_cast<std::uint8_t>(low | (((qh[i] >> (2U * part)) & 3U) << 4U));
  }
  out.scale_code[0] = block[192 + 2 * sub];
  out.scale_code[1] = block[192 + 2 * sub + 1];
  out.d = load_u16(block + 208);
}

/// Block b (of 32) of a row as it lies in a file.
Sub read_sub(WeightKind kind, const std::uint8_t* row, std::uint64_t b) {
  Sub s{};
  switch (kind) {
    case WeightKind::q8_0: {
      const std::uint8_t* block = row + b * 34;
      s.d = load_u16(block);
      for (int i = 0; i < 32; ++i) s.q[i] = static_cast<std::uint8_t>(block[2 + i] ^ 0x80U);
      break;
    }
    case WeightKind::q4_0: {
      const std::uint8_t* block = row + b * 18;
      s.d = load_u16(block);
      for (int i = 0; i < 16; ++i) {
        s.q[i] = block[2 + i] & 0xFU;
        s.q[i + 16] = block[2 + i] >> 4U;
      }
      break;
    }
    case WeightKind::q4_k: {
      const std::uint8_t* block = row + b / 8 * 144;
      const int sub = static_cast<int>(b % 8);
      s.d = load_u16(block);
      s.d_min = load_u16(block + 2);
      scale_and_min(block + 4, sub, s.scale_code);
      const std::uint8_t* q = block + 16 + sub / 2 * 32;
      for (int i = 0; i < 32; ++i) s.q[i] = sub % 2 ? q[i] >> 4U : q[i] & 0xFU;
      break;
    }
    case WeightKind::q6_k:
      read_q6_k(row + b / 8 * 210, static_cast<int>(b % 8), s);
      break;
    default:
      break;
  }
  return s;
}

/// The values of a sub-block, in the arithmetic of the file format.
void widen(WeightKind kind, const Sub& s, float* out) {
  const float d = from_f16(s.d);
  for (int i = 0; i < 32; ++i) {
    const float q = s.q[i];
    switch (kind) {
      case WeightKind::q8_0:
        out[i] = d * (q - 128.0F);
        break;
      case WeightKind::q4_0:
        out[i] = d * (q - 8.0F);
        break;
      case WeightKind::q4_k:
        out[i] = d * s.scale_code[0] * q - from_f16(s.d_min) * s.scale_code[1];
        break;
      case WeightKind::q6_k:
        out[i] =
            d * static_cast<float>(static_cast<std::int8_t>(s.scale_code[i / 16])) * (q - 32.0F);
        break;
      default:
        break;
    }
  }
}

/// Where the parts of block b, column c lie in a panel: see the Panel* types of body_linear.h.
struct Place {
  std::uint8_t *q, *high, *scale, *d;
};
Place place(WeightKind kind, std::uint8_t* panel, std::uint64_t k, std::uint64_t b,
            std::uint32_t c) {
  switch (kind) {
    case WeightKind::q8_0:
      return {panel + b * 512 + c * 4, nullptr, nullptr, panel + k * 16 + b * 32 + c * 2};
    case WeightKind::q4_0:
      return {panel + b * 256 + c * 4, nullptr, nullptr, panel + k * 8 + b * 32 + c * 2};
    case WeightKind::q4_k:
      return {panel + b * 256 + c * 4, nullptr, panel + k * 8 + b * 32 + c,
              panel + k * 9 + b / 8 * 64 + c * 2};
    case WeightKind::q6_k:
      return {panel + b * 256 + c * 4, panel + k * 8 + b * 128 + c * 4, panel + k * 12 + b * 32 + c,
              panel + k * 13 + b / 8 * 32 + c * 2};
    default:
      return {};
  }
}

void put_sub(WeightKind kind, const Sub& s, const Place& p) {
  std::memcpy(p.d, &s.d, 2);
  if (kind == WeightKind::q4_k) std::memcpy(p.d + 32, &s.d_min, 2);
  if (p.scale) {
    p.scale[0] = s.scale_code[0];
    p.scale[16] = s.scale_code[1];
  }
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      const std::uint8_t q = s.q[4 * j + i];
      if (kind == WeightKind::q8_0) {
        p.q[j * 64 + i] = q;
        continue;
      }
      p.q[j % 4 * 64 + i] |= static_cast<std::uint8_t>((q & 0xFU) << (j / 4 * 4));
      if (p.high) p.high[j % 2 * 64 + i] |= static_cast<std::uint8_t>((q >> 4U) << (j / 2 * 2));
    }
  }
}

Sub get_sub(WeightKind kind, const Place& p) {
  Sub s{};
  std::memcpy(&s.d, p.d, 2);
  if (kind == WeightKind::q4_k) std::memcpy(&s.d_min, p.d + 32, 2);
  if (p.scale) {
    s.scale_code[0] = p.scale[0];
    s.scale_code[1] = p.scale[16];
  }
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 4; ++i) {
      std::uint8_t& q = s.q[4 * j + i];
      if (kind == WeightKind::q8_0) {
        q = p.q[j * 64 + i];
        continue;
      }
      q = (p.q[j % 4 * 64 + i] >> (j / 4 * 4)) & 0xFU;
      if (p.high)
        q |= static_cast<std::uint8_t>(((p.high[j % 2 * 64 + i] >> (j / 2 * 2)) & 3U) << 4U);
    }
  }
  return s;
}

}  // namespace

std::optional<WeightKind> weight_kind(std::uint32_t dtype) {
  switch (dtype) {
    case INFOS_F32:
      return WeightKind::f32;
    case INFOS_F16:
      return WeightKind::f16;
    case INFOS_BF16:
      return WeightKind::bf16;
    case INFOS_Q8_0:
      return WeightKind::q8_0;
    case INFOS_Q4_0:
      return WeightKind::q4_0;
    case INFOS_Q4_K:
      return WeightKind::q4_k;
    case INFOS_Q6_K:
      return WeightKind::q6_k;
    default:
      return std::nullopt;
  }
}

std::uint32_t block_elements(WeightKind kind) {
  switch (kind) {
    case WeightKind::q8_0:
    case WeightKind::q4_0:
      return 32;
    case WeightKind::q4_k:
    case WeightKind::q6_k:
      return 256;
    default:
      return 1;
  }
}

std::uint64_t row_bytes(WeightKind kind, std::uint64_t k) {
  switch (kind) {
    case WeightKind::f32:
      return k * 4;
    case WeightKind::f16:
    case WeightKind::bf16:
      return k * 2;
    case WeightKind::q8_0:
      return k / 32 * 34;
    case WeightKind::q4_0:
      return k / 32 * 18;
    case WeightKind::q4_k:
      return k / 256 * 144;
    case WeightKind::q6_k:
      return k / 256 * 210;
  }
  return 0;
}

PackedMatrix packed_shape(WeightKind kind, std::uint32_t n, std::uint32_t k) {
  PackedMatrix m;
  m.kind = kind;
  m.n = n;
  m.k = k;
  m.panels = (n + kLanes - 1) / kLanes;
  const std::size_t blocks = k / kBlock, supers = k / 256;
  switch (kind) {
    case WeightKind::f32:
      m.panel_bytes = std::size_t{k} * 64;
      break;
    case WeightKind::f16:
    case WeightKind::bf16:
      m.panel_bytes = std::size_t{k} * 32;
      break;
    case WeightKind::q8_0:
      m.panel_bytes = blocks * (512 + 32);
      break;
    case WeightKind::q4_0:
      m.panel_bytes = blocks * (256 + 32);
      break;
    case WeightKind::q4_k:
      m.panel_bytes = blocks * (256 + 32) + supers * 64;
      break;
    case WeightKind::q6_k:
      m.panel_bytes = blocks * (256 + 128 + 32) + supers * 32;
      break;
  }
  m.panel_bytes = round_up(m.panel_bytes, 64);
  return m;
}

void pack_panels(const PackedMatrix& shape, const void* source, std::uint32_t begin,
                 std::uint32_t end, std::uint8_t* out) {
  const std::uint64_t stride = row_bytes(shape.kind, shape.k);
  const std::size_t element = shape.kind == WeightKind::f32 ? 4 : 2;
  for (std::uint32_t p = begin; p < end; ++p) {
    std::uint8_t* panel = out + p * shape.panel_bytes;
    for (std::uint32_t c = 0; c < kLanes && p * kLanes + c < shape.n; ++c) {
      const auto* row = static_cast<const std::uint8_t*>(source) + (p * kLanes + c) * stride;
      if (is_integer(shape.kind)) {
        for (std::uint64_t b = 0; b < shape.k / kBlock; ++b) {
          put_sub(shape.kind, read_sub(shape.kind, row, b),
                  place(shape.kind, panel, shape.k, b, c));
        }
      } else if (element == 4) {
        for (std::uint64_t i = 0; i < shape.k; ++i)
          std::memcpy(panel + (i * kLanes + c) * 4, row + i * 4, 4);
      } else {
        for (std::uint64_t i = 0; i < shape.k; ++i)
          std::memcpy(panel + (i * kLanes + c) * 2, row + i * 2, 2);
      }
    }
  }
}

void read_row(WeightKind kind, const void* row, std::uint64_t k, float* out) {
  const auto* p = static_cast<const std::uint8_t*>(row);
  switch (kind) {
    case WeightKind::f32:
      std::memcpy(out, p, k * 4);
      return;
    case WeightKind::f16:
      for (std::uint64_t i = 0; i < k; ++i) out[i] = from_f16(load_u16(p + 2 * i));
      return;
    case WeightKind::bf16:
      for (std::uint64_t i = 0; i < k; ++i) out[i] = from_bf16(load_u16(p + 2 * i));
      return;
    default:
      for (std::uint64_t b = 0; b < k / kBlock; ++b)
        widen(kind, read_sub(kind, p, b), out + b * kBlock);
  }
}

void read_packed_row(const PackedMatrix& m, std::uint32_t row, float* out) {
  // place() serves writers too; nothing is written here.
  auto* panel = const_cast<std::uint8_t*>(m.data) + row / kLanes * m.panel_bytes;
  const std::uint32_t c = row % kLanes;
  for (std::uint64_t i = 0; !is_integer(m.kind) && i < m.k; ++i) {
    switch (m.kind) {
      case WeightKind::f32:
        std::memcpy(out + i, panel + (i * kLanes + c) * 4, 4);
        break;
      case WeightKind::f16:
        out[i] = from_f16(load_u16(panel + (i * kLanes + c) * 2));
        break;
      default:
        out[i] = from_bf16(load_u16(panel + (i * kLanes + c) * 2));
        break;
    }
  }
  for (std::uint64_t b = 0; is_integer(m.kind) && b < m.k / kBlock; ++b) {
    widen(m.kind, get_sub(m.kind, place(m.kind, panel, m.k, b, c)), out + b * kBlock);
  }
}

}  // namespace infos::cpu
