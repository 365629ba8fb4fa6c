// SPDX-License-Identifier: Apache-2.0
// PeerNet: this node's links to the other daemons of its cluster: one link a peer, TLS 1.3 with
// certificates on both sides, framed, watched by heartbeats. Owns dialling, accepting, which of two
// connections is the link, incarnations, what a role may say, renewal of the own certificate, and
// the listener where nodes join. There is no plaintext mode. Runs on the one thread of its
// io_context; never decides what a peer's going means: the listener does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/identity.h"
#include "daemon/runtime/peer/liveness.h"
#include "daemon/runtime/peer/peer_messages.h"

namespace boost::asio {
class io_context;
}

namespace infos {

/// A peer that is there.
struct PeerInfo {
  NodeIdentity identity;  ///< as its certificate says
  std::uint32_t incarnation = 0;
  std::uint32_t version = 0;   ///< that both speak
  std::uint64_t features = 0;  ///< that both have
  std::string address;         ///< where it says that it listens; may be empty
};

enum class Suspicion : std::uint8_t { raised, lifted };

/// Who hears of peers. Called on the net's thread; may call anything of the net. For each peer:
/// up, then any number of said and suspect, then down; never up twice in a row.
class PeerListener {
 public:
  virtual ~PeerListener() = default;
  virtual void peer_up(const PeerInfo& peer) = 0;
  /// It has been silent for a while: better not give it new work.
  virtual void peer_suspect(NodeId peer, Suspicion suspicion) {
    static_cast<void>(peer), static_cast<void>(suspicion);
  }
  /// What was sent and not yet heard may be lost. A restarted peer is down before it is up again.
  virtual void peer_down(NodeId peer, const std::string& why) = 0;
  /// A frame of the owner's. `payload` holds until this returns.
  virtual void peer_said(NodeId peer, std::uint16_t kind, std::string_view payload) = 0;
};

struct PeerAddress {
  NodeId node;
  std::string address;  ///< HOST:PORT, or [V6]:PORT
};

struct PeerNetOptions {
  std::string authority;  ///< the cluster's certificate, PEM
  Credential node;        ///< this node's own
  std::uint32_t incarnation = 1;
  std::string address;  ///< to tell peers
  /// For each kind >= kOwnerKinds: a sender needs one of these roles. Kinds that are not here are
  /// refused: say them only to peers with the feature that goes with them.
  std::map<std::uint16_t, RoleSet> may_say;
  std::uint64_t features = 0;
  std::uint32_t version = kPeerVersion;
  std::uint32_t version_min = kPeerVersionMin;
  std::string build;
  LivenessLimits liveness;
  std::size_t unsent_bytes_max = 64u << 20;  ///< a peer that leaves more unread is cut
  std::size_t frame_bytes_max = kPeerFrameBytesMax;
  Duration greeting_limit = seconds(5);  ///< from connection to link, or to the end of a join
  std::size_t strangers_max = 64;        ///< accepted connections that are not yet links
  Duration redial_first = milliseconds(50);
  Duration redial_last = seconds(1);
  std::uint64_t seed = 1;  ///< of the jitter
  std::function<UnixSeconds()> wall_clock = unix_now;
  /// Whether this node may have a link at all: a member, not one that was removed. Empty: all with
  /// a certificate.
  std::function<Status(const NodeIdentity& peer)> admits;
  /// Controllers: answers a peer's (or the own) wish for a new certificate. Empty: refuses.
  std::function<Result<std::string>(const NodeIdentity& peer, const std::string& request)> sign;
  /// The own certificate was renewed: keep it before it is used. Empty: only in memory.
  std::function<Status(const Credential& renewed)> keep;
  /// Controllers: answers a node that joins; `done` on the net's thread, at most once. Empty:
  /// refuses.
  using JoinDone = std::function<void(JoinAnswer)>;
  std::function<void(JoinRequest request, std::string from, JoinDone done)> join;
};

/// One peer, for `infos get nodes` and metrics. Counts are since the net was made.
struct PeerRow {
  NodeId node;
  std::string address;  ///< that is dialled; may be empty
  bool up = false;
  bool suspect = false;
  PeerInfo info;  ///< of the last link
  std::string last_down;
  Duration round_trip;  ///< of the last ping
  std::uint64_t links = 0;
  std::uint64_t frames_in = 0, frames_out = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0;  ///< of payloads
  std::uint64_t unsent_bytes = 0;
};

struct PeerTotals {
  std::uint64_t accepted = 0;
  std::uint64_t dialled = 0;
  std::uint64_t tls_failures = 0;  ///< handshakes that did not end in a connection
  std::uint64_t refused = 0;       ///< hellos refused: foreign, stale, other version, wrong id
  std::uint64_t violations = 0;    ///< links cut for what the peer said
  std::uint64_t slow_cut = 0;      ///< links cut because the peer did not read
  std::uint64_t silent_cut = 0;    ///< links cut by heartbeats
  std::uint64_t strangers_refused = 0;
  std::uint64_t joins = 0;
  std::uint64_t joins_refused = 0;
  std::uint64_t renewals = 0;
};

class PeerNet {
 public:
  /// Errors: invalid_argument (own certificate and key do not fit), unavailable (it has expired and
  /// nothing here can renew it).
  static Result<std::unique_ptr<PeerNet>> make(boost::asio::io_context& io, PeerNetOptions options,
                                               PeerListener& listener);
  /// Cuts all links without a word to the listener.
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  /// Returns: the port. Errors: invalid_argument (not an address), io (in use, ...).
  Result<std::uint16_t> listen(const std::string& address, std::uint16_t port);
  /// Whom to dial until there is a link; replaces the last wish. Links to others stay.
  void set_peers(std::vector<PeerAddress> peers);
  /// Queues a frame, in order. Errors: unavailable (no link), resource_exhausted (the peer does not
  /// read: the link is cut, peer_down comes later), invalid_argument (too long).
  Status send(NodeId peer, std::uint16_t kind, std::string_view payload);
  /// Ends the link; the peer may come back.
  void cut(NodeId peer, const std::string& why);
  /// Closes everything; the listener hears nothing more.
  void stop();

  /// Who this node is, by its newest certificate.
  const NodeIdentity& self() const;
  Validity validity() const;
  bool is_up(NodeId peer) const;
  std::vector<PeerRow> peers() const;
  const PeerTotals& totals() const;

 private:
  struct State;
  explicit PeerNet(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;  // shared with handlers that the io_context still holds
};

}  // namespace infos
