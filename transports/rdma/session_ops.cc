// SPDX-License-Identifier: Apache-2.0
// SessionTransport: operations, and what is said on the side channel.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "transports/rdma/session_transport.h"

namespace infos {

namespace {

constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kRemotesPerCheck = 64;

Error bad_message(const char* what) {
  return Error{ErrorCode::corrupt, fmt::format("side channel: not a {} message", what)};
}

}  // namespace

// ---- operations ----

Result<RemoteId> SessionTransport::open_remote(PeerId peer, std::string_view key) {
  Session* session = find_session(SideId{peer.value});
  if (session == nullptr || session->role != SideChannel::Role::initiator)
    return Error{ErrorCode::invalid_argument, "open_remote: no such peer"};
  auto remote = std::make_unique<Remote>();
  const std::string kind = to_string(info_.kind);
  const auto bad = [&] {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("open_remote: not a key of the {} transport", kind)};
  };
  if (!key.starts_with(kind + ":")) return bad();
  key.remove_prefix(kind.size() + 1);
  for (std::uint64_t* field : {&remote->grant, &remote->bytes, &remote->token}) {
    const char* end = key.data() + key.size();
    const auto [at, error] = std::from_chars(key.data(), end, *field, 16);
    if (error != std::errc() || at == end || *at != ':') return bad();
    key.remove_prefix(static_cast<std::size_t>(at - key.data()) + 1);
  }
  if (key != "r" && key != "w") return bad();
  remote->access = key == "r" ? Access::read : Access::write;
  remote->session = session->id;
  remote->id = RemoteId{next_id_++};
  const RemoteId id = remote->id;
  Remote& kept = *remotes_.emplace(id, std::move(remote)).first->second;
  if (session->phase == Phase::open) ask(kept);
  return id;
}

void SessionTransport::ask(Remote& remote) {
  remote.state = Remote::State::asked;
  WireWriter check;
  check.number(remote.id.value).number(remote.grant).number(remote.token);
  check.number(static_cast<std::uint8_t>(remote.access));
  side_->send(remote.session, kCheckMessage, check.take());
}

OpId SessionTransport::get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) {
  return submit(from, into, pieces, Access::read, std::move(done));
}

OpId SessionTransport::put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) {
  return submit(to, from, pieces, Access::write, std::move(done));
}

/// `failed`: nothing speaks against it.
Verdict SessionTransport::judge(const Op& op) const {
  if (op.remote == nullptr) return Verdict::cancelled;
  if (op.session->phase == Phase::ending)
    return op.session->fenced ? Verdict::cancelled : Verdict::peer_lost;
  if (op.session->phase == Phase::lost) return Verdict::peer_lost;
  if (op.remote->access != op.access || op.remote->state == Remote::State::refused)
    return Verdict::refused;
  for (const Piece& piece : op.pieces)
    if (piece.remote > op.remote->bytes || piece.bytes > op.remote->bytes - piece.remote)
      return Verdict::refused;
  return op.bytes == 0 ? Verdict::ok : Verdict::failed;
}

OpId SessionTransport::submit(RemoteId remote, RegionId region, std::span<const Piece> pieces,
                              Access access, Done done) {
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.id = OpId{next_op_++};
  op.access = access;
  op.done = std::move(done);
  const auto found_region = regions_.find(region);
  INFOS_CHECK(found_region != regions_.end());
  op.region = found_region->second.get();
  const std::uint64_t size = op.region->memory.size();
  op.pieces.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    INFOS_CHECK(piece.local <= size && piece.bytes <= size - piece.local);
    if (piece.bytes == 0) continue;
    op.bytes += piece.bytes;
    op.pieces.push_back(piece);
  }
  if (const auto found = remotes_.find(remote); found != remotes_.end()) {
    op.remote = found->second.get();
    op.session = find_session(op.remote->session);
  }
  const OpId id = op.id;
  ops_.emplace(id, std::move(owned));
  const Verdict verdict = judge(op);
  if (verdict != Verdict::failed) {
    finish(op, verdict);
    return id;
  }
  op.session->waiting.push_back(&op);
  if (op.session->waiting.size() == 1) start_waiting(*op.session);
  return id;
}

