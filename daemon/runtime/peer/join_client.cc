// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/join_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/peer/connection.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

Status check_wish(const JoinWish& wish) {
  INFOS_TRY(split_address(wish.server));
  INFOS_TRY(check_name("node name", wish.name));
  constexpr std::string_view kAlgorithm = "sha256:";
  const std::string_view hash = wish.authority_hash;
  const bool legal = hash.starts_with(kAlgorithm) && hash.size() == kAlgorithm.size() + 64 &&
                     std::ranges::all_of(hash.substr(kAlgorithm.size()), [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                     });
  if (!legal)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("authority hash '{}': want sha256: and 64 of 0-9 and a-f",
                             wish.authority_hash.substr(0, 200))};
  if (wish.token.empty() || wish.token.size() > 200)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("token of {} characters: want one that `infos token create` printed",
                             wish.token.size())};
  return {};
}

/// One attempt; ends when `outcome` is set.
class JoinCall {
 public:
  JoinCall(JoinWish& wish, std::string request)
      : wish_(wish), request_(std::move(request)), timer_(io_), resolver_(io_), socket_(io_) {}

  Result<JoinAnswer> run() {
    timer_.expires_after(std::chrono::nanoseconds(wish_.limit.ns));
    timer_.async_wait([this](error_code error) {
      if (!error)
        end(Error{ErrorCode::deadline_exceeded, fmt::format("{} did not answer within {}",
                                                            wish_.server, to_string(wish_.limit))});
    });
    const HostPort target = split_address(wish_.server).value();
    resolver_.async_resolve(target.host, std::to_string(target.port),
                            tcp::resolver::numeric_service,
                            [this](error_code error, const tcp::resolver::results_type& found) {
                              if (error)
                                return unreachable("cannot resolve it: " + error.message());
                              connect(found);
                            });
    io_.run();
    return *outcome_;
  }

 private:
  void connect(const tcp::resolver::results_type& found) {
    asio::async_connect(socket_, found, [this](error_code error, const tcp::endpoint&) {
      if (error) return unreachable("cannot connect: " + error.message());
      choose_addresses();
      wire_ = std::make_shared<PeerConnection>(
          std::move(socket_), joining_context(wish_.authority_hash, wish_.wall_clock),
          PeerConnection::Side::client);
      PeerConnection::Callbacks callbacks;
      callbacks.secured = [this] { ask(); };
      callbacks.said = [this](const PeerFrame& said) { answered(said); };
      callbacks.heard = [] {};
      callbacks.ended = [this](const std::string& why) { unreachable(why); };
      wire_->start(std::move(callbacks));
    });
  }

  /// The address that reaches the controller is one that the others can reach.
  void choose_addresses() {
    error_code failed;
    const tcp::endpoint local = socket_.local_endpoint(failed);
    if (wish_.listen.empty() && !failed)
      wish_.listen = join_address({local.address().to_string(), kPeerPort});
    if (wish_.address.empty()) wish_.address = wish_.listen;
  }

  void ask() {
    const auto& shown = wire_->certificate();
    const Result<CertificateFacts> server =
        shown ? read_node_certificate(*shown)
              : Error{ErrorCode::corrupt, "it shows no certificate"};
    if (!server.ok()) return unreachable(server.error().message);
    if (!server->identity.roles.has(Role::controller))
      return unreachable(fmt::format("node {} is no controller, its roles are {}",
                                     server->identity.name, to_string(server->identity.roles)));
    const JoinRequest ask{wish_.token, wish_.name, request_, wish_.address};
    wire_->send(PeerFrameKind::join_request, encode(ask));
  }

  void answered(const PeerFrame& said) {
    if (said.kind == static_cast<std::uint16_t>(PeerFrameKind::refusal)) {
      const Result<Refusal> refusal = decode_peer<Refusal>(said.payload);
      return end(Error{ErrorCode::invalid_argument,
                       refusal.ok() ? refusal->reason.substr(0, 500) : refusal.error().message});
    }
    if (said.kind != static_cast<std::uint16_t>(PeerFrameKind::join_answer))
      return unreachable(fmt::format("a frame of kind {} in answer", said.kind));
    end(decode_peer<JoinAnswer>(said.payload));
  }

  void unreachable(const std::string& why) {
    end(Error{ErrorCode::unavailable, fmt::format("{}: {}", wish_.server, why)});
  }

  void end(Result<JoinAnswer> outcome) {
    if (outcome_) return;
    outcome_ = std::move(outcome);
    if (wire_) wire_->close();
    error_code ignored;
    socket_.close(ignored);
    resolver_.cancel();
    timer_.cancel();
  }

  JoinWish& wish_;
  const std::string request_;
  asio::io_context io_{1};
  asio::steady_timer timer_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  std::shared_ptr<PeerConnection> wire_;  // shared with its own handlers
  std::optional<Result<JoinAnswer>> outcome_;
};

}  // namespace

Result<NewIdentity> join_cluster(JoinWish wish) {
  INFOS_TRY(check_wish(wish));
  NewIdentity out;
  out.node.key = INFOS_TRY(make_key());
  std::string request = INFOS_TRY(make_request(out.node.key));
  const JoinAnswer answer = INFOS_TRY(JoinCall(wish, std::move(request)).run());
  if (!answer.error.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} refused: {}", wish.server, answer.error.substr(0, 500))};
  if (INFOS_TRY(key_hash(answer.authority)) != wish.authority_hash)
    return Error{ErrorCode::corrupt,
                 fmt::format("{} sent another authority than the one with the hash {}", wish.server,
                             wish.authority_hash)};
  const CertificateFacts facts =
      INFOS_TRY(verify_node_certificate(answer.authority, answer.certificate, wish.wall_clock()));
  out.authority = answer.authority;
  out.node.certificate = answer.certificate;
  INFOS_TRY(check_pair(out.node));
  if (facts.identity.name != wish.name)
    return Error{ErrorCode::corrupt, fmt::format("{} sent a certificate for node {}", wish.server,
                                                 facts.identity.name)};
  out.cluster = {
      facts.identity.cluster, wish.listen, wish.address, {{answer.controller, wish.server}}};
  return out;
}

}  // namespace infos
