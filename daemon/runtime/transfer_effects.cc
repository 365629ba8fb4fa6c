// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "daemon/control/codec_kv.h"
#include "daemon/runtime/transfer_shell.h"
#include "daemon/runtime/worker_exit.h"
#include "topology/base/log.h"

namespace infos {
namespace {

MoveVerdict verdict_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return MoveVerdict::landed;
    case Verdict::cancelled:
      return MoveVerdict::cancelled;
    case Verdict::peer_lost:
      return MoveVerdict::peer_lost;
    case Verdict::refused:
      return MoveVerdict::refused;
    case Verdict::failed:
      return MoveVerdict::failed;
  }
  return MoveVerdict::failed;
}

}  // namespace

void TransferThread::Shell::perform(TransferEffect& effect) {
  std::visit([this](auto& e) { on(e); }, effect);
}

void TransferThread::Shell::on(SendKv& e) {
  KvLetter letter{options_.core.self, e.to, encode(e.message)};
  const std::lock_guard lock(loop_mutex_);
  if (loop_.send) loop_.send(std::move(letter));
}

// ---- sources ----

void TransferThread::Shell::on(AttachSource& e) {
  Attached& attached = attached_[e.fetch];
  leave(attached);
  attached = {e.source, std::move(e.access), {}, {}, {}, {}, {}};
  // All ranks have one layout, which names them all.
  auto layout = attached.access.grants.empty()
                    ? Result<KvLayout>(Error{ErrorCode::invalid_argument, "no grants"})
                    : decode_kv_layout(attached.access.grants.front().layout);
  if (layout.ok()) {
    attached.layout = *layout;
    const auto allowed = can_reshard(*layout, options_.layout, options_.policy);
    if (!allowed.ok()) attached.refused = allowed.error().message;
  } else {
    attached.refused = layout.error().message;
  }
  if (!attached.refused.empty())
    log_warn("transfer", "KV cannot be used here",
             {{"from", e.source.worker.value}, {"why", attached.refused}});
}

void TransferThread::Shell::leave(Attached& attached) {
  if (attached.source) mover_->detach(attached.source);
  if (attached.link)
    for (const RemoteId remote : attached.remotes)
      links_.transport(attached.link->transport).close_remote(remote);
  attached.source = {};
  attached.link.reset();
  attached.remotes.clear();
}

void TransferThread::Shell::on(const DetachSource& e) {
  const auto at = attached_.find(e.fetch);
  if (at == attached_.end()) return;
  leave(at->second);
  attached_.erase(at);
}

