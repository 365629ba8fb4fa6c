// SPDX-License-Identifier: Apache-2.0
// The inside of PeerNet: connections by number, peers by node id. Split over peer_net.cc (sockets,
// time), net_greeting.cc (which connection becomes the link) and net_speech.cc (what a link says).
// Internal to PeerNet; its thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "daemon/runtime/peer/connection.h"
#include "daemon/runtime/peer/peer_net.h"
#include "topology/base/rng.h"

namespace infos {

struct PeerNet::State : std::enable_shared_from_this<PeerNet::State> {
  using Tcp = boost::asio::ip::tcp;
  enum class Stage : std::uint8_t {
    securing,  ///< the TLS handshake is under way
    greeting,  ///< hellos are on their way
    welcomed,  ///< this node waits for the peer's welcome
    joining,   ///< a stranger without a certificate
    link,
    ending,  ///< writes its last words
  };
  struct Conn {
    std::uint64_t number = 0;
    std::shared_ptr<PeerConnection> wire;
    std::function<void()> give_up;  ///< ends the dial, as long as there is no `wire`
    Stage stage = Stage::securing;
    NodeId dialled;  ///< 0: accepted
    Time deadline;   ///< of everything before `link`, and of `ending`
    CertificateFacts facts;
    PeerInfo info;
    std::uint64_t link = 0;  ///< its random name; 0: none yet
    std::optional<Liveness> liveness;
    bool suspect = false;
    bool asked_to_join = false;
    Time renewals_from;  ///< earlier ones are refused
  };
  struct Peer {
    std::string address;         ///< to dial; empty: wait for it
    std::uint64_t conn = 0;      ///< its link; 0: none
    std::uint64_t dialling = 0;  ///< the attempt under way; 0: none
    Time next_dial;
    std::optional<Backoff> backoff;
    std::uint32_t incarnation = 0;  ///< the newest that was seen
    std::uint64_t last_link = 0;
    Time refused_until;  ///< it broke a rule
    PeerRow row;
  };

  State(boost::asio::io_context& c, PeerNetOptions o, PeerListener& l)
      : io(c), options(std::move(o)), listener(&l), acceptor(c), timer(c), rng(options.seed) {}

  boost::asio::io_context& io;
  PeerNetOptions options;
  PeerListener* listener;
  std::shared_ptr<TlsContext> tls;
  CertificateFacts own;
  Tcp::acceptor acceptor;
  boost::asio::steady_timer timer;
  Rng rng;
  std::map<std::uint64_t, Conn> conns;
  std::map<NodeId, Peer> table;
  std::uint64_t last_number = 0;
  PeerTotals totals;
  bool stopped = false;
  // Renewal of the own certificate.
  std::string new_key;  ///< that an answer is awaited for; empty: none
  std::uint64_t renewing_with = 0;
  Time renew_deadline;
  Time next_renewal;
  Time next_expiry_check;

  // peer_net.cc: sockets and time
  Status use_credential(const Credential& credential);
  void accept();
  void accepted(Tcp::socket socket);
  void dial(NodeId node, Peer& peer);
  void adopt(Tcp::socket socket, NodeId dialled, std::uint64_t number);
  void tick();
  void arm();
  void check_links(Time now);
  void check_dials(Time now);
  Peer& peer_of(NodeId node);
  Conn* find(std::uint64_t number);

  // net_greeting.cc: from connection to link
  void secured(Conn& conn);
  void frame(std::uint64_t number, const PeerFrame& frame);
  void hello(Conn& conn, std::string_view payload);
  Status check_hello(const Conn& conn, const Hello& theirs) const;
  Hello own_hello(NodeId to);
  void decide(Conn& conn, const Hello& theirs);
  void welcome(Conn& conn, std::string_view payload);
  void establish(Conn& conn);
  enum class Fault : std::uint8_t { none, peer };
  void refuse(Conn& conn, const std::string& why, Fault fault);
  void end_softly(Conn& conn);
  void redial_later(std::uint64_t number, NodeId node, const std::string& why);
  void ended(std::uint64_t number, const std::string& why);
  static void close(const Conn& conn);
  /// Ends a connection of any stage, and tells the listener if it was the link.
  void drop(std::uint64_t number, const std::string& why);
  void unlink(const Conn& conn, const std::string& why);

  // net_speech.cc: what is said on a link, and by strangers
  void spoken(Conn& conn, const PeerFrame& frame);
  void violation(Conn& conn, const std::string& why);
  void heard_ping(Conn& conn, std::string_view payload);
  void heard_pong(Conn& conn, std::string_view payload);
  void join(Conn& conn, const PeerFrame& frame);
  void renew_request(Conn& conn, std::string_view payload);
  void renew_answer(Conn& conn, std::string_view payload);
  void renewed(Conn& conn, std::string_view payload);
  void check_renewal(Time now);
  void take_certificate(const std::string& certificate);
  void announce(Conn& conn);
};

}  // namespace infos
