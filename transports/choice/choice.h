// SPDX-License-Identifier: Apache-2.0
// Decides over which transport two workers move KV, and says why in one sentence. Pure: the same
// two offers give the same answer on both sides, in either order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace infos {

/// What one worker can do.
struct LinkOffer {
  std::string name;  ///< of the worker, for the sentence: "n1/0"
  /// Names the running kernel and its process ids (boot id and pid namespace); equal: shared memory
  /// reaches. "": not known.
  std::string host;
  std::vector<TransportKind> kinds;  ///< what it has open
  std::string rdma_device;           ///< "mlx5_0"; "": none
  std::string rdma_fabric;           ///< "infiniband" or "roce"; only equal ones meet
};

struct LinkChoice {
  std::optional<TransportKind> kind;  ///< none: they cannot reach each other
  std::string reason;                 ///< one sentence, for people
};

/// Same host: shm. RDMA devices of one fabric: verbs, else ucx. Else tcp, else ucx over what it
/// has.
LinkChoice choose_transport(const LinkOffer& a, const LinkOffer& b);

}  // namespace infos
