// SPDX-License-Identifier: Apache-2.0
// How a connection becomes the link. Both sides say hello; the node with the smaller id alone
// decides which of several connections is the link, and says welcome on it; so two that dial each
// other at once end up with one link, and both with the same one. A second connection is welcome in
// place of a link only when the peer has restarted or has itself lost that link.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/net_state.h"
#include "topology/base/log.h"

namespace infos {

void PeerNet::State::secured(Conn& conn) {
  const std::optional<std::string>& shown = conn.wire->certificate();
  if (!shown) {
    if (!options.join) return refuse(conn, "it shows no certificate", Fault::peer);
    conn.stage = Stage::joining;
    return;
  }
  conn.stage = Stage::greeting;
  Result<CertificateFacts> facts = read_node_certificate(*shown);
  if (!facts.ok()) return refuse(conn, facts.error().message, Fault::peer);
  conn.facts = *std::move(facts);
  conn.info.identity = conn.facts.identity;
  const NodeIdentity& theirs = conn.info.identity;
  if (theirs.cluster != own.identity.cluster)
    return refuse(conn,
                  fmt::format("it is of cluster '{}', this node is of cluster '{}'", theirs.cluster,
                              own.identity.cluster),
                  Fault::peer);
  if (theirs.node == own.identity.node)
    return refuse(conn, fmt::format("it has the id of this node, {}", theirs.node.value),
                  Fault::peer);
  if (conn.dialled && conn.dialled != theirs.node)
    return refuse(conn,
                  fmt::format("node {} was dialled and node {} answered", conn.dialled.value,
                              theirs.node.value),
                  Fault::peer);
  if (options.admits) {
    const Status admitted = options.admits(theirs);
    if (!admitted.ok()) return refuse(conn, admitted.error().message, Fault::peer);
  }
  if (conn.dialled) conn.wire->send(PeerFrameKind::hello, encode(own_hello(theirs.node)));
}

Hello PeerNet::State::own_hello(NodeId to) {
  const Peer& peer = peer_of(to);
  Hello hello;
  hello.cluster = own.identity.cluster;
  hello.node = own.identity.node;
  hello.incarnation = options.incarnation;
  hello.version = options.version;
  hello.version_min = options.version_min;
  hello.features = options.features;
  hello.last_link = peer.conn == 0 ? peer.last_link : 0;  // only one that is lost
  hello.address = options.address;
  hello.build = options.build;
  return hello;
}

void PeerNet::State::frame(std::uint64_t number, const PeerFrame& said) {
  Conn* conn = find(number);
  if (!conn) return;
  const auto is = [&](PeerFrameKind kind) { return said.kind == static_cast<std::uint16_t>(kind); };
  if (conn->stage == Stage::ending) return;
  if (is(PeerFrameKind::refusal)) {
    const Result<Refusal> refusal = decode_peer<Refusal>(said.payload);
    const std::string reason = refusal.ok() ? refusal->reason.substr(0, 500) : "unreadable";
    return drop(number, "it refused: " + reason);
  }
  if (conn->stage == Stage::joining) return join(*conn, said);
  if (conn->stage == Stage::link) return spoken(*conn, said);
  if (conn->stage == Stage::greeting && is(PeerFrameKind::hello)) return hello(*conn, said.payload);
  if (conn->stage == Stage::welcomed && is(PeerFrameKind::welcome))
    return welcome(*conn, said.payload);
  refuse(*conn, fmt::format("frame of kind {} before the link is made", said.kind), Fault::peer);
}

Status PeerNet::State::check_hello(const Conn& conn, const Hello& theirs) const {
  const NodeIdentity& proven = conn.info.identity;
  if (theirs.node != proven.node || theirs.cluster != proven.cluster)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("it says that it is node {} of cluster '{}'; its certificate says node "
                    "{} of cluster '{}'",
                    theirs.node.value, theirs.cluster.substr(0, 100), proven.node.value,
                    proven.cluster)};
  const auto known = table.find(theirs.node);
  const std::uint32_t newest = known == table.end() ? 0 : known->second.incarnation;
  if (theirs.incarnation < newest || theirs.incarnation == 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("incarnation {} of node {} is over: {} was seen", theirs.incarnation,
                             theirs.node.value, newest)};
  if (known != table.end() && monotonic_now() < known->second.refused_until)
    return Error{ErrorCode::unavailable,
                 fmt::format("node {} broke a rule a moment ago", theirs.node.value)};
  return {};
}

void PeerNet::State::hello(Conn& conn, std::string_view payload) {
  const Result<Hello> theirs = decode_peer<Hello>(payload);
  if (!theirs.ok()) return refuse(conn, theirs.error().message, Fault::peer);
  const Status checked = check_hello(conn, *theirs);
  if (!checked.ok()) return refuse(conn, checked.error().message, Fault::peer);
  const Hello mine = own_hello(theirs->node);
  const Result<std::uint32_t> version = agree_version(mine, *theirs);
  if (!version.ok()) return refuse(conn, version.error().message, Fault::peer);
  conn.info.incarnation = theirs->incarnation;
  conn.info.version = *version;
  conn.info.features = mine.features & theirs->features;
  conn.info.address = theirs->address.substr(0, 300);
  if (!conn.dialled) conn.wire->send(PeerFrameKind::hello, encode(mine));
  if (own.identity.node < theirs->node) return decide(conn, *theirs);
  conn.stage = Stage::welcomed;
}

