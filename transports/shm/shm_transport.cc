// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "transports/shm/shm_impl.h"

namespace infos {
namespace {

constexpr Duration kBeatEvery = milliseconds(5), kWatchEvery = milliseconds(20);
/// Longer between two looks: it is we who were away, not the peers.
constexpr Duration kAway = milliseconds(200);
constexpr int kChunksPerProgress = 4;
constexpr std::uint32_t kPutsOutMax = 256;
constexpr std::uint64_t kLandingBit = std::uint64_t{1} << 63;
constexpr char kKeyKind[] = "shm-key 1 ";

Time now_monotonic() {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(
              std::chrono::steady_clock::now().time_since_epoch())
              .count()};
}

std::string key_text(std::uint64_t nonce_low, std::uint32_t slot, std::uint64_t secret) {
  char text[96];
  std::snprintf(text, sizeof text, "%s%016llx %08x %016llx", kKeyKind,
                static_cast<unsigned long long>(nonce_low), slot,
                static_cast<unsigned long long>(secret));
  return text;
}

std::uint64_t hex_at(std::string_view text, std::size_t at, std::size_t digits) {
  std::uint64_t value = 0;
  const std::string_view part = text.substr(std::min(at, text.size()), digits);
  std::from_chars(part.data(), part.data() + part.size(), value, 16);
  return value;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options) {
  return ShmTransport::create(options);
}

Result<std::unique_ptr<Transport>> ShmTransport::create(const ShmOptions& options) {
  std::unique_ptr<ShmTransport> transport(new ShmTransport(options));
  const Status opened = transport->open();
  if (!opened.ok()) return opened.error();
  return std::unique_ptr<Transport>(std::move(transport));
}

Status ShmTransport::open() {
  int door[2] = {-1, -1};
  const bool has_door = pipe2(door, O_CLOEXEC | O_NONBLOCK) == 0;
  door_in_ = OwnFd(door[0]);
  door_out_ = OwnFd(door[1]);
  event_ = OwnFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = OwnFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  epoll_ = OwnFd(epoll_create1(EPOLL_CLOEXEC));
  if (!has_door || !event_ || !timer_ || !epoll_)
    return Error{ErrorCode::resource_exhausted,
                 std::string("shm transport: no descriptors: ") + std::strerror(errno)};
  for (const int fd : {door_in_.get(), event_.get(), timer_.get()}) {
    epoll_event event{EPOLLIN, {.fd = fd}};
    INFOS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
  file_ = INFOS_TRY(SharedFile::create(door_out_.get()));
  place_ = {getpid(), file_->fd(), file_->head().nonce};
  for (std::uint32_t slot = kGrantSlots; slot > 0; --slot) free_slots_.push_back(slot - 1);
  grant_of_slot_.resize(kGrantSlots);
  info_.kind = TransportKind::shm;
  info_.direct_bytes_min = 256;
  info_.ops_in_flight_max = kPutsOutMax;
  copier_ = std::make_unique<Copier>(options_.helpers, event_.get());
  watch(now_monotonic());
  return {};
}

ShmTransport::~ShmTransport() {
  copier_.reset();  // nothing is written from here on
  peers_.swap(closed_peers_);
  for (auto& [id, op] : ops_)
    if (!op.over) end(id, op, Verdict::cancelled);
  while (!over_.empty()) say_verdicts();
  for (auto& [id, peer] : closed_peers_)
    for (const auto& fenced : peer.fenced) fenced();
  for (const Revoking& revoking : revoking_) revoking.done();
  lists_.clear();
}

TransportStats ShmTransport::stats() const {
  TransportStats stats = stats_;
  stats.ops_open = static_cast<std::uint32_t>(ops_.size());
  stats.peers_open = static_cast<std::uint32_t>(peers_.size());
  stats.regions_open = static_cast<std::uint32_t>(regions_.size());
  stats.grants_open = static_cast<std::uint32_t>(grants_.size());
  return stats;
}

// ---- memory ----

Result<RegionId> ShmTransport::allocate(std::uint64_t bytes, std::span<std::byte>& memory) {
  const SharedFile::Range range = INFOS_TRY(file_->allocate(bytes));
  const RegionId id{static_cast<std::uint32_t>(next_id_++)};
  regions_[id] = {range, Region::Owner::allocated};
  allocated_[reinterpret_cast<std::uint64_t>(range.memory.data())] = id;
  memory = range.memory;
  return id;
}

Result<RegionId> ShmTransport::adopt(std::span<std::byte> memory) {
  const auto address = reinterpret_cast<std::uint64_t>(memory.data());
  auto at = allocated_.upper_bound(address);
  if (at != allocated_.begin()) {
    const auto& whole = regions_[(--at)->second].range;
    const std::uint64_t begin = address - at->first;
    if (begin <= whole.memory.size() && memory.size() <= whole.memory.size() - begin) {
      const RegionId id{static_cast<std::uint32_t>(next_id_++)};
      regions_[id] = {{whole.offset + begin, memory}, Region::Owner::adopted};
      return id;
    }
  }
  return Error{ErrorCode::unsupported,
               "the shm transport shares memory of its own allocate() only"};
}

void ShmTransport::forget(RegionId region) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  if (at->second.owner == Region::Owner::allocated) {
    allocated_.erase(reinterpret_cast<std::uint64_t>(at->second.range.memory.data()));
    file_->free(at->second.range);
  }
  regions_.erase(at);
}

// ---- peers ----

Result<std::shared_ptr<Neighbor>> ShmTransport::neighbor_of(const ShmPlace& place) {
  auto& known = neighbors_[place.nonce.low];
  if (known && !known->lost() && known->nonce() == place.nonce) return known;
  auto opened = Neighbor::open(place);
  if (!opened.ok()) {
    if (!known) neighbors_.erase(place.nonce.low);
    return opened.error();
  }
  if (known) (*opened)->grants_void_through = known->grants_void_through;
  known = std::move(opened).value();
  epoll_event event{EPOLLIN, {.fd = known->pid_fd()}};
  INFOS_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, known->pid_fd(), &event) == 0);
  return known;
}

