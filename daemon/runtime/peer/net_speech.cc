// SPDX-License-Identifier: Apache-2.0
// What is said on a link, and by strangers who want to join. Whoever says what its roles do not
// allow loses the link.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/net_state.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr Duration kPenalty = seconds(5);
constexpr Duration kRenewAnswerLimit = seconds(10);
constexpr Duration kRenewRetry = seconds(10);

}  // namespace

void PeerNet::State::spoken(Conn& conn, const PeerFrame& said) {
  switch (static_cast<PeerFrameKind>(said.kind)) {
    case PeerFrameKind::ping:
      return heard_ping(conn, said.payload);
    case PeerFrameKind::pong:
      return heard_pong(conn, said.payload);
    case PeerFrameKind::renew_request:
      return renew_request(conn, said.payload);
    case PeerFrameKind::renew_answer:
      return renew_answer(conn, said.payload);
    case PeerFrameKind::renewed:
      return renewed(conn, said.payload);
    default:
      break;
  }
  const auto rule = options.may_say.find(said.kind);
  if (said.kind < kOwnerKinds || rule == options.may_say.end())
    return violation(conn, fmt::format("frame of kind {} is not known here", said.kind));
  if (!conn.info.identity.roles.meets(rule->second))
    return violation(
        conn, fmt::format("frame of kind {} is for the roles {}, its roles are {}", said.kind,
                          to_string(rule->second), to_string(conn.info.identity.roles)));
  const NodeId node = conn.info.identity.node;
  PeerRow& row = peer_of(node).row;
  ++row.frames_in;
  row.bytes_in += said.payload.size();
  listener->peer_said(node, said.kind, said.payload);
}

void PeerNet::State::violation(Conn& conn, const std::string& why) {
  ++totals.violations;
  const NodeId node = conn.info.identity.node;
  log_warn("peer", "a peer broke a rule; its link is cut", {{"node", node.value}, {"why", why}});
  peer_of(node).refused_until = monotonic_now() + kPenalty;
  conn.wire->send(PeerFrameKind::refusal, encode(Refusal{why}));
  end_softly(conn);
  unlink(Conn(conn), why);
}

void PeerNet::State::heard_ping(Conn& conn, std::string_view payload) {
  if (payload.size() > 64) return violation(conn, "a ping of more than 64 bytes");
  if (conn.wire->unsent() > options.unsent_bytes_max) {
    ++totals.slow_cut;
    return drop(conn.number, "it asks for answers and does not read them");
  }
  conn.wire->send(PeerFrameKind::pong, payload);
}

void PeerNet::State::heard_pong(Conn& conn, std::string_view payload) {
  const Result<Ping> pong = decode_peer<Ping>(payload);
  if (!pong.ok()) return violation(conn, pong.error().message);
  const auto round_trip = conn.liveness->pong(pong->sequence, monotonic_now());
  if (round_trip) peer_of(conn.info.identity.node).row.round_trip = *round_trip;
}

// ---- strangers ----

void PeerNet::State::join(Conn& conn, const PeerFrame& said) {
  if (said.kind != static_cast<std::uint16_t>(PeerFrameKind::join_request) || conn.asked_to_join)
    return refuse(conn, "without a certificate only one request to join is heard", Fault::peer);
  conn.asked_to_join = true;
  Result<JoinRequest> request = decode_peer<JoinRequest>(said.payload);
  if (!request.ok()) return refuse(conn, request.error().message, Fault::peer);
  const std::weak_ptr<State> weak = weak_from_this();
  options.join(*std::move(request), conn.wire->remote(),
               [weak, number = conn.number](const JoinAnswer& answer) {
                 const auto self = weak.lock();
                 Conn* found = self && !self->stopped ? self->find(number) : nullptr;
                 if (!found || found->stage != Stage::joining) return;
                 ++(answer.error.empty() ? self->totals.joins : self->totals.joins_refused);
                 found->wire->send(PeerFrameKind::join_answer, encode(answer));
                 self->end_softly(*found);
               });
}

// ---- renewal ----

void PeerNet::State::renew_request(Conn& conn, std::string_view payload) {
  const Result<RenewRequest> asked = decode_peer<RenewRequest>(payload);
  if (!asked.ok()) return violation(conn, asked.error().message);
  const Time now = monotonic_now();
  if (now < conn.renewals_from) return violation(conn, "it asks for certificates too often");
  conn.renewals_from = now + seconds(1);
  RenewAnswer answer;
  if (!options.sign) {
    answer.error = "this node signs no certificates";
  } else {
    Result<std::string> made = options.sign(conn.info.identity, asked->request);
    if (made.ok())
      answer.certificate = *std::move(made);
    else
      answer.error = made.error().message;
  }
  log_info("peer", "a peer asked for a new certificate",
           {{"node", conn.info.identity.node.value}, {"refused", answer.error}});
  conn.wire->send(PeerFrameKind::renew_answer, encode(answer));
}

