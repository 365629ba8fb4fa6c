// SPDX-License-Identifier: Apache-2.0
// Puts over shared memory: the source writes a letter into the destination's door, the destination
// checks it against its own table of grants, copies, and answers with a letter.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "transports/shm/shm_impl.h"

namespace infos {
namespace {

constexpr std::uint32_t kPutsOutMax = 256;    ///< that one neighbor has of ours
constexpr std::size_t kLandingsMax = 16'384;  ///< that all neighbors have here
constexpr std::uint64_t kPiecesMax = 1u << 24;
constexpr std::uint64_t kLandingBit = std::uint64_t{1} << 63;
constexpr int kReadsPerProgress = 4;

}  // namespace

// ---- at the source ----

void ShmTransport::begin_put(std::uint64_t id, Op& op, const Region& from,
                             std::span<const Piece> pieces) {
  std::vector<Piece> real;
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    real.push_back({from.range.offset + piece.local, piece.remote, piece.bytes});
    op.bytes += piece.bytes;
  }
  op.letter = {LetterKind::put, op.remote.slot, place_.nonce.low, id, op.remote.secret, 0, 0, 0,
               real.size()};
  List list{op.neighbor, {}};
  if (real.size() == 1) {
    op.letter.local = real[0].local;
    op.letter.remote = real[0].remote;
    op.letter.bytes = real[0].bytes;
  } else if (!real.empty()) {
    const auto range = file_->allocate(real.size() * sizeof(Piece));
    if (!range.ok()) return end(id, op, Verdict::failed);
    std::memcpy(range->memory.data(), real.data(), range->memory.size());
    op.letter.local = range->offset;
    list.range = *range;
  }
  lists_[id] = std::move(list);
  waiting_puts_.push_back(id);
  post_puts();
}

void ShmTransport::post_puts() {
  std::size_t turns = waiting_puts_.size();
  for (; turns > 0; --turns) {
    const std::uint64_t id = waiting_puts_.front();
    const auto at = ops_.find(id);
    if (at == ops_.end() || at->second.over) {  // given up before it was sent
      drop_list(id);
      waiting_puts_.pop_front();
      continue;
    }
    Neighbor& neighbor = *at->second.neighbor;
    waiting_puts_.pop_front();
    if (neighbor.puts_out >= kPutsOutMax) {
      waiting_puts_.push_back(id);
      continue;
    }
    if (!neighbor.greeted) {
      Letter hello{LetterKind::hello, static_cast<std::uint32_t>(place_.pid), place_.nonce.low,
                   static_cast<std::uint64_t>(place_.file_fd), place_.nonce.high};
      neighbor.send(hello);
      neighbor.greeted = true;
    }
    neighbor.send(at->second.letter);
    ++neighbor.puts_out;
  }
}

void ShmTransport::drop_list(std::uint64_t op) {
  const auto at = lists_.find(op);
  if (at == lists_.end()) return;
  if (!at->second.range.memory.empty()) file_->free(at->second.range);
  lists_.erase(at);
}

void ShmTransport::put_answered(const Letter& letter) {
  const auto list = lists_.find(letter.op);
  if (list == lists_.end()) return;
  if (list->second.neighbor->puts_out > 0) --list->second.neighbor->puts_out;
  drop_list(letter.op);
  const auto at = ops_.find(letter.op);
  if (at == ops_.end() || at->second.over) return;
  const bool known = letter.slot <= static_cast<std::uint32_t>(Verdict::failed);
  end(letter.op, at->second, known ? static_cast<Verdict>(letter.slot) : Verdict::failed);
}

// ---- at the destination ----

