// SPDX-License-Identifier: Apache-2.0
// VerbsTransport: operations become work requests, completions become verdicts.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transports/verbs/verbs_transport.h"

namespace infos {

namespace {

constexpr std::size_t kBatch = 32;  // work requests posted, and signalled, at once
constexpr std::size_t kPiecesMax = 16;
constexpr std::uint64_t kRequestBytes = 1ull << 20;  // of one work request; devices allow more
constexpr std::uint32_t kAnswer = 1u << 31;          // in an immediate: the count comes back
constexpr std::uint32_t kCount = kAnswer - 1;
constexpr int kTurnsPerPoll = 4;
constexpr unsigned kRailShift = 56;  // a work request's id: rail, then number

}  // namespace

/// A chain of work requests.
struct VerbsTransport::Batch {
  ibv_send_wr requests[kBatch] = {};
  ibv_sge pieces[kBatch][kPiecesMax];
  std::size_t count = 0;
};

/// What the grant's owner said, once.
const VerbsTransport::RemoteSlices* VerbsTransport::slices_of(Remote& remote) {
  if (remote.attachment == nullptr) {
    auto made = std::make_unique<RemoteSlices>();
    WireReader reader(remote.blob);
    std::uint64_t begin = 0;
    while (begin < remote.bytes && reader.good()) {
      RemoteSlice slice;
      slice.begin = begin;
      slice.address = reader.number<std::uint64_t>();
      slice.bytes = reader.number<std::uint64_t>();
      slice.key = reader.number<std::uint32_t>();
      if (slice.bytes == 0) break;
      begin += slice.bytes;
      made->slices.push_back(slice);
    }
    if (!reader.done() || begin != remote.bytes) return nullptr;
    remote.attachment = std::move(made);
  }
  return static_cast<const RemoteSlices*>(remote.attachment.get());
}

void VerbsTransport::op_begin(Op& op) {
  auto walk = std::make_unique<Walk>();
  Link& link = link_of(*op.session);
  std::size_t best = 0;  // the rail with the least to do
  const auto load = [&](std::size_t i) {
    const Rail& rail = link.rails[i];
    return rail.head - rail.tail + rail.ready.size() * depth_;
  };
  for (std::size_t i = 1; i < link.rails.size(); ++i)
    if (load(i) < load(best)) best = i;
  walk->rail = best;
  op.attachment = std::move(walk);
  link.rails[best].ready.push_back(&op);
  post_ready(link, link.rails[best]);
}

void VerbsTransport::op_stop(Op& op) {
  Walk& walk = walk_of(op);
  std::erase(link_of(*op.session).rails[walk.rail].ready, &op);
  walk.piece = op.pieces.size();
  if (walk.verdict == Verdict::ok) walk.verdict = Verdict::cancelled;
  settle(op);
}

/// Ends the operation when all of it has been posted and has come back.
void VerbsTransport::settle(Op& op) {
  const Walk& walk = walk_of(op);
  if (walk.piece == op.pieces.size() && walk.open == 0) finish(op, walk.verdict);
}

// ---- posting ----

void VerbsTransport::post_ready(Link& link, Rail& rail) {
  while (!rail.ready.empty() && !link.closed && link.broken.empty()) {
    if (rail.head - rail.tail >= depth_) return;
    Op& op = *rail.ready.front();
    rail.ready.pop_front();
    if (post_batch(link, rail, op)) rail.ready.push_back(&op);
  }
}

/// Returns: the operation has more to post.
bool VerbsTransport::post_batch(Link& link, Rail& rail, Op& op) {
  Walk& walk = walk_of(op);
  const RemoteSlices* remote = slices_of(*op.remote);
  if (remote == nullptr) {
    link.broken = "keys that cannot be read";
    return false;
  }
  Batch batch;
  while (walk.piece < op.pieces.size() && batch.count < kBatch && rail.head - rail.tail < depth_)
    add_request(rail, op, *remote, batch);
  ibv_send_wr& last = batch.requests[batch.count - 1];
  last.next = nullptr;
  last.send_flags = IBV_SEND_SIGNALED;
  const bool more = walk.piece < op.pieces.size();
  if (!more && op.access == Access::write) {
    rail.puts_sent = (rail.puts_sent + 1) & kCount;
    last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last.imm_data = htonl(rail.puts_sent);
    rail.unanswered.emplace_back(rail.puts_sent, &op);
    ++walk.open;
  }
  ibv_send_wr* bad = nullptr;
  if (const int code = ibv_post_send(rail.queue.get(), batch.requests, &bad); code != 0) {
    link.broken = fmt::format("post: {}", std::strerror(code));
    while (bad != nullptr) {  // these never come back
      --rail.head;
      bad = bad->next;
    }
    return false;
  }
  return more;
}

/// One work request: a run that is contiguous there, of pieces that may be scattered here.
void VerbsTransport::add_request(Rail& rail, Op& op, const RemoteSlices& remote, Batch& batch) {
  Walk& walk = walk_of(op);
  const VerbsSlices& local = *static_cast<RegionSlices&>(*op.region->attachment).slices;
  ibv_send_wr& request = batch.requests[batch.count];
  ibv_sge* pieces = batch.pieces[batch.count];
  std::uint64_t at = op.pieces[walk.piece].remote + walk.offset;
  const auto slice = std::prev(
      std::upper_bound(remote.slices.begin(), remote.slices.end(), at,
                       [](std::uint64_t place, const RemoteSlice& s) { return place < s.begin; }));
  request.wr.rdma.remote_addr = slice->address + (at - slice->begin);
  request.wr.rdma.rkey = slice->key;
  std::uint64_t room = std::min(slice->begin + slice->bytes - at, kRequestBytes);
  int count = 0;
  while (walk.piece < op.pieces.size() && room > 0) {
    const Piece& piece = op.pieces[walk.piece];
    if (piece.remote + walk.offset != at) break;
    std::byte* here = op.region->memory.data() + piece.local + walk.offset;
    const std::uint64_t bytes = std::min({piece.bytes - walk.offset, room, local.room(here)});
    const auto address = reinterpret_cast<std::uint64_t>(here);
    const std::uint32_t key = local.slices[local.slice_of(here)]->lkey;
    if (count > 0 && pieces[count - 1].lkey == key &&
        pieces[count - 1].addr + pieces[count - 1].length == address) {
      pieces[count - 1].length += static_cast<std::uint32_t>(bytes);
    } else {
      if (count == static_cast<int>(pieces_max_)) break;
      pieces[count++] = {address, static_cast<std::uint32_t>(bytes), key};
    }
    at += bytes;
    room -= bytes;
    walk.offset += bytes;
    if (walk.offset == piece.bytes) {
      ++walk.piece;
      walk.offset = 0;
    }
  }
  request.sg_list = pieces;
  request.num_sge = count;
  request.opcode = op.access == Access::read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  request.wr_id = std::uint64_t{walk.rail} << kRailShift | rail.head;
  if (batch.count > 0) batch.requests[batch.count - 1].next = &request;
  rail.posted[rail.head % depth_] = &op;
  ++rail.head;
  ++batch.count;
  ++walk.open;
}

/// Tells the other side how many of its puts are in place, if it does not know.
void VerbsTransport::post_answer(Link& link, Rail& rail) {
  if (rail.puts_answered == rail.puts_received || rail.head - rail.tail >= depth_) return;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = htonl(kAnswer | rail.puts_received);
  const auto index = static_cast<std::uint64_t>(&rail - link.rails.data());
  request.wr_id = index << kRailShift | rail.head;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(rail.queue.get(), &request, &bad) != 0) {
    link.broken = "post of an answer";
    return;
  }
  rail.posted[rail.head % depth_] = nullptr;
  ++rail.head;
  rail.puts_answered = rail.puts_received;
}

