// SPDX-License-Identifier: Apache-2.0
// TCP as a server: grants, and what clients ask for. Everything that comes is hostile until it is
// checked: who it is, what it may touch, how much it may have open.
#include <sys/random.h>

#include <cstdio>
#include <cstring>

#include "transports/tcp/tcp_impl.h"

namespace infos {

// ---- grants ----

Result<GrantId> TcpTransport::grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                                    Access access) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  INFOS_CHECK(begin <= at->second.memory.size());
  INFOS_CHECK(bytes <= at->second.memory.size() - begin);
  Grant grant{0, at->second.memory.subspan(begin, bytes), access};
  INFOS_CHECK(getrandom(&grant.secret, sizeof grant.secret, 0) == sizeof grant.secret);
  const GrantId id{next_id_++};
  grants_[id] = grant;
  return id;
}

std::string TcpTransport::key(GrantId grant) const {
  const auto at = grants_.find(grant);
  INFOS_CHECK(at != grants_.end());
  char text[96];
  std::snprintf(text, sizeof text, "tcp-key 1 %016llx %016llx %016llx",
                static_cast<unsigned long long>(place_.instance.low),
                static_cast<unsigned long long>(grant.value),
                static_cast<unsigned long long>(at->second.secret));
  return text;
}

void TcpTransport::revoke(GrantId grant, std::function<void()> done) {
  grants_.erase(grant);
  for (auto& [id, inbound] : inbound_) {
    if (!inbound->conn) continue;
    inbound->conn->discard_in(grant.value, Verdict::refused);
    for (const std::uint64_t part : inbound->conn->drop_out(grant.value))
      inbound->conn->send_frame(FrameKind::verdict, part,
                                static_cast<std::uint64_t>(Verdict::refused));
    inbound->dirty = true;
  }
  revoked_.push_back(std::move(done));
}

/// The grant of a request; null: refused.
const TcpTransport::Grant* TcpTransport::admitted(const Request& request, Access access,
                                                  const Instance& who) const {
  const auto at = grants_.find(GrantId{request.grant});
  if (at == grants_.end() || at->second.secret != request.secret || at->second.access != access)
    return nullptr;
  const auto fenced = void_through_.find(who);
  if (access == Access::write && fenced != void_through_.end() && request.grant <= fenced->second)
    return nullptr;
  return &at->second;
}

void TcpTransport::close_inbound(const Instance& instance) {
  for (auto& [id, inbound] : inbound_)
    if (inbound->greeted && inbound->instance == instance) inbound->conn.reset();
}

Hello TcpTransport::hello_for_tests() const {
  return {place_.secret.high, place_.secret.low, 1, 2};
}

// ---- what clients say ----

bool TcpTransport::Inbound::on_frame(const FrameHead& head, std::span<const std::byte> payload) {
  const FrameKind kind = kind_of(head);
  if (!greeted) {
    if (kind != FrameKind::hello) return false;
    Hello hello;
    std::memcpy(&hello, payload.data(), sizeof hello);
    const Instance& secret = transport.place_.secret;
    const std::uint64_t wrong = (hello.secret_high ^ secret.high) | (hello.secret_low ^ secret.low);
    if (wrong != 0 || hello.version != kWireVersion) return false;
    instance = {hello.instance_high, hello.instance_low};
    greeted = true;
    conn->send_frame(FrameKind::welcome, 0, 0);
    return true;
  }
  if (kind == FrameKind::get || kind == FrameKind::put) return on_request(head, payload);
  if (kind != FrameKind::abort) return false;
  if (conn->forget_in(head.part))
    conn->send_frame(FrameKind::verdict, head.part, static_cast<std::uint64_t>(Verdict::cancelled));
  return true;
}

bool TcpTransport::Inbound::on_request(const FrameHead& head, std::span<const std::byte> payload) {
  const bool is_get = kind_of(head) == FrameKind::get;
  Request request;
  std::memcpy(&request, payload.data(), sizeof request);
  payload = payload.subspan(sizeof request);
  if (request.pieces == 0 || request.pieces > kPartPiecesMax ||
      payload.size() != request.pieces * sizeof(WirePiece) ||
      conn->parts_in() + conn->parts_out() >= 2 * kPartsOpenMax)
    return false;
  const Grant* grant = transport.admitted(request, is_get ? Access::read : Access::write, instance);
  std::vector<iovec> runs;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < request.pieces; ++i) {
    WirePiece piece;
    std::memcpy(&piece, payload.data() + i * sizeof piece, sizeof piece);
    if (piece.bytes == 0 || piece.bytes > kPartBytesMax - bytes) return false;
    bytes += piece.bytes;
    const bool covers = grant != nullptr && piece.remote <= grant->memory.size() &&
                        piece.bytes <= grant->memory.size() - piece.remote;
    if (!covers) grant = nullptr;
    if (covers) runs.push_back({grant->memory.data() + piece.remote, piece.bytes});
  }
  if (!is_get) {
    PartIn in;
    in.owner = request.grant;
    in.bytes = bytes;
    if (grant != nullptr)
      in.runs = std::move(runs);
    else
      in.fate = PartIn::Fate::discard, in.verdict = Verdict::refused;
    return conn->expect_part(head.part, std::move(in));
  }
  if (grant == nullptr) {
    conn->send_frame(FrameKind::verdict, head.part, static_cast<std::uint64_t>(Verdict::refused));
    return true;
  }
  PartOut out;
  out.id = head.part;
  out.owner = request.grant;
  out.runs = std::move(runs);
  out.bytes = bytes;
  conn->send_part(std::move(out));
  return true;
}

void TcpTransport::Inbound::on_part(std::uint64_t id, const PartIn& part) {
  const Verdict verdict = part.fate == PartIn::Fate::keep ? Verdict::ok : part.verdict;
  conn->send_frame(FrameKind::verdict, id, static_cast<std::uint64_t>(verdict));
}

}  // namespace infos
