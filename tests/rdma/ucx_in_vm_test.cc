// SPDX-License-Identifier: Apache-2.0
// The ucx transport over RDMA lanes passes the suite of all transports, on a real RDMA device
// (run-in-vm has one).
#include "tests/rdma/kill_test_cases.h"
#include "tests/transports/conformance.h"
#include "transports/ucx/ucx.h"

namespace infos::test {
namespace {

/// An emulated processor that moves bytes in interrupts starves its processes for a second.
RdmaOptions in_vm() {
  RdmaOptions options;
  options.silence = std::chrono::seconds(3);
  return options;
}

INFOS_TRANSPORT_CONFORMANCE(
    ucx_rdma,
    [] {
      RdmaOptions options = in_vm();
      options.lanes = RdmaOptions::Lanes::rdma;
      return make_ucx_transport(options);
    },
    Backend::RevokedReads::either);

}  // namespace
}  // namespace infos::test
