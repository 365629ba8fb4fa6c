// SPDX-License-Identifier: Apache-2.0
// From the folder of a node's identity to the options of its PeerNet. One thread.
#pragma once

#include "daemon/runtime/peer/identity_dir.h"
#include "daemon/runtime/peer/peer_net.h"

namespace infos {

/// Counts a start of the daemon and fills what the folder decides: certificates, incarnation,
/// address, where a renewed certificate is kept, and, where the authority's key is, how
/// certificates are signed. The rest stays at its default. `dir` must outlive the net. Errors: as
/// next_incarnation.
inline Result<PeerNetOptions> peer_options_of(IdentityDir& dir) {
  PeerNetOptions out;
  out.authority = dir.authority();
  out.node = dir.node();
  out.incarnation = INFOS_TRY(dir.next_incarnation());
  out.address = dir.cluster().address;
  out.seed = (std::uint64_t{dir.who().node.value} << 32) + out.incarnation;
  out.keep = [&dir](const Credential& renewed) { return dir.keep(renewed); };
  if (const std::optional<Credential> signer = dir.signer())
    out.sign = [signer = *signer](const NodeIdentity& peer, const std::string& request) {
      return sign_request(signer, request, peer, node_validity(unix_now()));
    };
  return out;
}

}  // namespace infos