void SessionTransport::start_waiting(Session& session) {
  if (session.phase != Phase::open) return;
  // Those whose right is still being checked let others pass.
  for (std::size_t i = 0; i < session.waiting.size();) {
    if (session.running.size() >= info_.ops_in_flight_max) return;
    Op* op = session.waiting[i];
    if (op->remote->state == Remote::State::asked) {
      if (++i >= kRemotesPerCheck) return;
      continue;
    }
    session.waiting.erase(session.waiting.begin() + static_cast<std::ptrdiff_t>(i));
    if (op->remote->state == Remote::State::refused) {
      finish(*op, Verdict::refused);
      continue;
    }
    session.running.insert(op);
    ++op->remote->running;
    op_begin(*op);
    if (session.phase != Phase::open) return;
  }
}

void SessionTransport::cancel(OpId id) {
  const auto found = ops_.find(id);
  if (found == ops_.end()) return;
  Op& op = *found->second;
  Session& session = *op.session;
  if (const auto at = std::find(session.waiting.begin(), session.waiting.end(), &op);
      at != session.waiting.end()) {
    session.waiting.erase(at);
    finish(op, Verdict::cancelled);
    return;
  }
  stop(op, Verdict::cancelled);
}

void SessionTransport::stop(Op& op, Verdict wish) {
  if (op.stopping) return;
  op.stopping = true;
  op.wish = wish;
  op_stop(op);
}

void SessionTransport::finish(Op& op, Verdict verdict) {
  if (op.session != nullptr && op.session->running.erase(&op) > 0) {
    if (op.stopping && verdict != Verdict::ok) verdict = op.wish;
    --op.remote->running;
    settle_remote(*op.remote);
  }
  if (verdict == Verdict::ok) {
    ++stats_.ops_ok;
    (op.access == Access::read ? stats_.bytes_in : stats_.bytes_out) += op.bytes;
  } else {
    ++stats_.ops_not_ok;
  }
  const OpId id = op.id;
  if (op.done) due_.push_back([done = std::move(op.done), id, verdict] { done(id, verdict); });
  ops_.erase(id);
}

/// The acknowledgement of a revoke goes out when nothing uses the grant in that session any more.
void SessionTransport::settle_remote(Remote& remote) {
  if (!remote.owes_ack || remote.running > 0) return;
  const auto same = [&](const auto& entry) {
    return entry.second->session == remote.session && entry.second->grant == remote.grant;
  };
  for (auto& entry : remotes_)
    if (same(entry) && entry.second->running > 0) return;
  for (auto& entry : remotes_)
    if (same(entry)) entry.second->owes_ack = false;
  side_->send(remote.session, kRevokeAckMessage, WireWriter().number(remote.grant).take());
}

SessionTransport::Grant* SessionTransport::check_right(SideId session, std::uint64_t id,
                                                       Access access, std::uint64_t begin,
                                                       std::uint64_t bytes) {
  Grant* grant = find_grant(GrantId{id});
  if (grant == nullptr || grant->revoked || grant->access != access ||
      !grant->users.contains(session) || begin > grant->bytes || bytes > grant->bytes - begin)
    return nullptr;
  return grant;
}

// ---- the side channel ----

void SessionTransport::side_open(SideId side, SideChannel::Role role) {
  if (role == SideChannel::Role::acceptor) return;  // it says hello first
  Session* session = find_session(side);
  if (session == nullptr || session->phase != Phase::connecting) return;
  auto half = session_half(*session);
  if (!half) return lose(*session, half.error().message);
  WireWriter hello;
  hello.number(kVersion).text(to_string(info_.kind)).text(uid_).text(*half);
  side_->send(side, kHelloMessage, hello.take());
}

void SessionTransport::side_lost(SideId side, const std::string& why) {
  if (Session* session = find_session(side)) lose(*session, why);
}

void SessionTransport::side_message(SideId side, std::uint8_t type, std::string_view payload) {
  Session* session = find_session(side);
  if (type == kHelloMessage && session == nullptr) {
    auto accepted = std::make_unique<Session>();
    session = accepted.get();
    session->id = side;
    session->role = SideChannel::Role::acceptor;
    sessions_.emplace(side, std::move(accepted));
    const Status status = on_hello(*session, payload);
    if (!status) lose(*session, status.error().message);
    return;
  }
  if (session == nullptr) return side_->close(side);
  if (session->phase == Phase::ending || session->phase == Phase::lost) return;
  const bool initiator = session->role == SideChannel::Role::initiator;
  Status status = bad_message("known");
  if (type == kHelloOkMessage && initiator) status = on_hello_ok(*session, payload);
  if (type == kCheckReplyMessage && initiator) status = on_check_reply(*session, payload);
  if (type == kRevokeMessage && initiator) status = on_revoke(*session, payload);
  if (type == kCheckMessage && !initiator) status = on_check(*session, payload);
  if (type == kRevokeAckMessage && !initiator) {
    WireReader reader(payload);
    if (Grant* grant = find_grant(GrantId{reader.number<std::uint64_t>()}))
      grant->users.erase(side);
    status = reader.done() ? Status() : bad_message("revoke-ack");
  }
  if (!status) lose(*session, status.error().message);
}

