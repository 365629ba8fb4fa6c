// SPDX-License-Identifier: Apache-2.0
// The ucx transport over TCP lanes passes the suite of all transports.
#include "tests/rdma/kill_test_cases.h"
#include "tests/transports/conformance.h"
#include "transports/ucx/ucx.h"

namespace infos::test {
namespace {

INFOS_TRANSPORT_CONFORMANCE(ucx_tcp, [] {
  RdmaOptions options;
  options.lanes = RdmaOptions::Lanes::tcp;
  return make_ucx_transport(options);
});

}  // namespace
}  // namespace infos::test