void ShmTransport::read_door() {
  for (int reads = 0; reads < kReadsPerProgress; ++reads) {
    Letter letters[64];
    const ssize_t got = read(door_in_.get(), letters, sizeof letters);
    if (got <= 0) return;
    const std::size_t count = static_cast<std::size_t>(got) / sizeof(Letter);
    for (std::size_t i = 0; i < count; ++i) {
      if (letters[i].kind == LetterKind::hello) greet(letters[i]);
      if (letters[i].kind == LetterKind::put) land(letters[i]);
      if (letters[i].kind == LetterKind::done) put_answered(letters[i]);
    }
    if (count < 64) return;
  }
}

void ShmTransport::greet(const Letter& letter) {
  const ShmPlace place{
      static_cast<int>(letter.slot), static_cast<int>(letter.op), {letter.secret, letter.from}};
  if (place.pid > 0) static_cast<void>(neighbor_of(place));  // one that cannot be seen is ignored
}

Neighbor* ShmTransport::known(std::uint64_t nonce_low) {
  const auto at = neighbors_.find(nonce_low);
  return at == neighbors_.end() ? nullptr : at->second.get();
}

void ShmTransport::land(const Letter& letter) {
  Neighbor* sender = known(letter.from);
  if (sender == nullptr) return;
  auto landing = std::make_unique<Landing>();
  landing->neighbor = neighbors_[letter.from];
  landing->op = letter.op;
  const Verdict prepared = prepare(letter, *landing);
  if (prepared != Verdict::ok) return reply(*sender, letter.op, prepared);
  const std::uint64_t id = next_id_++ | kLandingBit;
  landing->job.tag = id;
  CopyJob* job = &landing->job;
  landings_[id] = std::move(landing);
  copier_->give(job);
}

/// The letter and what it points to are the sender's memory: copied first, then checked.
Verdict ShmTransport::prepare(const Letter& letter, Landing& landing) {
  Neighbor& sender = *landing.neighbor;
  if (sender.lost() || landings_.size() >= kLandingsMax) return Verdict::failed;
  if (letter.slot >= kGrantSlots || letter.count > kPiecesMax) return Verdict::refused;
  landing.grant = grant_of_slot_[letter.slot];
  const auto at = grants_.find(landing.grant);
  if (at == grants_.end() || at->second.secret != letter.secret) return Verdict::refused;
  const Grant& grant = at->second;
  if (grant.access != Access::write || landing.grant.value <= sender.grants_void_through)
    return Verdict::refused;
  std::vector<Piece> pieces(letter.count == 1 ? 1 : 0);
  if (letter.count == 1) {
    pieces[0] = {letter.local, letter.remote, letter.bytes};
  } else if (letter.count > 1) {
    const std::byte* list = sender.at(letter.local, letter.count * sizeof(Piece));
    if (list == nullptr) return Verdict::refused;
    pieces.resize(letter.count);
    std::memcpy(pieces.data(), list, letter.count * sizeof(Piece));
  }
  landing.job.runs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const std::byte* source = sender.at(piece.local, piece.bytes);
    if (source == nullptr || piece.remote > grant.memory.size() ||
        piece.bytes > grant.memory.size() - piece.remote)
      return Verdict::refused;
    if (piece.bytes > 0)
      landing.job.runs.push_back({grant.memory.data() + piece.remote, source, piece.bytes});
  }
  return Verdict::ok;
}

void ShmTransport::abort_landings(const std::function<bool(const Landing&)>& which,
                                  Verdict verdict) {
  for (auto& [id, landing] : landings_) {
    if (!which(*landing)) continue;
    landing->on_abort = verdict;
    copier_->abort(&landing->job);
  }
}

bool ShmTransport::any_landing(const std::function<bool(const Landing&)>& which) const {
  return std::any_of(landings_.begin(), landings_.end(),
                     [&](const auto& l) { return which(*l.second); });
}

void ShmTransport::reply(Neighbor& neighbor, std::uint64_t op, Verdict verdict) {
  Letter letter{LetterKind::done, static_cast<std::uint32_t>(verdict), place_.nonce.low, op};
  neighbor.send(letter);
}

}  // namespace infos
