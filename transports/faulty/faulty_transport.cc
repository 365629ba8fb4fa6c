// SPDX-License-Identifier: Apache-2.0
#include "transports/faulty/faulty_transport.h"

#include <algorithm>

namespace infos {

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const FaultyOptions& options)
    : options_(options), info_(inner->info()), rng_(options.seed), inner_(std::move(inner)) {
  info_.checks_bytes = info_.checks_bytes && options.corrupt == 0;
}

FaultyTransport::~FaultyTransport() {
  for (auto& [id, op] : ops_)
    if (!op.inner) end(op, Verdict::cancelled);
  inner_.reset();  // ends those that began
  while (!ops_.empty()) say_verdicts();
  for (const auto& answer : std::exchange(answers_, {})) answer();
}

TransportStats FaultyTransport::stats() const {
  TransportStats stats = inner_->stats();
  stats.ops_ok = ops_ok_;
  stats.ops_not_ok = ops_not_ok_;
  stats.ops_open = static_cast<std::uint32_t>(
      std::count_if(ops_.begin(), ops_.end(), [](const auto& o) { return o.second.done; }));
  return stats;
}

Result<RegionId> FaultyTransport::allocate(std::uint64_t bytes, std::span<std::byte>& memory) {
  const RegionId region = INFOS_TRY(inner_->allocate(bytes, memory));
  regions_[region] = memory;
  return region;
}

Result<RegionId> FaultyTransport::adopt(std::span<std::byte> memory) {
  const RegionId region = INFOS_TRY(inner_->adopt(memory));
  regions_[region] = memory;
  return region;
}

void FaultyTransport::forget(RegionId region) {
  regions_.erase(region);
  inner_->forget(region);
}

Result<RemoteId> FaultyTransport::open_remote(PeerId peer, std::string_view key) {
  const RemoteId remote = INFOS_TRY(inner_->open_remote(peer, key));
  remotes_[remote] = peer;
  return remote;
}

void FaultyTransport::close_remote(RemoteId remote) {
  // One that is used by an operation that has not begun stays known.
  const auto waits = [&](const auto& o) { return o.second.remote == remote && !o.second.inner; };
  if (std::any_of(ops_.begin(), ops_.end(), waits)) return;
  remotes_.erase(remote);
  inner_->close_remote(remote);
}

void FaultyTransport::fence(PeerId peer, std::function<void()> done) {
  for (auto& [id, op] : ops_) {
    const auto at = remotes_.find(op.remote);
    if (at != remotes_.end() && at->second == peer && !op.inner) end(op, Verdict::cancelled);
  }
  std::erase_if(remotes_, [&](const auto& r) { return r.second == peer; });
  inner_->fence(peer, [this, done = std::move(done)] { answers_.push_back(done); });
}

void FaultyTransport::revoke(GrantId grant, std::function<void()> done) {
  inner_->revoke(grant, [this, done = std::move(done)] { answers_.push_back(done); });
}

OpId FaultyTransport::get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) {
  Op op;
  op.remote = from;
  op.region = into;
  return begin(std::move(op), pieces, std::move(done));
}

OpId FaultyTransport::put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) {
  Op op;
  op.kind = Op::Kind::put;
  op.remote = to;
  op.region = from;
  return begin(std::move(op), pieces, std::move(done));
}

FaultyTransport::Fault FaultyTransport::draw(Op::Kind kind) {
  double left = rng_.uniform();
  const auto hit = [&](double probability, std::uint64_t& count) {
    const bool now = left >= 0 && left < probability;
    left -= probability;
    if (now) ++count;
    return now;
  };
  if (hit(options_.delay, counts_.delay)) return Fault::delay;
  if (hit(options_.drop, counts_.drop)) return Fault::drop;
  if (hit(options_.fail, counts_.fail)) return Fault::fail;
  if (hit(options_.truncate, counts_.truncate)) return Fault::truncate;
  if (hit(options_.late, counts_.late)) return Fault::late;
  if (kind == Op::Kind::get && hit(options_.corrupt, counts_.corrupt)) return Fault::corrupt;
  return Fault::none;
}