// ---- completions ----

std::size_t VerbsTransport::poll() {
  if (armed_) {
    armed_ = false;
    if (device_->drain_events())
      for (Link* link : links_) link->broken = "the device failed";
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = *links_[i];
    if (link.closed || link.completions == nullptr) continue;
    count += poll_link(link);
    for (Rail& rail : link.rails) {
      if (!link.broken.empty()) break;
      post_answer(link, rail);
      post_ready(link, rail);
    }
    if (!link.broken.empty()) lose(*link.session, "verbs: " + link.broken);
  }
  return count;
}

std::size_t VerbsTransport::poll_link(Link& link) {
  ibv_wc completions[kBatch];
  std::size_t sum = 0;
  for (int turn = 0; turn < kTurnsPerPoll; ++turn) {
    const int count = ibv_poll_cq(link.completions.get(), kBatch, completions);
    if (count < 0) link.broken = "completion queue";
    if (count <= 0) break;
    sum += static_cast<std::size_t>(count);
    for (int i = 0; i < count; ++i) {
      if (completions[i].wr_id == ~0ull)
        received(link, completions[i]);
      else
        completed(link, completions[i]);
    }
    if (count < static_cast<int>(kBatch)) break;
  }
  return sum;
}

/// A signalled (or failed) work request tells of all before it on its rail.
void VerbsTransport::completed(Link& link, const ibv_wc& wc) {
  const std::size_t index = wc.wr_id >> kRailShift;
  if (index >= link.rails.size()) return;
  Rail& rail = link.rails[index];
  const std::uint64_t number = wc.wr_id & ((1ull << kRailShift) - 1);
  const bool refused = wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR ||
                       wc.status == IBV_WC_REM_OP_ERR;
  if (wc.status != IBV_WC_SUCCESS && link.broken.empty()) {
    link.broken = ibv_wc_status_str(wc.status);
    if (Op* op = rail.posted[number % depth_]; op != nullptr && refused && !link.closed) {
      op->stopping = true;  // the others of this link are lost, this one is to blame
      op->wish = Verdict::refused;
    }
  }
  while (rail.tail <= number && rail.tail < rail.head) {
    Op* op = rail.posted[rail.tail % depth_];
    ++rail.tail;
    // Of a session that ends, operations are ended by whoever ends it.
    if (op == nullptr || link.closed || !link.broken.empty()) continue;
    --walk_of(*op).open;
    settle(*op);
  }
}

