// SPDX-License-Identifier: Apache-2.0
// Which transport two workers get, and the sentence that says why. Method: a table; each row is
// asked in both orders.
#include "transports/choice/choice.h"

#include <gtest/gtest.h>

namespace infos {
namespace {

using K = TransportKind;

TEST(Choice, EachPairGetsItsBestLinkAndTheReason) {
  const LinkOffer here{"n1/0", "boot-1", {K::shm, K::tcp, K::ucx, K::verbs}, "mlx5_0", "roce"};
  LinkOffer same = here, other = here, no_rdma = here, infiniband = here, ucx_only = here;
  same.name = "n1/1";
  other.name = "n2/0", other.host = "boot-2", other.rdma_device = "rxe0";
  no_rdma.name = "n3/0", no_rdma.host = "boot-3", no_rdma.rdma_device = "";
  infiniband = other, infiniband.rdma_fabric = "infiniband";
  ucx_only = other, ucx_only.kinds = {K::ucx, K::tcp};
  LinkOffer closed = same, alone = other, unknown = same, plain = no_rdma;
  closed.kinds = {K::tcp};
  alone.kinds = {K::shm};
  unknown.host = "";
  unknown.rdma_device = "";
  plain.name = "n4/0", plain.host = "boot-4", plain.kinds = {K::ucx};
  struct Row {
    LinkOffer a, b;
    std::optional<K> kind;
    std::string reason;
  };
  const Row rows[] = {
      {here, same, K::shm, "shm: n1/0 and n1/1 run on one host"},
      {here, other, K::verbs,
       "verbs: they run on different hosts; n1/0 and n2/0 have the RDMA devices mlx5_0 and rxe0"},
      {here, ucx_only, K::ucx,
       "ucx: they run on different hosts; n1/0 and n2/0 have the RDMA devices mlx5_0 and rxe0"},
      {here, no_rdma, K::tcp, "tcp: they run on different hosts; n3/0 has no RDMA device"},
      {here, infiniband, K::tcp,
       "tcp: they run on different hosts; their RDMA devices are of different fabrics (roce, "
       "infiniband)"},
      {here, closed, K::tcp,
       "tcp: n1/1 has no shared memory open; they have no RDMA transport in common"},
      {here, unknown, K::tcp, "tcp: they run on different hosts; n1/1 has no RDMA device"},
      {no_rdma, plain, K::ucx, "ucx: they run on different hosts; neither has an RDMA device"},
      {here, alone, std::nullopt,
       "no transport between n1/0 and n2/0: they run on different hosts; they have no RDMA "
       "transport in common; they have neither tcp nor ucx in common"},
  };
  for (const Row& row : rows) {
    for (const bool turned : {false, true}) {
      const LinkChoice choice =
          turned ? choose_transport(row.b, row.a) : choose_transport(row.a, row.b);
      EXPECT_EQ(choice.kind, row.kind) << choice.reason;
      EXPECT_EQ(choice.reason, row.reason);
    }
  }
}

}  // namespace
}  // namespace infos
