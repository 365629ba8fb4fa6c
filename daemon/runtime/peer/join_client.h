// SPDX-License-Identifier: Apache-2.0
// The joining side: asks a controller for a certificate with a token. Believes only a server whose
// chain ends in the authority with the pinned key hash and whose certificate has the role
// controller: any other member could keep the token for itself. Blocks; its own event loop.
#pragma once

#include <functional>
#include <string>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/identity_dir.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// Where daemons listen for each other when nothing is said.
constexpr std::uint16_t kPeerPort = 7400;

struct JoinWish {
  std::string server;  ///< HOST:PORT of a controller's peer listener
  std::string token;
  std::string authority_hash;  ///< "sha256:" and 64 hex digits
  std::string name;
  std::string listen;   ///< HOST:PORT, for the folder; empty: this machine's end of the connection
                        ///< to the server, with kPeerPort
  std::string address;  ///< HOST:PORT that others will dial; empty: `listen`
  Duration limit = seconds(15);
  std::function<UnixSeconds()> wall_clock = unix_now;
};

/// Returns: what IdentityDir::create takes. Errors: invalid_argument (a value is malformed, or the
/// controller refused), unavailable (not reached, or not to be believed), deadline_exceeded,
/// corrupt (an answer that does not fit).
Result<NewIdentity> join_cluster(JoinWish wish);

}  // namespace infos
