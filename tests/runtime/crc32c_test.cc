// SPDX-License-Identifier: Apache-2.0
// Goal: the checksum is CRC32C. Method: the published check values.
#include "daemon/runtime/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace infos {
namespace {

TEST(Crc32c, PublishedValues_Agree) {
  // Source: RFC 3720, appendix B.4, and the catalogue's check value.
  EXPECT_EQ(crc32c(0, "123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(0, std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(0, std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, InPieces_IsTheSame) { EXPECT_EQ(crc32c(crc32c(0, "1234"), "56789"), 0xe3069283u); }

}  // namespace
}  // namespace infos
