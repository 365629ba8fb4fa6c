// SPDX-License-Identifier: Apache-2.0
// UcxTransport: operations are cut into chunks (messages) or RMA reads and handed to UCX through a
// window per session, one chunk of each waiting operation in turn.
#include <algorithm>
#include <cstring>

#include "transports/ucx/ucx_slices.h"
#include "transports/ucx/ucx_transport.h"

namespace infos {

namespace {

constexpr std::size_t kWindow = 16;                // chunks in flight per session
constexpr std::uint64_t kChunkBytes = 1ull << 20;  // of one piece; progress() must stay short
constexpr std::uint64_t kDirectMin = 32 * 1024;    // smaller pieces are gathered
constexpr std::uint64_t kGatherBytes = 256 * 1024;
constexpr std::size_t kGatherPieces = 512;  // their table stays an eager message
constexpr std::uint32_t kRmaWindow = 128;

}  // namespace

void UcxTransport::op_begin(Op& op) {
  op.attachment = std::make_unique<Walk>();
  Link& link = link_of(*op.session);
  link.ready.push_back(&op);
  hand_over(link);
}

void UcxTransport::op_stop(Op& op) {
  Link& link = link_of(*op.session);
  std::erase(link.ready, &op);
  Walk& walk = walk_of(op);
  walk.piece = op.pieces.size();
  if (walk.verdict == Verdict::ok) walk.verdict = Verdict::cancelled;
  settle(op);
}

bool UcxTransport::walk_ended(const Op& op) const {
  return static_cast<const Walk&>(*op.attachment).piece == op.pieces.size();
}

/// Ends the operation when all of it has been handed over and answered.
void UcxTransport::settle(Op& op) {
  const Walk& walk = walk_of(op);
  if (walk_ended(op) && walk.open == 0) finish(op, walk.verdict);
}

void UcxTransport::hand_over(Link& link) {
  while (!link.ready.empty() && link.usable && !link.closed && link.broken.empty()) {
    Op& op = *link.ready.front();
    const bool rma = lanes_ == Lanes::rdma && op.access == Access::read;
    if (rma ? link.rma_open >= kRmaWindow : link.chunks.size() >= kWindow) return;
    link.ready.pop_front();
    if (rma) {
      if (!hand_over_rma(link, op)) continue;
    } else {
      hand_over_chunk(link, op);
    }
  }
}

// ---- messages ----

void UcxTransport::hand_over_chunk(Link& link, Op& op) {
  Walk& walk = walk_of(op);
  const std::uint64_t id = link.next_chunk++;
  Chunk& chunk = link.chunks[id];
  chunk.op = &op;
  while (walk.piece < op.pieces.size()) {
    const Piece& piece = op.pieces[walk.piece];
    const std::uint64_t left = piece.bytes - walk.offset;
    const bool direct = left >= kDirectMin;
    if (!chunk.pieces.empty() &&
        (direct || chunk.bytes + left > kGatherBytes || chunk.pieces.size() == kGatherPieces))
      break;
    const std::uint64_t bytes = std::min(left, kChunkBytes);
    chunk.pieces.push_back({piece.local + walk.offset, piece.remote + walk.offset, bytes});
    chunk.bytes += bytes;
    walk.offset += bytes;
    if (walk.offset == piece.bytes) {
      ++walk.piece;
      walk.offset = 0;
    }
    if (direct) break;
  }
  ++walk.open;
  if (!walk_ended(op)) link.ready.push_back(&op);
  send_chunk(link, id, chunk);
}

void UcxTransport::send_chunk(Link& link, std::uint64_t id, Chunk& chunk) {
  const Op& op = *chunk.op;
  const bool get = op.access == Access::read;
  const bool table = chunk.pieces.size() > 1;
  Request& request = new_request(link, get ? Request::Kind::ask : Request::Kind::put);
  request.chunk = id;
  request.header.chunk = id;
  request.header.grant = op.remote->grant;
  request.header.remote = chunk.pieces.front().remote;
  request.header.bytes = chunk.bytes;
  request.header.pieces = table ? static_cast<std::uint32_t>(chunk.pieces.size()) : 0;
  std::vector<Span>& spans = request.table;
  if (table)
    for (const Piece& piece : chunk.pieces) spans.push_back({piece.remote, piece.bytes});
  const std::size_t table_bytes = spans.size() * sizeof(Span);
  if (get) return send(request, kGet, spans.data(), table_bytes, UCP_AM_SEND_FLAG_EAGER);
  chunk.with_ucx = true;
  const std::byte* memory = op.region->memory.data();
  if (!table) return send(request, kPut, memory + chunk.pieces.front().local, chunk.bytes, 0);
  chunk.staging.resize(table_bytes + chunk.bytes);
  std::memcpy(chunk.staging.data(), spans.data(), table_bytes);
  std::byte* at = chunk.staging.data() + table_bytes;
  for (const Piece& piece : chunk.pieces) {
    std::memcpy(at, memory + piece.local, piece.bytes);
    at += piece.bytes;
  }
  send(request, kPut, chunk.staging.data(), chunk.staging.size(), 0);
}

void UcxTransport::scatter(const Chunk& chunk, const std::byte* from) {
  std::byte* memory = chunk.op->region->memory.data();
  for (const Piece& piece : chunk.pieces) {
    std::memcpy(memory + piece.local, from, piece.bytes);
    from += piece.bytes;
  }
}

/// Forgets the chunk once it was answered and UCX is done with its memory.
void UcxTransport::end_chunk(Link& link, std::uint64_t id) {
  const auto found = link.chunks.find(id);
  if (found == link.chunks.end()) return;
  Chunk& chunk = found->second;
  if (!chunk.answered || chunk.with_ucx) return;
  Op& op = *chunk.op;
  link.chunks.erase(found);
  --walk_of(op).open;
  settle(op);
  hand_over(link);
}

// ---- RMA ----

UcxTransport::Keys* UcxTransport::keys_of(Link& link, Remote& remote) {
  if (remote.attachment != nullptr) return static_cast<Keys*>(remote.attachment.get());
  auto keys = std::make_unique<Keys>();
  WireReader reader(remote.blob);
  keys->base = reader.number<std::uint64_t>();
  keys->begin = reader.number<std::uint64_t>();
  if (!reader.good()) return nullptr;
  const std::uint64_t slices =
      (keys->begin % kUcxSliceBytes + remote.bytes - 1) / kUcxSliceBytes + 1;
  for (std::uint64_t i = 0; i < slices; ++i) {
    const std::string_view packed = reader.text();
    ucp_rkey_h key = nullptr;
    if (!reader.good() || packed.empty() ||
        ucp_ep_rkey_unpack(link.ep, packed.data(), &key) != UCS_OK)
      return nullptr;
    keys->keys.push_back(key);
  }
  remote.attachment = std::move(keys);
  return static_cast<Keys*>(remote.attachment.get());
}

/// Posts reads until the window is full. Returns: false when the operation could not go on.
bool UcxTransport::hand_over_rma(Link& link, Op& op) {
  Walk& walk = walk_of(op);
  const Keys* keys = keys_of(link, *op.remote);
  if (keys == nullptr) {
    link.broken = "keys that cannot be read";
    return false;
  }
  ++walk.open;  // completions inside the loop do not end the operation
  while (!walk_ended(op) && link.rma_open < kRmaWindow) {
    const Piece& piece = op.pieces[walk.piece];
    const std::uint64_t from = keys->begin + piece.remote + walk.offset;
    const std::uint64_t room = kUcxSliceBytes - from % kUcxSliceBytes;
    const std::uint64_t bytes = std::min(piece.bytes - walk.offset, room);
    Request& request = new_request(link, Request::Kind::rma);
    request.op = &op;
    ++link.rma_open;
    ++walk.open;
    std::byte* into = op.region->memory.data() + piece.local + walk.offset;
    walk.offset += bytes;
    if (walk.offset == piece.bytes) {
      ++walk.piece;
      walk.offset = 0;
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = [](void* handle, ucs_status_t status, void* data) {
      Request& ended = *static_cast<Request*>(data);
      ended.link->owner->complete(ended, status);
      ucp_request_free(handle);
    };
    param.user_data = &request;
    const std::uint64_t slice = from / kUcxSliceBytes - keys->begin / kUcxSliceBytes;
    posted(request,
           ucp_get_nbx(link.ep, into, bytes, keys->base + from, keys->keys[slice], &param));
  }
  --walk.open;
  if (!walk_ended(op))
    link.ready.push_front(&op);
  else
    settle(op);
  return true;
}

// ---- requests ----

UcxTransport::Request& UcxTransport::new_request(Link& link, Request::Kind kind) {
  auto* request = new Request;  // owned by link.requests; UCX holds its address
  request->link = &link;
  request->kind = kind;
  request->header.token = link.their_token;
  link.requests.insert(request);
  return *request;
}

void UcxTransport::send(Request& request, Message message, const void* data, std::size_t bytes,
                        std::uint32_t flags) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = [](void* handle, ucs_status_t status, void* user) {
    Request& ended = *static_cast<Request*>(user);
    ended.link->owner->complete(ended, status);
    ucp_request_free(handle);
  };
  param.user_data = &request;
  posted(request, ucp_am_send_nbx(request.link->ep, message, &request.header, sizeof request.header,
                                  data, bytes, &param));
}

void UcxTransport::receive(Request& request, void* description, void* into, std::size_t bytes) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = [](void* handle, ucs_status_t status, std::size_t, void* user) {
    Request& ended = *static_cast<Request*>(user);
    ended.link->owner->complete(ended, status);
    ucp_request_free(handle);
  };
  param.user_data = &request;
  posted(request, ucp_am_recv_data_nbx(request.link->worker, description, into, bytes, &param));
}