Result<PeerId> ShmTransport::connect(std::string_view address) {
  const ShmPlace place = INFOS_TRY(parse_place(address));
  const auto neighbor = INFOS_TRY(neighbor_of(place));
  const PeerId id{static_cast<std::uint32_t>(next_id_++)};
  peers_[id].neighbor = neighbor;
  return id;
}

PeerState ShmTransport::peer_state(PeerId peer) const {
  const auto at = peers_.find(peer);
  if (at == peers_.end() || at->second.fencing) return PeerState::closed;
  return at->second.neighbor->lost() ? PeerState::lost : PeerState::open;
}

void ShmTransport::fence(PeerId peer, std::function<void()> done) {
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return done();
  at->second.fenced.push_back(std::move(done));
  if (at->second.fencing) return;
  at->second.fencing = true;
  const auto neighbor = at->second.neighbor;
  // Its letters that we have not read yet speak of grants that are void from now on.
  neighbor->grants_void_through = next_id_ - 1;
  if (Neighbor* latest = known(neighbor->nonce().low)) latest->grants_void_through = next_id_ - 1;
  for (auto& [id, op] : ops_)
    if (op.peer == peer) abandon(id, op, Verdict::cancelled);
  abort_landings([&](const Landing& l) { return l.neighbor->nonce() == neighbor->nonce(); },
                 Verdict::cancelled);
}

// ---- grants ----

Result<GrantId> ShmTransport::grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                                    Access access) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  const SharedFile::Range& range = at->second.range;
  INFOS_CHECK(begin <= range.memory.size());
  INFOS_CHECK(bytes <= range.memory.size() - begin);
  if (free_slots_.empty())
    return Error{ErrorCode::resource_exhausted, "shm transport: 65536 grants are open"};
  const GrantId id{next_id_++};
  Grant& grant = grants_[id];
  grant = {free_slots_.back(), random_64(), range.memory.subspan(begin, bytes), access};
  free_slots_.pop_back();
  grant_of_slot_[grant.slot] = id;
  GrantSlot& slot = file_->slot(grant.slot);
  slot.offset.store(range.offset + begin, std::memory_order_relaxed);
  slot.bytes.store(bytes, std::memory_order_relaxed);
  slot.access.store(static_cast<std::uint64_t>(access), std::memory_order_relaxed);
  slot.secret.store(grant.secret, std::memory_order_release);
  return id;
}

std::string ShmTransport::key(GrantId grant) const {
  const auto at = grants_.find(grant);
  INFOS_CHECK(at != grants_.end());
  return key_text(place_.nonce.low, at->second.slot, at->second.secret);
}

void ShmTransport::revoke(GrantId grant, std::function<void()> done) {
  const auto at = grants_.find(grant);
  if (at != grants_.end()) {
    file_->slot(at->second.slot).secret.store(0, std::memory_order_seq_cst);
    grant_of_slot_[at->second.slot] = GrantId{};
    free_slots_.push_back(at->second.slot);
    grants_.erase(at);
    abort_landings([&](const Landing& l) { return l.grant == grant; }, Verdict::refused);
  }
  revoking_.push_back({grant, std::move(done)});
}

