// SPDX-License-Identifier: Apache-2.0
// IdentityDir: the folder that makes a machine a node of a cluster. Owns its layout, its modes and
// its lock: one process at a time. Every file is replaced whole or not at all. One thread.
//
//   DIR/            0700
//     ca.pem        the cluster's authority
//     ca.key        its private key: only where certificates are signed, the first node
//     node.pem      this node's private key and certificate; the last file that is written
//     cluster.json  the cluster's name, where this node listens, who its controllers are
//     incarnation   counts the starts of the daemon
//     lock          held while a process uses the folder                       (files: 0600)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/unique_fd.h"
#include "topology/base/result.h"

namespace infos {

/// A controller that a node dials first.
struct ControllerAddress {
  NodeId node;
  std::string address;  ///< HOST:PORT
  friend bool operator==(const ControllerAddress&, const ControllerAddress&) = default;
};

struct ClusterFile {
  std::string cluster;
  std::string listen;   ///< HOST:PORT of the peer listener
  std::string address;  ///< HOST:PORT that others dial
  std::vector<ControllerAddress> controllers;
  friend bool operator==(const ClusterFile&, const ClusterFile&) = default;
};
std::string to_json(const ClusterFile& file);
/// Errors: corrupt, naming the member.
Result<ClusterFile> parse_cluster_file(std::string_view json);

/// What a node is given: all that a new folder holds.
struct NewIdentity {
  std::string authority;
  std::string authority_key;  ///< empty: not here
  Credential node;
  ClusterFile cluster;
};

struct FirstNode {
  std::string cluster;
  std::string name;
  std::string listen;
  std::string address;
};
/// A new cluster with node 1, which has the roles controller, gateway and worker. Errors:
/// invalid_argument.
Result<NewIdentity> make_first_node(const FirstNode& wish, UnixSeconds now);

class IdentityDir {
 public:
  /// Makes the folder (and those above it) or fills an empty one. Errors: already_exists (a node
  /// lives here), io.
  static Status create(const std::string& path, const NewIdentity& identity);
  /// Whether create() may be called: makes the folder. Errors: as create().
  static Status check_free(const std::string& path);
  /// Errors: not_found (no node lives here), unavailable (another process has it), io, corrupt (a
  /// file is damaged or others may read it).
  static Result<IdentityDir> open(const std::string& path);

  const std::string& authority() const { return identity_.authority; }
  /// Key and certificate of the authority. Nothing: certificates are signed elsewhere.
  std::optional<Credential> signer() const;
  const Credential& node() const { return identity_.node; }
  const NodeIdentity& who() const { return who_; }
  const ClusterFile& cluster() const { return identity_.cluster; }
  /// Counts a start: from 1, one more each time, kept before it is returned. Errors: io,
  /// resource_exhausted.
  Result<std::uint32_t> next_incarnation();
  /// Replaces node.pem.
  Status keep(const Credential& renewed);

 private:
  IdentityDir() = default;
  std::string path_;
  UniqueFd lock_;
  NewIdentity identity_;
  NodeIdentity who_;
};

/// Where a node's identity lives when nothing is said: /var/lib/infos/cluster for root, else under
/// $XDG_STATE_HOME or ~/.local/state.
std::string default_identity_dir();

}  // namespace infos
