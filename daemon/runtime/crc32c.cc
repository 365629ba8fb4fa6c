// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/crc32c.h"

#include <array>

namespace infos {
namespace {

constexpr std::uint32_t kPolynomialReflected = 0x82f63b78;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomialReflected : 0);
    table[byte] = value;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::uint32_t running, std::string_view bytes) {
  std::uint32_t value = ~running;
  for (const char c : bytes)
    value = kTable[(value ^ static_cast<unsigned char>(c)) & 0xff] ^ value >> 8;
  return ~value;
}

}  // namespace infos