void VerbsTransport::received(Link& link, const ibv_wc& wc) {
  device_->refill_receives(1);
  if (wc.status != IBV_WC_SUCCESS || link.closed || !link.broken.empty()) return;
  const auto found = std::find_if(link.rails.begin(), link.rails.end(), [&](const Rail& rail) {
    return rail.queue->qp_num == wc.qp_num;
  });
  if (found == link.rails.end() || (wc.wc_flags & IBV_WC_WITH_IMM) == 0) return;
  const std::uint32_t immediate = ntohl(wc.imm_data);
  if ((immediate & kAnswer) == 0) {
    found->puts_received = immediate;
    return;
  }
  // Answers are cumulative and in order.
  const std::uint32_t count = immediate & kCount;
  while (!found->unanswered.empty()) {
    const auto [number, op] = found->unanswered.front();
    if (((count - number) & kCount) > kCount / 2) break;  // a later one
    found->unanswered.pop_front();
    --walk_of(*op).open;
    settle(*op);
  }
}

bool VerbsTransport::arm_backend() {
  armed_ = true;
  for (Link* link : links_) {
    if (link->closed || link->completions == nullptr) continue;
    if (ibv_req_notify_cq(link->completions.get(), 0) != 0) return false;
    if (poll_link(*link) > 0) return false;  // came before the notice was asked for
  }
  return true;
}

}  // namespace infos
