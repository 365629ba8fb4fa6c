// SPDX-License-Identifier: Apache-2.0
// The verbs transport passes the suite of all transports, on a real RDMA device (run-in-vm has
// one): with one rail, and with two rails and registrations of 64 KiB, so that every larger
// operation crosses slices on both sides.
#include "tests/rdma/kill_test_cases.h"
#include "tests/transports/conformance.h"
#include "transports/verbs/verbs.h"

namespace infos::test {
namespace {

/// An emulated processor that moves bytes in interrupts starves its processes for a second.
RdmaOptions in_vm() {
  RdmaOptions options;
  options.silence = std::chrono::seconds(3);
  return options;
}

// A grant for reads lives as long as its region: the device refuses no read of a region's key, but
// the owner is asked for keys first.
INFOS_TRANSPORT_CONFORMANCE(
    verbs, [] { return make_verbs_transport(in_vm()); }, Backend::RevokedReads::either);

INSTANTIATE_TEST_SUITE_P(Sliced, TransportConformance,
                         ::testing::Values(Backend{"verbs_sliced",
                                                   [] {
                                                     RdmaOptions options = in_vm();
                                                     options.rails = 2;
                                                     options.slice_bytes = 64 * 1024;
                                                     return make_verbs_transport(options);
                                                   },
                                                   Backend::RevokedReads::either}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace infos::test
