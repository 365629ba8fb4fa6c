// SPDX-License-Identifier: Apache-2.0
// CRC-32C in every way this CPU has. Oracle: the known check value, and the table for every length,
// offset and cut that the wide ways treat apart.
#include "transports/tcp/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

#include "topology/base/rng.h"

namespace infos {
namespace {

TEST(Crc32c, KnownValue) {
  for (const Crc32c way : {crc32c_table(), crc32c_narrow(), crc32c_wide()}) {
    if (way == nullptr) continue;
    EXPECT_EQ(way(0, "123456789", 9), 0xE3069283u);
    EXPECT_EQ(way(0, nullptr, 0), 0u);
  }
}

TEST(Crc32c, EveryWayAgreesWithTheTableAtEveryLengthAndCut) {
  Rng rng(1);
  std::vector<unsigned char> bytes(5000);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(rng.next());
  for (const Crc32c way : {crc32c_narrow(), crc32c_wide()}) {
    if (way == nullptr) continue;
    for (std::size_t size = 0; size <= 1100; ++size)
      ASSERT_EQ(way(7, bytes.data() + size % 64, size),
                crc32c_table()(7, bytes.data() + size % 64, size))
          << size;
    const std::uint32_t whole = crc32c_table()(0, bytes.data(), bytes.size());
    for (int i = 0; i < 300; ++i) {
      const std::size_t cut = rng.below(bytes.size() + 1);
      ASSERT_EQ(way(way(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut), whole)
          << cut;
    }
  }
}

}  // namespace
}  // namespace infos