/// What the call returned: done at once, failed at once, or on its way.
void UcxTransport::posted(Request& request, ucs_status_ptr_t handle) {
  if (!UCS_PTR_IS_PTR(handle)) complete(request, UCS_PTR_STATUS(handle));
}

void UcxTransport::complete(Request& request, ucs_status_t status) {
  const std::unique_ptr<Request> owned(&request);
  Link& link = *request.link;
  link.requests.erase(&request);
  using Kind = Request::Kind;
  if (request.kind == Kind::serve_get || request.kind == Kind::serve_put) {
    --link.serves_open;
    user_of(request.grant, -1);
  }
  if (request.kind == Kind::rma) --link.rma_open;
  if (status != UCS_OK && link.broken.empty()) link.broken = ucs_status_string(status);
  // Of a session that ends, operations are ended by whoever ends it.
  if (link.closed || !link.broken.empty()) return;
  if (request.kind == Kind::serve_put) {
    if (!request.staging.empty()) land(link, request, request.staging.data());
    reply(link, kPutDone, request.header, static_cast<Verdict>(request.header.verdict));
  } else if (request.kind == Kind::rma) {
    --walk_of(*request.op).open;
    settle(*request.op);
  } else if (request.kind == Kind::put || request.kind == Kind::take_data) {
    Chunk& chunk = link.chunks.at(request.chunk);
    chunk.with_ucx = false;
    if (!chunk.staging.empty() && request.kind == Kind::take_data)
      scatter(chunk, chunk.staging.data());
    end_chunk(link, request.chunk);
  }
}

}  // namespace infos