/// Opens every rank's grants over a link.
Result<KvRemote> TransferThread::Shell::remote_of(Attached& attached, const TransferLink& link) {
  KvRemote remote;
  Transport& transport = links_.transport(link.transport);
  remote.transport = &transport;
  remote.layout = attached.layout;
  for (const SharedMemory* pool : pools_)
    remote.memory.pools.push_back(pool->regions[link.transport]);
  remote.memory.staging = staging_->regions[link.transport];
  const std::uint32_t ranks = attached.layout.ranks;
  remote.pools.resize(ranks);
  remote.stamps.resize(ranks);
  for (const KvGrant& grant : attached.access.grants) {
    // A link made for another lease may lead to another place of the list.
    if (grant.endpoint >= attached.access.endpoints.size() || grant.rank >= ranks ||
        attached.access.endpoints[grant.endpoint].kind !=
            static_cast<std::uint32_t>(transport.info().kind))
      continue;
    remote.pools[grant.rank] = INFOS_TRY(transport.open_remote(link.peer, grant.pool_key));
    attached.remotes.push_back(remote.pools[grant.rank]);
    remote.stamps[grant.rank] = INFOS_TRY(transport.open_remote(link.peer, grant.stamp_key));
    attached.remotes.push_back(remote.stamps[grant.rank]);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    if (!remote.pools[rank])
      return Error{ErrorCode::invalid_argument, fmt::format("no grant for rank {}", rank)};
  return remote;
}

/// A link that works and the mover's programs, made or made again.
Status TransferThread::Shell::reach(Attached& attached) {
  if (!attached.refused.empty()) return Error{ErrorCode::unsupported, attached.refused};
  const TransferLink link = INFOS_TRY(links_.reach(attached.worker, attached.access));
  if (attached.source && attached.link->transport == link.transport &&
      attached.link->peer == link.peer)
    return {};
  for (const auto& [id, move] : moves_)  // of the old link, which is about to be fenced
    if (attached_.contains(move.fetch) && &attached_[move.fetch] == &attached)
      return Error{ErrorCode::unavailable, "the link broke"};
  leave(attached);
  attached.link = link;
  const KvRemote remote = INFOS_TRY(remote_of(attached, link));
  attached.source = INFOS_TRY(mover_->attach(remote));
  return {};
}

// ---- moves ----

void TransferThread::Shell::on(MoveKv& e) {
  const auto at = attached_.find(e.fetch);
  Status reached = at == attached_.end()
                       ? Status(Error{ErrorCode::not_found, "no source is attached"})
                       : reach(at->second);
  if (!reached.ok()) {
    const bool refused = reached.error().code != ErrorCode::unavailable;
    log_warn("transfer", "a source cannot be reached", {{"why", reached.error().message}});
    queue_.push_back(
        MoveDone{e.id, refused ? MoveVerdict::refused : MoveVerdict::peer_lost, {}, true});
    return;
  }
  KvMove move{e.begin, e.end, e.layer_begin, e.layer_end, e.source_begin, {}, e.into_begin, {}};
  for (const SourceBlock& block : e.sources) move.sources.push_back({block.block, block.tokens});
  move.into = std::move(e.into);
  moves_[e.id] = {e.fetch, {}, std::move(e.sources)};
  const EffectId id = e.id;
  const KvMoveId started =
      mover_->start(at->second.source, std::move(move),
                    [this, id](KvMoveId, KvMoved result) { moved(id, std::move(result)); });
  if (const auto known = moves_.find(id); known != moves_.end()) known->second.move = started;
}

void TransferThread::Shell::moved(EffectId id, KvMoved result) {
  MoveDone done{id, verdict_of(result.verdict), {}, result.quiet};
  for (const KvSeen& seen : result.seen)
    done.seen.push_back({{seen.generation}, seen.tokens, seen.intact});
  moves_.erase(id);
  queue_.push_back(std::move(done));
}

void TransferThread::Shell::on(const CancelMove& e) {
  if (const auto at = moves_.find(e.id); at != moves_.end()) mover_->cancel(at->second.move);
}

void TransferThread::Shell::on(const FencePeer& e) {
  const EffectId id = e.id;
  fence(e.peer, [this, id] { queue_.push_back(Fenced{id}); });
}

void TransferThread::Shell::fence(const WorkerRef& peer, std::function<void()> done) {
  // Moves that the mover has not begun end here, the others by the fence.
  std::vector<KvMoveId> moves;
  for (const auto& [id, move] : moves_)
    if (const auto at = attached_.find(move.fetch);
        at != attached_.end() && at->second.worker == peer)
      moves.push_back(move.move);
  for (const KvMoveId move : moves) mover_->cancel(move);
  std::vector<KvSourceId> sources;
  for (auto& [fetch, attached] : attached_)
    if (attached.worker == peer && attached.source) sources.push_back(attached.source);
  links_.fence(peer, [this, done = std::move(done), sources] {
    for (const KvSourceId source : sources) mover_->fenced(source);
    done();
  });
}

void TransferThread::Shell::on(const FenceOverdue& e) {
  log_error("transfer", "a fence is not answered: this process ends, its blocks cannot be proven",
            {{"peer", e.peer.worker.value}});
  ::_exit(kExitTransient);
}

void TransferThread::Shell::on(FetchDone& e) {
  if (!e.why.empty())
    log_info("transfer", "a fetch ended short", {{"tokens", e.tokens}, {"why", e.why}});
  answer(std::move(e));
}

// ---- leases ----

Result<KvAccess> TransferThread::Shell::grant(LeaseId lease) {
  KvAccess access;
  access.endpoints = links_.endpoints();
  std::vector<Granted>& granted = granted_[lease];
  const std::string layout = encode(options_.layout);
  for (std::uint32_t t = 0; t < links_.size(); ++t) {
    Transport& transport = links_.transport(t);
    const auto key = [&](const SharedMemory& memory) -> Result<std::string> {
      const GrantId id =
          INFOS_TRY(transport.grant(memory.regions[t], 0, memory.bytes.size(), Access::read));
      granted.push_back({t, id});
      return transport.key(id);
    };
    for (std::uint32_t rank = 0; rank < options_.layout.ranks; ++rank) {
      KvGrant one{t, rank, INFOS_TRY(key(*pools_[rank])), INFOS_TRY(key(*stamps_[rank])), layout};
      access.grants.push_back(std::move(one));
    }
  }
  return access;
}

void TransferThread::Shell::on(const OpenLease& e) {
  auto access = grant(e.lease);
  if (!access.ok()) {
    revoke(e.lease);
    queue_.push_back(LeaseOpened{e.lease, {}, access.error().message});
    return;
  }
  queue_.push_back(LeaseOpened{e.lease, *std::move(access), {}});
}

void TransferThread::Shell::on(StampKv& e) { stamp_jobs_.push_back({std::move(e)}); }

void TransferThread::Shell::on(const CloseLease& e) {
  std::erase_if(stamp_jobs_, [&](const StampJob& job) { return job.wish.lease == e.lease; });
  for (const BlockId block : e.unstamp) exporter_->unstamp(block);
  revoke(e.lease);
}

void TransferThread::Shell::revoke(LeaseId lease) {
  const auto at = granted_.find(lease);
  if (at == granted_.end()) return;
  // Nobody waits: what is read after this is not proven by a stamp that counts.
  for (const Granted& one : at->second) links_.transport(one.transport).revoke(one.grant, [] {});
  granted_.erase(at);
}

}  // namespace infos