Result<RemoteId> ShmTransport::open_remote(PeerId peer, std::string_view key) {
  const std::size_t at = sizeof kKeyKind - 1;
  const std::uint64_t nonce_low = hex_at(key, at, 16), secret = hex_at(key, at + 26, 16);
  const auto slot = static_cast<std::uint32_t>(hex_at(key, at + 17, 8));
  const auto known = peers_.find(peer);
  if (key_text(nonce_low, slot, secret) != key || slot >= kGrantSlots)
    return Error{ErrorCode::invalid_argument, "not a key of an shm transport"};
  if (known != peers_.end() && known->second.neighbor->nonce().low != nonce_low)
    return Error{ErrorCode::invalid_argument, "a key of another shm transport than this peer's"};
  const RemoteId id{static_cast<std::uint32_t>(next_id_++)};
  if (known != peers_.end()) remotes_[id] = {peer, slot, secret};
  return id;
}

// ---- operations ----

OpId ShmTransport::get(RemoteId from, RegionId into, std::span<const Piece> pieces, Done done) {
  return begin(Op::Kind::get, from, into, pieces, done);
}

OpId ShmTransport::put(RemoteId to, RegionId from, std::span<const Piece> pieces, Done done) {
  return begin(Op::Kind::put, to, from, pieces, done);
}

OpId ShmTransport::begin(Op::Kind kind, RemoteId remote, RegionId region,
                         std::span<const Piece> pieces, Done& done) {
  const auto at = regions_.find(region);
  INFOS_CHECK(at != regions_.end());
  const std::uint64_t size = at->second.range.memory.size();
  for (const Piece& piece : pieces) {
    INFOS_CHECK(piece.local <= size);
    INFOS_CHECK(piece.bytes <= size - piece.local);
  }
  const std::uint64_t id = next_id_++;
  Op& op = ops_[id];
  op.kind = kind;
  op.done = std::move(done);
  const auto found = remotes_.find(remote);
  if (found == remotes_.end()) {
    end(id, op, Verdict::cancelled);
    return OpId{id};
  }
  op.remote = found->second;
  op.peer = op.remote.peer;
  const Peer& peer = peers_[op.peer];
  op.neighbor = peer.neighbor;
  if (peer.fencing)
    end(id, op, Verdict::cancelled);
  else if (op.neighbor->lost())
    end(id, op, Verdict::peer_lost);
  else if (kind == Op::Kind::get)
    begin_get(id, op, at->second, pieces);
  else
    begin_put(id, op, at->second, pieces);
  return OpId{id};
}

void ShmTransport::begin_get(std::uint64_t id, Op& op, const Region& into,
                             std::span<const Piece> pieces) {
  const GrantSlot& slot = op.neighbor->slot(op.remote.slot);
  const bool known = slot.secret.load(std::memory_order_acquire) == op.remote.secret;
  const std::uint64_t offset = slot.offset.load(std::memory_order_relaxed);
  const std::uint64_t bytes = slot.bytes.load(std::memory_order_relaxed);
  const std::uint64_t access = slot.access.load(std::memory_order_relaxed);
  const std::byte* base = known ? op.neighbor->at(offset, bytes) : nullptr;
  if (base == nullptr || access != static_cast<std::uint64_t>(Access::read))
    return end(id, op, Verdict::refused);
  auto job = std::make_unique<CopyJob>();
  job->tag = id;
  job->runs.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.remote > bytes || piece.bytes > bytes - piece.remote)
      return end(id, op, Verdict::refused);
    op.bytes += piece.bytes;
    if (piece.bytes > 0)
      job->runs.push_back(
          {into.range.memory.data() + piece.local, base + piece.remote, piece.bytes});
  }
  op.job = std::move(job);
  copier_->give(op.job.get());
}

void ShmTransport::cancel(OpId op) {
  const auto at = ops_.find(op.value);
  if (at != ops_.end()) abandon(op.value, at->second, Verdict::cancelled);
}

void ShmTransport::end(std::uint64_t id, Op& op, Verdict verdict) {
  INFOS_CHECK(!op.over);
  op.over = true;
  op.verdict = verdict;
  op.job.reset();
  over_.push_back(id);
}

void ShmTransport::abandon(std::uint64_t id, Op& op, Verdict verdict) {
  if (op.over) return;
  op.verdict = verdict;
  if (op.job)
    copier_->abort(op.job.get());  // ends when it is collected
  else
    end(id, op, verdict);
}

