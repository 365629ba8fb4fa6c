// SPDX-License-Identifier: Apache-2.0
// UcxTransport: the messages. The initiator asks for a chunk (kGet) and takes it (kData), or sends
// one (kPut) and hears when it is in place (kPutDone). All happens inside ucp_worker_progress().
#include <algorithm>
#include <cstring>

#include "transports/ucx/ucx_transport.h"

namespace infos {

namespace {

constexpr std::uint32_t kPiecesMax = 4096;         // of one message
constexpr std::uint64_t kGatheredMax = 1 << 20;    // bytes of data in a message with a table
constexpr std::uint64_t kDirectMax = 64ull << 20;  // bytes of data in a message without
constexpr std::uint32_t kServesMax = 256;          // a peer's windows are far smaller

}  // namespace

template <unsigned kMessage>
ucs_status_t UcxTransport::on_message(void* arg, const void* raw, std::size_t header_bytes,
                                      void* data, std::size_t bytes,
                                      const ucp_am_recv_param_t* param) {
  Link& link = *static_cast<Link*>(arg);
  Header header;
  if (link.closed || header_bytes != sizeof header) return UCS_OK;
  std::memcpy(&header, raw, sizeof header);
  if (header.token != link.our_token) return UCS_OK;  // not of this session
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if constexpr (kMessage == kGet) {
    if (!rendezvous) link.owner->on_get(link, header, data, bytes);
  }
  if constexpr (kMessage == kData) link.owner->on_data(link, header, data, bytes, rendezvous);
  if constexpr (kMessage == kPut) link.owner->on_put(link, header, data, bytes, rendezvous);
  if constexpr (kMessage == kPutDone) link.owner->on_put_done(link, header);
  if constexpr (kMessage == kHello) link.owner->on_ucx_hello(link, header);
  return UCS_OK;
}

Status UcxTransport::add_handlers(Link& link) {
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {{kGet, on_message<kGet>},
                                                                  {kData, on_message<kData>},
                                                                  {kPut, on_message<kPut>},
                                                                  {kPutDone, on_message<kPutDone>},
                                                                  {kHello, on_message<kHello>}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.flags = UCP_AM_FLAG_WHOLE_MSG;
    param.cb = callback;
    param.arg = &link;
    if (ucp_worker_set_am_recv_handler(link.worker, &param) != UCS_OK)
      return Error{ErrorCode::unavailable, "ucx: no handler for active messages"};
  }
  return {};
}

void UcxTransport::user_of(GrantId id, int change) {
  if (Grant* grant = find_grant(id))
    static_cast<Users&>(*grant->attachment).active += static_cast<std::uint32_t>(change);
}

/// Whether the session may do that to all the pieces, and they have the bytes that were said.
bool UcxTransport::take_table(Link& link, const Header& header, Access access,
                              std::span<const Span> table) {
  std::uint64_t sum = 0;
  for (const Span& span : table) {
    if (check_right(link.session->id, header.grant, access, span.remote, span.bytes) == nullptr)
      return false;
    sum += span.bytes;
    if (sum > header.bytes) return false;
  }
  return sum == header.bytes;
}

void UcxTransport::reply(Link& link, Message message, const Header& asked, Verdict verdict) {
  if (link.ep == nullptr) return;
  Request& request = new_request(link, Request::Kind::reply);
  request.header.chunk = asked.chunk;
  request.header.verdict = static_cast<std::uint32_t>(verdict);
  send(request, message, nullptr, 0, UCP_AM_SEND_FLAG_EAGER);
}

// ---- the acceptor serves ----

void UcxTransport::on_get(Link& link, const Header& header, const void* data, std::size_t bytes) {
  const bool table = header.pieces > 0;
  if (link.session->role != SideChannel::Role::acceptor || link.serves_open >= kServesMax ||
      header.pieces > kPiecesMax || bytes != header.pieces * sizeof(Span) ||
      header.bytes > (table ? kGatheredMax : kDirectMax)) {
    link.broken = "a request for bytes that nobody makes";
    return;
  }
  std::vector<Span> spans(std::max<std::size_t>(header.pieces, 1), {header.remote, header.bytes});
  if (table) std::memcpy(spans.data(), data, bytes);
  if (!take_table(link, header, Access::read, spans))
    return reply(link, kData, header, Verdict::refused);
  const Grant& grant = *find_grant(GrantId{header.grant});
  Request& request = new_request(link, Request::Kind::serve_get);
  request.header.chunk = header.chunk;
  request.header.bytes = header.bytes;
  request.grant = grant.id;
  ++link.serves_open;
  user_of(grant.id, 1);
  if (!table) return send(request, kData, grant.memory() + header.remote, header.bytes, 0);
  request.staging.resize(header.bytes);
  std::byte* at = request.staging.data();
  for (const Span& span : spans) {
    std::memcpy(at, grant.memory() + span.remote, span.bytes);
    at += span.bytes;
  }
  send(request, kData, request.staging.data(), header.bytes, 0);
}

void UcxTransport::on_put(Link& link, const Header& header, void* data, std::size_t bytes,
                          bool rendezvous) {
  const bool table = header.pieces > 0;
  const std::size_t table_bytes = header.pieces * sizeof(Span);
  if (link.session->role != SideChannel::Role::acceptor || link.serves_open >= kServesMax ||
      header.pieces > kPiecesMax || header.bytes > (table ? kGatheredMax : kDirectMax) ||
      bytes != table_bytes + header.bytes) {
    link.broken = "a put that nobody makes";
    return;
  }
  Request& request = new_request(link, Request::Kind::serve_put);
  request.header = header;
  request.header.verdict = static_cast<std::uint32_t>(Verdict::ok);
  request.grant = GrantId{header.grant};
  ++link.serves_open;
  user_of(request.grant, 1);
  if (!rendezvous) {
    land(link, request, static_cast<const std::byte*>(data));
    return complete(request, UCS_OK);
  }
  const Span one{header.remote, header.bytes};
  if (!table && take_table(link, header, Access::write, {&one, 1})) {
    std::byte* into = find_grant(request.grant)->memory() + header.remote;
    return receive(request, data, into, bytes);
  }
  // With a table, or refused: into a buffer first.
  request.staging.resize(bytes);
  receive(request, data, request.staging.data(), bytes);
}

/// A put's payload goes to its places; the verdict goes into the request's header.
void UcxTransport::land(Link& link, Request& request, const std::byte* payload) {
  Header& header = request.header;
  std::vector<Span> spans(std::max<std::size_t>(header.pieces, 1), {header.remote, header.bytes});
  const std::size_t table_bytes = header.pieces * sizeof(Span);
  if (table_bytes > 0) std::memcpy(spans.data(), payload, table_bytes);
  header.verdict = static_cast<std::uint32_t>(Verdict::refused);
  if (link.closed || !take_table(link, header, Access::write, spans)) return;
  std::byte* memory = find_grant(request.grant)->memory();
  payload += table_bytes;
  for (const Span& span : spans) {
    std::memcpy(memory + span.remote, payload, span.bytes);
    payload += span.bytes;
  }
  header.verdict = static_cast<std::uint32_t>(Verdict::ok);
}

// ---- the initiator hears ----

void UcxTransport::on_data(Link& link, const Header& header, void* data, std::size_t bytes,
                           bool rendezvous) {
  const auto found = link.chunks.find(header.chunk);
  if (found == link.chunks.end() || found->second.answered) return;
  Chunk& chunk = found->second;
  const auto verdict = static_cast<Verdict>(header.verdict);
  if (chunk.op->access != Access::read || (verdict == Verdict::ok && bytes != chunk.bytes)) {
    link.broken = "an answer that nobody asked for";
    return;
  }
  chunk.answered = true;
  if (verdict != Verdict::ok) {
    walk_of(*chunk.op).verdict = Verdict::refused;
    return end_chunk(link, header.chunk);
  }
  if (!rendezvous) {
    scatter(chunk, static_cast<const std::byte*>(data));
    return end_chunk(link, header.chunk);
  }
  Request& request = new_request(link, Request::Kind::take_data);
  request.chunk = header.chunk;
  chunk.with_ucx = true;
  std::byte* into = chunk.op->region->memory.data() + chunk.pieces.front().local;
  if (chunk.pieces.size() > 1) {
    chunk.staging.resize(bytes);
    into = chunk.staging.data();
  }
  receive(request, data, into, bytes);
}

void UcxTransport::on_ucx_hello(Link& link, const Header& header) {
  if (link.session->role == SideChannel::Role::acceptor)
    return reply(link, kHello, header, Verdict::ok);
  link.usable = true;
  hand_over(link);
}

void UcxTransport::on_put_done(Link& link, const Header& header) {
  const auto found = link.chunks.find(header.chunk);
  if (found == link.chunks.end() || found->second.answered) return;
  Chunk& chunk = found->second;
  if (chunk.op->access != Access::write) {
    link.broken = "an answer that nobody asked for";
    return;
  }
  chunk.answered = true;
  if (static_cast<Verdict>(header.verdict) != Verdict::ok)
    walk_of(*chunk.op).verdict = Verdict::refused;
  end_chunk(link, header.chunk);
}

}  // namespace infos