Status SessionTransport::on_hello(Session& session, std::string_view payload) {
  WireReader reader(payload);
  const auto version = reader.number<std::uint16_t>();
  const std::string kind(reader.text());
  session.uid = reader.text();
  const std::string_view half = reader.text();
  if (!reader.done() || session.uid.size() != 16) return bad_message("hello");
  if (version != kVersion || kind != to_string(info_.kind))
    return Error{ErrorCode::unsupported,
                 fmt::format("a peer speaks {} version {}; allowed: {} version {}", kind, version,
                             to_string(info_.kind), kVersion)};
  if (const auto found = void_before_.find(session.uid); found != void_before_.end())
    session.void_before = found->second;
  const std::string ours = INFOS_TRY(session_half(session));
  const Status status = session_begin(session, half);
  if (!status) return status;
  session.phase = Phase::open;
  side_->send(session.id, kHelloOkMessage, WireWriter().text(ours).take());
  return {};
}

Status SessionTransport::on_hello_ok(Session& session, std::string_view payload) {
  WireReader reader(payload);
  const std::string_view half = reader.text();
  if (!reader.done() || session.phase != Phase::connecting) return bad_message("hello-ok");
  const Status status = session_begin(session, half);
  if (!status) return status;
  session.phase = Phase::open;
  for (auto& [id, remote] : remotes_)
    if (remote->session == session.id) ask(*remote);
  return {};
}

Status SessionTransport::on_check(Session& session, std::string_view payload) {
  WireReader reader(payload);
  const auto remote = reader.number<std::uint32_t>();
  const auto id = reader.number<std::uint64_t>();
  const auto token = reader.number<std::uint64_t>();
  const auto access = reader.number<std::uint8_t>();
  if (!reader.done()) return bad_message("check");
  Grant* grant = find_grant(GrantId{id});
  const bool good = grant != nullptr && !grant->revoked && grant->token == token &&
                    id >= session.void_before && static_cast<std::uint8_t>(grant->access) == access;
  WireWriter reply;
  reply.number(remote).number(static_cast<std::uint8_t>(good));
  reply.number(good ? grant->bytes : std::uint64_t{0}).text(good ? grant_blob(*grant) : "");
  if (good) grant->users.insert(session.id);
  side_->send(session.id, kCheckReplyMessage, reply.take());
  return {};
}

Status SessionTransport::on_check_reply(Session& session, std::string_view payload) {
  WireReader reader(payload);
  const auto id = reader.number<std::uint32_t>();
  const bool good = reader.number<std::uint8_t>() != 0;
  const auto bytes = reader.number<std::uint64_t>();
  const std::string_view blob = reader.text();
  const auto found = remotes_.find(RemoteId{id});
  if (!reader.done() || found == remotes_.end() || found->second->session != session.id)
    return bad_message("check-reply");
  Remote& remote = *found->second;
  if (remote.state != Remote::State::asked) return {};  // revoked meanwhile
  remote.state = good && bytes == remote.bytes ? Remote::State::good : Remote::State::refused;
  remote.blob = blob;
  return {};
}

Status SessionTransport::on_revoke(Session& session, std::string_view payload) {
  WireReader reader(payload);
  const auto grant = reader.number<std::uint64_t>();
  if (!reader.done()) return bad_message("revoke");
  bool owed = false;
  for (auto& [id, remote] : remotes_) {
    if (remote->session != session.id || remote->grant != grant) continue;
    remote->state = Remote::State::refused;
    remote->owes_ack = remote->running > 0;
    owed = owed || remote->owes_ack;
  }
  for (auto& [id, remote] : remotes_) {
    if (remote->session != session.id || remote->grant != grant) continue;
    const auto running = session.running;  // stopping may finish them
    for (Op* op : running)
      if (session.running.contains(op) && op->remote == remote.get()) stop(*op, Verdict::refused);
  }
  if (!owed) side_->send(session.id, kRevokeAckMessage, WireWriter().number(grant).take());
  return {};
}

}  // namespace infos