/// Requires: this node has the smaller id.
void PeerNet::State::decide(Conn& conn, const Hello& theirs) {
  const std::uint64_t number = conn.number;
  Peer& peer = peer_of(theirs.node);
  if (const Conn* link = find(peer.conn)) {
    if (theirs.incarnation > link->info.incarnation)
      drop(peer.conn, fmt::format("it restarted as incarnation {}", theirs.incarnation));
    else if (theirs.last_link == link->link)
      drop(peer.conn, "it lost the link");
    else
      return refuse(conn, "there is a link already", Fault::none);
  }
  Conn* still = find(number);
  if (!still || peer.conn != 0) return;  // the listener did something in between
  still->link = rng.next() | 1;
  still->wire->send(PeerFrameKind::welcome, encode(Welcome{still->link}));
  establish(*still);
}

void PeerNet::State::welcome(Conn& conn, std::string_view payload) {
  const std::uint64_t number = conn.number;
  const Result<Welcome> said = decode_peer<Welcome>(payload);
  if (!said.ok()) return refuse(conn, said.error().message, Fault::peer);
  conn.link = said->link;
  Peer& peer = peer_of(conn.info.identity.node);
  const bool restarted = peer.incarnation != 0 && peer.incarnation < conn.info.incarnation;
  if (peer.conn != 0)
    drop(peer.conn, restarted ? fmt::format("it restarted as incarnation {}", conn.info.incarnation)
                              : "it lost the link");
  Conn* still = find(number);
  if (still && peer.conn == 0) establish(*still);
}

void PeerNet::State::establish(Conn& conn) {
  const Time now = monotonic_now();
  Peer& peer = peer_of(conn.info.identity.node);
  conn.stage = Stage::link;
  conn.liveness.emplace(options.liveness, now);
  conn.wire->set_frame_limit(options.frame_bytes_max);
  peer.conn = conn.number;
  peer.incarnation = conn.info.incarnation;
  peer.last_link = conn.link;
  peer.backoff->reset();
  peer.row.info = conn.info;
  ++peer.row.links;
  const std::uint64_t other = std::exchange(peer.dialling, 0);
  if (other != conn.number) drop(other, "another connection is the link");
  if (conn.wire->tls() != tls) announce(conn);
  log_info("peer", "a link is up",
           {{"node", conn.info.identity.node.value},
            {"name", conn.info.identity.name},
            {"incarnation", conn.info.incarnation},
            {"roles", to_string(conn.info.identity.roles)}});
  const PeerInfo info = conn.info;
  listener->peer_up(info);
}

/// Last words, then the end.
void PeerNet::State::refuse(Conn& conn, const std::string& why, Fault fault) {
  if (fault == Fault::peer) {
    ++totals.refused;
    log_warn(
        "peer", "a connection is refused",
        {{"from", conn.wire->remote()}, {"node", conn.info.identity.node.value}, {"why", why}});
  }
  conn.wire->send(PeerFrameKind::refusal, encode(Refusal{why}));
  end_softly(conn);
  if (conn.dialled) redial_later(conn.number, conn.dialled, why);
}

void PeerNet::State::end_softly(Conn& conn) {
  conn.stage = Stage::ending;
  conn.deadline = monotonic_now() + seconds(1);
  conn.wire->finish();
}

void PeerNet::State::redial_later(std::uint64_t number, NodeId node, const std::string& why) {
  Peer& peer = peer_of(node);
  if (peer.dialling != number) return;
  peer.dialling = 0;
  peer.next_dial = monotonic_now() + peer.backoff->next();
  log_debug("peer", "a dialled connection came to nothing", {{"node", node.value}, {"why", why}});
}

void PeerNet::State::ended(std::uint64_t number, const std::string& why) {
  const Conn* conn = find(number);
  if (!conn) return;
  if (conn->stage == Stage::securing && conn->wire) {
    ++totals.tls_failures;
    log_info("peer", "a TLS handshake failed",
             {{"with", conn->wire->remote()}, {"node", conn->dialled.value}, {"why", why}});
  }
  drop(number, why);
}

void PeerNet::State::close(const Conn& conn) {
  if (conn.wire) conn.wire->close();
  if (!conn.wire && conn.give_up) conn.give_up();
}

void PeerNet::State::drop(std::uint64_t number, const std::string& why) {
  const auto found = number == 0 ? conns.end() : conns.find(number);
  if (found == conns.end()) return;
  const Conn conn = std::move(found->second);
  conns.erase(found);
  close(conn);
  if (conn.dialled && conn.stage != Stage::link) redial_later(number, conn.dialled, why);
  if (conn.stage == Stage::link) unlink(conn, why);
}

/// A link is over; the connection itself is the caller's.
void PeerNet::State::unlink(const Conn& conn, const std::string& why) {
  const NodeId node = conn.info.identity.node;
  Peer& peer = peer_of(node);
  if (peer.conn != conn.number) return;
  peer.conn = 0;
  peer.row.last_down = why;
  peer.next_dial = monotonic_now() + peer.backoff->next();
  log_info("peer", "a link is down", {{"node", node.value}, {"why", why}});
  listener->peer_down(node, why);
}

}  // namespace infos
