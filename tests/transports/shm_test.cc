// SPDX-License-Identifier: Apache-2.0
// The shm transport keeps the contract of transports. Method: the conformance suite, and what only
// it promises: a grant outlives nothing, memory comes back, a stranger's file is not opened.
#include "tests/transports/conformance.h"
#include "transports/shm/shm_transport.h"

namespace infos::test {
namespace {

INFOS_TRANSPORT_CONFORMANCE(shm, [] { return make_shm_transport({}); });

TEST(Shm, MemoryThatWasFreed_ComesBackZeroed) {
  const auto transport = make_shm_transport({}).value();
  for (int round = 0; round < 3; ++round) {
    const Memory small = make_memory(*transport, 5000), large = make_memory(*transport, 3u << 20);
    EXPECT_TRUE(all_are(small.bytes, std::byte{0}));
    EXPECT_TRUE(all_are(large.bytes, std::byte{0}));
    fill(small.bytes, 1);
    fill(large.bytes, 2);
    transport->forget(small.region);
    transport->forget(large.region);
  }
  EXPECT_EQ(transport->stats().regions_open, 0u);
}

TEST(Shm, ForeignMemory_IsNotAdopted) {
  const auto transport = make_shm_transport({}).value();
  std::vector<std::byte> foreign(4096);
  const auto region = transport->adopt(foreign);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.error().code, ErrorCode::unsupported);
  const Memory own = make_memory(*transport, 8192);
  EXPECT_TRUE(transport->adopt(own.bytes.subspan(100, 1000)).ok());
  EXPECT_TRUE(transport->adopt(own.bytes).ok());
}

}  // namespace
}  // namespace infos::test