void ShmTransport::copied(CopyJob* job) {
  if ((job->tag & kLandingBit) != 0) {
    const auto at = landings_.find(job->tag);
    INFOS_CHECK(at != landings_.end());
    Landing& landing = *at->second;
    reply(*landing.neighbor, landing.op, job->aborted ? landing.on_abort : Verdict::ok);
    if (!job->aborted)
      for (const CopyRun& run : job->runs) stats_.bytes_in += run.bytes;
    landings_.erase(at);
    return;
  }
  Op& op = ops_.at(job->tag);
  if (job->aborted) return end(job->tag, op, op.verdict);
  // Revoked while we copied: what was read may be somebody else's by now.
  const GrantSlot& slot = op.neighbor->slot(op.remote.slot);
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool still = slot.secret.load(std::memory_order_acquire) == op.remote.secret;
  end(job->tag, op, still ? Verdict::ok : Verdict::refused);
}

// ---- progress ----

std::size_t ShmTransport::progress() {
  const Time now = now_monotonic();
  if (now - beaten_ >= kBeatEvery) {
    file_->head().beat.fetch_add(1, std::memory_order_relaxed);
    beaten_ = now;
  }
  read_door();
  if (now - watched_ >= kWatchEvery) watch(now);
  for (int i = 0; i < kChunksPerProgress && copier_->work(); ++i) {
  }
  for (CopyJob* job : copier_->collect()) copied(job);
  post_puts();
  const std::size_t said = say_verdicts();
  return said + answer_fences();
}

bool ShmTransport::arm() {
  if (!over_.empty() || !revoking_.empty() || copier_->has_work()) return false;
  return std::none_of(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.fencing; });
}

std::size_t ShmTransport::say_verdicts() {
  std::vector<std::uint64_t> over;
  over.swap(over_);
  for (const std::uint64_t id : over) {
    const auto node = ops_.extract(id);
    const Op& op = node.mapped();
    ++(op.verdict == Verdict::ok ? stats_.ops_ok : stats_.ops_not_ok);
    if (op.verdict == Verdict::ok)
      (op.kind == Op::Kind::get ? stats_.bytes_in : stats_.bytes_out) += op.bytes;
    op.done(OpId{id}, op.verdict);
  }
  return over.size();
}

std::size_t ShmTransport::answer_fences() {
  std::vector<std::function<void()>> answers;
  for (auto at = peers_.begin(); at != peers_.end();) {
    const PeerId id = at->first;
    Peer& peer = at->second;
    const bool busy = !peer.fencing || std::any_of(ops_.begin(), ops_.end(), [&](const auto& o) {
      return o.second.peer == id;
    }) || any_landing([&](const Landing& l) {
      return l.neighbor->nonce() == peer.neighbor->nonce();
    });
    if (busy) {
      ++at;
      continue;
    }
    for (auto& done : peer.fenced) answers.push_back(std::move(done));
    std::erase_if(remotes_, [&](const auto& r) { return r.second.peer == id; });
    at = peers_.erase(at);
  }
  std::erase_if(revoking_, [&](Revoking& revoking) {
    if (any_landing([&](const Landing& l) { return l.grant == revoking.grant; })) return false;
    answers.push_back(std::move(revoking.done));
    return true;
  });
  for (const auto& answer : answers) answer();
  return answers.size();
}

void ShmTransport::watch(Time now) {
  const auto watcher =
      now - watched_ > kAway ? Neighbor::Watcher::was_away : Neighbor::Watcher::fresh;
  watched_ = now;
  itimerspec timer{};
  timer.it_value.tv_nsec = kWatchEvery.ns;
  INFOS_CHECK(timerfd_settime(timer_.get(), 0, &timer, nullptr) == 0);
  std::vector<std::shared_ptr<Neighbor>> all;
  for (const auto& [nonce, neighbor] : neighbors_) all.push_back(neighbor);
  for (const auto& [id, peer] : peers_)  // older ones, lost and connected again
    if (std::find(all.begin(), all.end(), peer.neighbor) == all.end()) all.push_back(peer.neighbor);
  for (const auto& neighbor : all) {
    const bool was_lost = neighbor->lost();
    neighbor->watch(now, watcher, options_.silence_max);
    if (neighbor->lost() && !was_lost) lose(neighbor);
  }
  all.clear();
  std::erase_if(neighbors_,
                [&](const auto& n) { return n.second->gone() && n.second.use_count() == 1; });
}

void ShmTransport::lose(const std::shared_ptr<Neighbor>& neighbor) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, neighbor->pid_fd(), nullptr);
  for (auto& [id, op] : ops_)
    if (op.neighbor == neighbor) abandon(id, op, Verdict::peer_lost);
  abort_landings([&](const Landing& l) { return l.neighbor == neighbor; }, Verdict::failed);
  if (!neighbor->gone()) return;
  std::vector<std::uint64_t> unread;
  for (const auto& [op, list] : lists_)
    if (list.neighbor == neighbor) unread.push_back(op);
  for (const std::uint64_t op : unread) drop_list(op);
}

}  // namespace infos