void PeerNet::State::check_renewal(Time now) {
  if (now < next_renewal) return;
  if (!new_key.empty()) {  // an answer is awaited
    if (now < renew_deadline && find(renewing_with)) return;
    new_key.clear();
  }
  const Validity& valid = own.validity;
  if (options.wall_clock() < valid.from + (valid.until - valid.from) * 2 / 3) {
    next_renewal = now + options.liveness.interval;
    return;
  }
  next_renewal = now + kRenewRetry;
  const auto controller = std::ranges::find_if(conns, [](const auto& entry) {
    return entry.second.stage == Stage::link &&
           entry.second.info.identity.roles.has(Role::controller);
  });
  if (!options.sign && controller == conns.end()) {
    next_renewal = now + seconds(1);
    return;
  }
  Result<std::string> key = make_key();
  const Result<std::string> request = key.ok() ? make_request(*key) : key.error();
  if (!request.ok())
    return log_error("peer", "no new certificate", {{"why", request.error().message}});
  new_key = *std::move(key);
  if (options.sign) {
    const Result<std::string> made = options.sign(own.identity, *request);
    if (made.ok()) return take_certificate(*made);
    new_key.clear();
    return log_error("peer", "no new certificate", {{"why", made.error().message}});
  }
  renewing_with = controller->first;
  renew_deadline = now + kRenewAnswerLimit;
  next_renewal = now;
  controller->second.wire->send(PeerFrameKind::renew_request, encode(RenewRequest{*request}));
}

void PeerNet::State::renew_answer(Conn& conn, std::string_view payload) {
  if (conn.number != renewing_with || new_key.empty()) return;  // late
  const Result<RenewAnswer> answer = decode_peer<RenewAnswer>(payload);
  if (!answer.ok()) return violation(conn, answer.error().message);
  next_renewal = monotonic_now() + kRenewRetry;
  if (answer->error.empty()) return take_certificate(answer->certificate);
  new_key.clear();
  log_error("peer", "the controller gives no new certificate",
            {{"why", answer->error.substr(0, 500)}});
}

void PeerNet::State::take_certificate(const std::string& certificate) {
  const Credential renewed{std::exchange(new_key, {}), certificate};
  const auto take = [&]() -> Status {
    const CertificateFacts facts =
        INFOS_TRY(verify_node_certificate(options.authority, certificate, options.wall_clock()));
    const NodeIdentity& mine = own.identity;
    if (facts.identity.cluster != mine.cluster || facts.identity.node != mine.node ||
        facts.identity.name != mine.name)
      return Error{ErrorCode::corrupt, "it is for " + to_uri(facts.identity)};
    INFOS_TRY(check_pair(renewed));
    if (options.keep) INFOS_TRY(options.keep(renewed));
    return use_credential(renewed);
  };
  next_renewal = monotonic_now() + kRenewRetry;
  const Status taken = take();
  if (!taken.ok())
    return log_error("peer", "a new certificate is not taken", {{"why", taken.error().message}});
  next_renewal = Time{};
  ++totals.renewals;
  log_info("peer", "the certificate was renewed", {{"until", own.validity.until}});
  for (auto& [number, conn] : conns)
    if (conn.stage == Stage::link) announce(conn);
}

/// Lets the peer of a running link know the new certificate, so that the link outlives the old one.
void PeerNet::State::announce(Conn& conn) {
  const Result<std::string> proof = sign_message(options.node.key, conn.wire->session_secret());
  if (!proof.ok())
    return log_error("peer", "cannot prove a new certificate", {{"why", proof.error().message}});
  conn.wire->send(PeerFrameKind::renewed, encode(Renewed{options.node.certificate, *proof}));
}

void PeerNet::State::renewed(Conn& conn, std::string_view payload) {
  const auto check = [&]() -> Result<CertificateFacts> {
    const Renewed said = INFOS_TRY(decode_peer<Renewed>(payload));
    CertificateFacts facts = INFOS_TRY(
        verify_node_certificate(options.authority, said.certificate, options.wall_clock()));
    const NodeIdentity& before = conn.info.identity;
    if (facts.identity.cluster != before.cluster || facts.identity.node != before.node ||
        facts.identity.name != before.name)
      return Error{ErrorCode::corrupt, "a renewed certificate for " + to_uri(facts.identity)};
    INFOS_TRY(check_message(said.certificate, conn.wire->session_secret(), said.proof));
    return facts;
  };
  Result<CertificateFacts> facts = check();
  if (!facts.ok()) return violation(conn, facts.error().message);
  conn.facts = *std::move(facts);
  conn.info.identity = conn.facts.identity;
  peer_of(conn.info.identity.node).row.info = conn.info;
}

}  // namespace infos