OpId FaultyTransport::begin(Op op, std::span<const Piece> pieces, Done done) {
  const std::uint64_t id = next_op_++;
  op.fault = draw(op.kind);
  const std::uint64_t turns = rng_.below(options_.turns_max) + 1;
  op.pieces.assign(pieces.begin(), pieces.end());
  op.done = std::move(done);
  op.due = turn_;
  if (op.fault == Fault::delay || op.fault == Fault::late) op.due += turns;
  if (op.fault == Fault::drop) op.due += options_.turns_max;
  if (op.fault == Fault::truncate && !op.pieces.empty()) {
    op.pieces.resize(rng_.below(op.pieces.size()) + 1);
    op.pieces.back().bytes /= 2;
  }
  Op& kept = ops_[id] = std::move(op);
  if (kept.fault == Fault::fail) end(kept, Verdict::failed);
  if (!kept.over && !on_hold_ && kept.due <= turn_) start(id, kept);
  return OpId{id};
}

/// Gives the operation to the transport below.
void FaultyTransport::start(std::uint64_t id, Op& op) {
  const auto done = [this, id](OpId, Verdict verdict) { inner_ended(id, verdict); };
  op.inner = op.kind == Op::Kind::get ? inner_->get(op.remote, op.region, op.pieces, done)
                                      : inner_->put(op.remote, op.region, op.pieces, done);
}

void FaultyTransport::inner_ended(std::uint64_t id, Verdict verdict) {
  const auto at = ops_.find(id);
  Op& op = at->second;
  if (!op.done) {  // late: said long ago
    ops_.erase(at);
    return;
  }
  if (op.fault == Fault::truncate && verdict == Verdict::ok) verdict = Verdict::failed;
  if (op.fault == Fault::corrupt && verdict == Verdict::ok) corrupt(id, op);
  say(id, verdict);
}

void FaultyTransport::corrupt(std::uint64_t id, const Op& op) {
  Rng rng(options_.seed ^ id * 0x9E3779B97F4A7C15ULL);  // completions come in any order
  std::uint64_t bytes = 0;
  for (const Piece& piece : op.pieces) bytes += piece.bytes;
  if (bytes == 0) return;
  std::uint64_t at = rng.below(bytes);
  for (const Piece& piece : op.pieces) {
    if (at < piece.bytes) {
      regions_.at(op.region)[piece.local + at] ^= static_cast<std::byte>(1 << rng.below(8));
      return;
    }
    at -= piece.bytes;
  }
}

void FaultyTransport::end(Op& op, Verdict verdict) {
  if (op.over) return;
  op.over = true;
  op.verdict = verdict;
}

void FaultyTransport::say(std::uint64_t id, Verdict verdict) {
  const auto node = ops_.extract(id);
  ++(verdict == Verdict::ok ? ops_ok_ : ops_not_ok_);
  ++called_;
  node.mapped().done(OpId{id}, verdict);
}

void FaultyTransport::say_verdicts() {
  std::vector<std::uint64_t> over;
  for (const auto& [id, op] : ops_)
    if (op.over) over.push_back(id);
  for (const std::uint64_t id : over) {
    const auto at = ops_.find(id);
    if (at == ops_.end()) continue;
    if (at->second.done)
      say(id, at->second.verdict);
    else
      ops_.erase(at);
  }
}

void FaultyTransport::cancel(OpId op) {
  const auto at = ops_.find(op.value);
  if (at == ops_.end()) return;
  if (at->second.inner)
    inner_->cancel(at->second.inner);
  else
    end(at->second, Verdict::cancelled);
}

std::size_t FaultyTransport::progress() {
  ++turn_;
  called_ = 0;
  std::vector<std::uint64_t> due, late;
  for (const auto& [id, op] : ops_) {
    if (op.over || op.inner) continue;
    if (op.fault == Fault::late && op.done) late.push_back(id);
    if (!on_hold_ && op.due <= turn_) due.push_back(id);
  }
  for (const std::uint64_t id : late) {  // the verdict first, the bytes after it
    const auto at = ops_.find(id);
    if (at == ops_.end() || at->second.over) continue;
    const Transport::Done done = std::exchange(at->second.done, nullptr);
    ++ops_not_ok_;
    ++called_;
    done(OpId{id}, Verdict::failed);
  }
  for (const std::uint64_t id : due) {
    const auto at = ops_.find(id);
    if (at == ops_.end() || at->second.over) continue;
    if (at->second.fault == Fault::drop)
      end(at->second, Verdict::failed);
    else
      start(id, at->second);
  }
  say_verdicts();
  inner_->progress();
  for (const auto& answer : std::exchange(answers_, {})) {
    ++called_;
    answer();
  }
  return called_;
}

bool FaultyTransport::arm() {
  if (!answers_.empty()) return false;
  for (const auto& [id, op] : ops_)
    if (op.over || (!op.inner && !on_hold_)) return false;
  return inner_->arm();
}

}  // namespace infos
