// SPDX-License-Identifier: Apache-2.0
// The ucx transport passes the suite of all transports, over shared memory and over TCP. Its RDMA
// lanes are tested in the guest (in_vm_test.cc).
#include "tests/rdma/kill_test_cases.h"
#include "tests/transports/conformance.h"
#include "transports/ucx/ucx.h"

namespace infos::test {
namespace {

RdmaOptions lanes(RdmaOptions::Lanes lanes) {
  RdmaOptions options;
  options.lanes = lanes;
  return options;
}

INFOS_TRANSPORT_CONFORMANCE(ucx_local,
                            [] { return make_ucx_transport(lanes(RdmaOptions::Lanes::local)); });

TEST(UcxTransport, PlainTextOffLoopback_IsRefusedByName) {
  RdmaOptions options = lanes(RdmaOptions::Lanes::tcp);
  options.host = "192.0.2.1";
  const auto made = make_ucx_transport(options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(made.error().message.find("192.0.2.1"), std::string::npos) << made.error().message;
}

TEST(UcxTransport, AbsentDevice_IsUnsupportedAndNamed) {
  RdmaOptions options = lanes(RdmaOptions::Lanes::rdma);
  options.device = "mlx9_9";
  const auto made = make_ucx_transport(options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::unsupported) << made.error().message;
}

}  // namespace
}  // namespace infos::test
