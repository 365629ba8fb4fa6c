// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/peer_relay.h"

#include <algorithm>
#include <utility>

namespace infos {
namespace {

constexpr std::size_t kNewsMax = 4096;  // of each kind, between two loads

template <typename T>
void gather(std::vector<T>& news, const std::vector<T>& more) {
  const std::size_t room = kNewsMax - std::min(kNewsMax, news.size());
  news.insert(news.end(), more.begin(),
              more.begin() + static_cast<std::ptrdiff_t>(std::min(room, more.size())));
}

}  // namespace

PeerRelay::Local* PeerRelay::local(WorkerRef worker) {
  const auto found = locals_.find(worker.worker);
  if (found == locals_.end() || found->second.generation != worker.generation) return nullptr;
  return &found->second;
}

/// The worker of that node in that generation, if it was announced.
PeerRelay::Remote* PeerRelay::remote(NodeId node, WorkerRef worker) {
  const auto found = remotes_.find(worker.worker);
  if (found == remotes_.end() || found->second.generation != worker.generation) return nullptr;
  return found->second.node == node ? &found->second : nullptr;
}

// ---- this node's workers and gateway ----

void PeerRelay::on(LocalUp& event, RelayEffects& out) {
  const WorkerRef ref = event.worker;
  if (locals_.contains(ref.worker)) return;  // AgentCore says one process's end before the next
  locals_[ref.worker] = {ref.generation, event.ready, false, {}, now_, {}, {}};
  for (const auto& [node, link] : links_)
    out.push_back(SendPeer{node, RemoteWorkerUp{ref, event.ready}});
  out.push_back(TellGateway{WorkerUp{ref.worker, ref.generation, std::move(event.ready)}});
}

void PeerRelay::on(LocalDown& event, RelayEffects& out) {
  const WorkerRef ref = event.worker;
  if (!local(ref)) return;
  locals_.erase(ref.worker);
  tell_correspondents(ref, out);
  for (const auto& [node, link] : links_)
    out.push_back(SendPeer{node, RemoteWorkerDown{ref, event.why}});
  out.push_back(TellGateway{WorkerDown{ref.worker, ref.generation}});
}

/// Each gateway hears of its own requests; the load goes to all, not too often.
void PeerRelay::on(LocalSaid& event, RelayEffects& out) {
  const WorkerRef ref = event.worker;
  Local* worker = local(ref);
  if (!worker) return;
  worker->ready.load = event.report.load;
  if (!links_.empty()) {
    gather(worker->news.fetches, event.report.fetches);
    gather(worker->news.held, event.report.held);
    gather(worker->news.dropped, event.report.dropped);
  }
  std::map<NodeId, StepReport> foreign;
  std::erase_if(event.report.tokens, [&](TokenOut& token) {
    const NodeId node = node_of(token.request);
    if (node == config_.self) return false;
    foreign[node].tokens.push_back(std::move(token));
    return true;
  });
  std::erase_if(event.report.ended, [&](SequenceEnd& end) {
    const NodeId node = node_of(end.request);
    if (node == config_.self) return false;
    // After `prefilled` it keeps KV for another worker, until the gateway cancels that or is lost.
    const auto known = worker->foreign.find(end.request);
    if (end.reason != FinishReason::prefilled && known != worker->foreign.end() &&
        known->second <= end.attempt)
      worker->foreign.erase(known);
    foreign[node].ended.push_back(std::move(end));
    return true;
  });
  for (auto& [node, report] : foreign) {
    if (!links_.contains(node)) continue;
    report.load = event.report.load;
    out.push_back(SendPeer{node, FromRemoteWorker{ref, std::move(report)}});
  }
  out.push_back(TellGateway{WorkerSaid{ref.worker, ref.generation, std::move(event.report)}});
  worker->load_changed = !links_.empty();
}

void PeerRelay::on(LocalLetter& event, RelayEffects& out) {
  const WorkerRef from = event.letter.from;
  const WorkerRef to = event.letter.to;
  Local* sender = local(from);
  if (!sender) return;
  if (Local* receiver = local(to)) {
    sender->correspondents.insert(to);
    receiver->correspondents.insert(from);
    out.push_back(SendLocal{{to.worker, to.generation, std::move(event.letter)}});
    return;
  }
  const auto found = remotes_.find(to.worker);
  if (found != remotes_.end() && found->second.generation == to.generation) {
    sender->correspondents.insert(to);
    out.push_back(SendPeer{found->second.node, RelayedLetter{std::move(event.letter)}});
    return;
  }
  out.push_back(SendLocal{{from.worker, from.generation, PeerGone{to}}});
}

void PeerRelay::on(GatewaySays& event, RelayEffects& out) {
  const auto found = remotes_.find(event.message.worker);
  if (found == remotes_.end()) return hand_over(std::move(event.message), out);
  const WorkerRef to{event.message.worker, event.message.generation};
  if (found->second.generation == to.generation)
    out.push_back(
        SendPeer{found->second.node, ToRemoteWorker{to, std::move(event.message.message)}});
}

// ---- links ----

void PeerRelay::on(LinkUp& event, RelayEffects& out) {
  LinkDown before{event.node, "the link was made anew"};
  on(before, out);
  links_[event.node] = {++sessions_};
  for (auto& [id, worker] : locals_)
    out.push_back(SendPeer{event.node, RemoteWorkerUp{{id, worker.generation}, worker.ready}});
}

/// What the other node's gateway had running here is of no use to it any more: it has begun again
/// elsewhere, or is dead.
void PeerRelay::on(LinkDown& event, RelayEffects& out) {
  if (links_.erase(event.node) == 0) return;
  for (auto& [id, worker] : locals_) {
    for (auto at = worker.foreign.begin(); at != worker.foreign.end();) {
      const auto [request, attempt] = *at;
      if (node_of(request) != event.node) {
        ++at;
        continue;
      }
      out.push_back(SendLocal{{id, worker.generation, Cancel{request, attempt}}});
      at = worker.foreign.erase(at);
    }
  }
  std::vector<WorkerId> gone;
  for (const auto& [id, worker] : remotes_)
    if (worker.node == event.node) gone.push_back(id);
  for (const WorkerId id : gone) remote_gone(id, out);
}

void PeerRelay::on(LinkSaid& event, RelayEffects& out) {
  if (!links_.contains(event.node)) return;
  std::visit([&](auto& message) { said(event.node, message, out); }, event.message);
}

void PeerRelay::said(NodeId node, ToRemoteWorker& message, RelayEffects& out) {
  const WorkerRef to = message.to;
  Local* worker = local(to);
  const auto* submit = std::get_if<Submit>(&message.message);
  const auto* cancel = std::get_if<Cancel>(&message.message);
  const auto* withheld = std::get_if<KvWithheld>(&message.message);
  if (!submit && !cancel && !withheld) {
    out.push_back(RelayRefused{
        node, "a gateway of another node may only submit, cancel and say that KV is withheld"});
    return;
  }
  const RequestId request =
      submit ? submit->request : (cancel ? cancel->request : withheld->request);
  if (node_of(request) != node) {
    out.push_back(RelayRefused{node, "it speaks of request " + std::to_string(request.value) +
                                         ", which is of node " +
                                         std::to_string(node_of(request).value)});
    return;
  }
  if (!worker) return;
  if (submit)
    worker->foreign[request] = submit->attempt;
  else if (const auto found = worker->foreign.find(request);
           cancel && found != worker->foreign.end() && found->second <= cancel->attempt)
    worker->foreign.erase(found);
  hand_over({to.worker, to.generation, std::move(message.message)}, out);
}

void PeerRelay::said(NodeId node, FromRemoteWorker& message, RelayEffects& out) {
  Remote* worker = remote(node, message.from);
  if (!worker) return;
  worker->ready.load = message.report.load;
  out.push_back(TellGateway{
      WorkerSaid{message.from.worker, message.from.generation, std::move(message.report)}});
}

void PeerRelay::said(NodeId node, RemoteWorkerUp& message, RelayEffects& out) {
  const WorkerRef ref = message.worker;
  const auto found = remotes_.find(ref.worker);
  if (locals_.contains(ref.worker) || (found != remotes_.end() && found->second.node != node)) {
    out.push_back(RelayRefused{node, "it announces worker " + std::to_string(ref.worker.value) +
                                         ", which serves on another node"});
    return;
  }
  if (found != remotes_.end()) {
    if (found->second.generation >= ref.generation) return;
    remote_gone(ref.worker, out);
  }
  remotes_[ref.worker] = {node, ref.generation, message.ready};
  out.push_back(TellGateway{
      WorkerUp{ref.worker, ref.generation, std::move(message.ready), links_.at(node).session}});
}

void PeerRelay::said(NodeId node, RemoteWorkerDown& message, RelayEffects& out) {
  if (remote(node, message.worker)) remote_gone(message.worker.worker, out);
}

void PeerRelay::said(NodeId node, RelayedLetter& message, RelayEffects& out) {
  const WorkerRef from = message.letter.from;
  const WorkerRef to = message.letter.to;
  if (!remote(node, from)) return;
  Local* receiver = local(to);
  if (!receiver) return;  // the sender's node hears of its end
  receiver->correspondents.insert(from);
  out.push_back(SendLocal{{to.worker, to.generation, std::move(message.letter)}});
}

/// A worker that is to share KV with another one must hear of that one's end, although neither has
/// written yet: else it keeps KV for nobody.
void PeerRelay::hand_over(SendWorker message, RelayEffects& out) {
  const WorkerRef to{message.worker, message.generation};
  const auto* submit = std::get_if<Submit>(&message.message);
  const WorkerRef sink = submit ? submit->kv_for.worker : WorkerRef{};
  out.push_back(SendLocal{std::move(message)});
  Local* worker = local(to);
  if (!worker || !sink.worker) return;
  const auto found = remotes_.find(sink.worker);
  const bool there =
      local(sink) || (found != remotes_.end() && found->second.generation == sink.generation);
  if (there)
    worker->correspondents.insert(sink);
  else
    out.push_back(SendLocal{{to.worker, to.generation, PeerGone{sink}}});
}

// ---- ends ----

void PeerRelay::remote_gone(WorkerId id, RelayEffects& out) {
  const auto found = remotes_.find(id);
  const WorkerRef ref{id, found->second.generation};
  const std::uint64_t session =
      links_.contains(found->second.node) ? links_.at(found->second.node).session : sessions_;
  remotes_.erase(found);
  tell_correspondents(ref, out);
  out.push_back(TellGateway{WorkerDown{ref.worker, ref.generation, session}});
}

void PeerRelay::tell_correspondents(WorkerRef gone, RelayEffects& out) {
  for (auto& [id, worker] : locals_)
    if (worker.correspondents.erase(gone) > 0)
      out.push_back(SendLocal{{id, worker.generation, PeerGone{gone}}});
}

// ---- loads and time ----

void PeerRelay::spread_load(WorkerId id, Local& worker, RelayEffects& out) {
  worker.load_changed = false;
  worker.load_at = now_ + config_.load_interval;
  StepReport report = std::exchange(worker.news, {});
  report.load = worker.ready.load;
  for (const auto& [node, link] : links_)
    out.push_back(SendPeer{node, FromRemoteWorker{{id, worker.generation}, report}});
}

void PeerRelay::expire(RelayEffects& out) {
  for (auto& [id, worker] : locals_)
    if (worker.load_changed && worker.load_at <= now_) spread_load(id, worker, out);
}

void PeerRelay::step(Time now, RelayEvent event, RelayEffects& out) {
  now_ = std::max(now_, now);
  std::visit([&](auto& e) { on(e, out); }, event);
  expire(out);
}

Time PeerRelay::next_deadline() const {
  Time next = kNever;
  for (const auto& [id, worker] : locals_)
    if (worker.load_changed) next = std::min(next, worker.load_at);
  return next;
}

std::vector<RemoteWorker> PeerRelay::remote_workers() const {
  std::vector<RemoteWorker> all;
  for (const auto& [id, worker] : remotes_)
    all.push_back({worker.node, {id, worker.generation}, worker.ready});
  return all;
}

std::vector<WorkerRef> PeerRelay::local_workers() const {
  std::vector<WorkerRef> all;
  for (const auto& [id, worker] : locals_) all.push_back({id, worker.generation});
  return all;
}

}  // namespace infos
