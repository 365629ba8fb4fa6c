// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/session_transport.h"

#include <fmt/format.h>
#include <openssl/rand.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "topology/base/log.h"

namespace infos {

namespace {

using namespace std::chrono_literals;

constexpr auto kSideEvery = 50us;  // how often the side channel is looked at while we spin
constexpr auto kShutdown = 2s;     // the destructor's patience with a library
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::string_view kHex = "0123456789abcdef";

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  INFOS_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) ==
              1);
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
    text.push_back(kHex[static_cast<unsigned char>(c) & 15]);
  }
  return text;
}

/// "" when it is not hexadecimal.
std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto high = kHex.find(text[i]), low = kHex.find(text[i + 1]);
    if (high == kHex.npos || low == kHex.npos) return "";
    bytes.push_back(static_cast<char>(high << 4 | low));
  }
  return text.size() % 2 == 0 ? bytes : "";
}

}  // namespace

SessionTransport::SessionTransport(TransportInfo info, std::unique_ptr<SideChannel> side)
    : info_(std::move(info)), uid_(random_bytes(16)), side_(std::move(side)) {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  INFOS_CHECK(epoll_ >= 0);
  watch(side_->fd());
}

SessionTransport::~SessionTransport() {
  INFOS_CHECK(sessions_.empty());  // the derived destructor called shutdown()
  ::close(epoll_);
}

void SessionTransport::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  INFOS_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
}

void SessionTransport::shutdown() {
  for (auto& [id, session] : sessions_) {
    session->fenced = true;
    if (session->phase == Phase::lost) {
      session->phase = Phase::ending;
      ++busy_;
    }
    end(*session, Verdict::cancelled);
  }
  const auto deadline = SideChannel::Clock::now() + kShutdown;
  do {
    poll();
    settle_sessions();
    settle_grants();
  } while (!sessions_.empty() && SideChannel::Clock::now() < deadline);
  if (!sessions_.empty())
    log_line(LogLevel::error, to_string(info_.kind), "a session did not end in 2 s");
  for (auto& [id, session] : sessions_)
    while (!session->running.empty()) finish(**session->running.begin(), Verdict::cancelled);
  call_due();
  remotes_.clear();
  sessions_.clear();
  for (auto& [id, grant] : grants_)
    if (!grant->revoked) grant_end(*grant);
  grants_.clear();
  while (!regions_.empty()) forget(regions_.begin()->first);
}

TransportStats SessionTransport::stats() const {
  TransportStats stats = stats_;
  stats.ops_open = static_cast<std::uint32_t>(ops_.size());
  for (const auto& [id, session] : sessions_)
    if (session->role == SideChannel::Role::initiator && session->phase != Phase::lost)
      ++stats.peers_open;
  stats.regions_open = static_cast<std::uint32_t>(regions_.size());
  stats.grants_open = static_cast<std::uint32_t>(grants_.size());
  return stats;
}

// ---- memory and grants ----

Result<RegionId> SessionTransport::add_region(std::span<std::byte> memory, bool mapped) {
  auto region = std::make_unique<Region>();
  region->id = RegionId{next_id_++};
  region->memory = memory;
  region->mapped = mapped;
  const Status status = region_begin(*region);
  if (!status) return status.error();
  const RegionId id = region->id;
  regions_.emplace(id, std::move(region));
  return id;
}

Result<RegionId> SessionTransport::allocate(std::uint64_t bytes, std::span<std::byte>& memory) {
  if (bytes == 0)
    return Error{ErrorCode::invalid_argument, "allocate: 0 bytes asked; at least 1 is allowed"};
  const std::uint64_t mapped = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* begin = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED)
    return Error{ErrorCode::resource_exhausted, fmt::format("allocate: no {} bytes", bytes)};
  const std::span<std::byte> got(static_cast<std::byte*>(begin), bytes);
  auto region = add_region(got, true);
  if (region)
    memory = got;
  else
    ::munmap(begin, mapped);
  return region;
}

Result<RegionId> SessionTransport::adopt(std::span<std::byte> memory) {
  if (memory.empty())
    return Error{ErrorCode::invalid_argument, "adopt: 0 bytes; at least 1 is allowed"};
  return add_region(memory, false);
}

void SessionTransport::forget(RegionId id) {
  const auto found = regions_.find(id);
  INFOS_CHECK(found != regions_.end());
  Region& region = *found->second;
  for (const auto& [op_id, op] : ops_) INFOS_CHECK(op->region != &region);
  for (const auto& [grant_id, grant] : grants_) INFOS_CHECK(grant->region != &region);
  region_end(region);
  if (region.mapped)
    ::munmap(region.memory.data(),
             (region.memory.size() + kPageBytes - 1) / kPageBytes * kPageBytes);
  regions_.erase(found);
}

Result<GrantId> SessionTransport::grant(RegionId region, std::uint64_t begin, std::uint64_t bytes,
                                        Access access) {
  const auto found = regions_.find(region);
  INFOS_CHECK(found != regions_.end());
  const std::uint64_t size = found->second->memory.size();
  INFOS_CHECK(bytes > 0 && begin <= size && bytes <= size - begin);
  auto grant = std::make_unique<Grant>();
  grant->id = GrantId{next_grant_++};
  grant->region = found->second.get();
  grant->begin = begin;
  grant->bytes = bytes;
  grant->access = access;
  INFOS_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&grant->token), 8) == 1);
  const Status status = grant_begin(*grant);
  if (!status) return status.error();
  const GrantId id = grant->id;
  grants_.emplace(id, std::move(grant));
  return id;
}

std::string SessionTransport::key(GrantId id) const {
  const auto found = grants_.find(id);
  INFOS_CHECK(found != grants_.end());
  const Grant& grant = *found->second;
  return fmt::format("{}:{:x}:{:x}:{:x}:{}", to_string(info_.kind), grant.id.value, grant.bytes,
                     grant.token, grant.access == Access::read ? 'r' : 'w');
}

void SessionTransport::revoke(GrantId id, std::function<void()> done) {
  Grant* grant = find_grant(id);
  if (grant == nullptr) {
    if (done) done();
    return;
  }
  if (done) grant->on_revoked.push_back(std::move(done));
  if (grant->revoked) return;
  grant->revoked = true;
  grant->revoke_deadline = SideChannel::Clock::now() + kRevoke;
  ++busy_;
  const std::string payload = WireWriter().number(id.value).take();
  for (const SideId user : grant->users) side_->send(user, kRevokeMessage, payload);
  settle_grants();
}

void SessionTransport::settle_grants() {
  const auto now = SideChannel::Clock::now();
  for (auto at = grants_.begin(); at != grants_.end();) {
    Grant& grant = *at->second;
    if (!grant.revoked) {
      ++at;
      continue;
    }
    if (!grant.users.empty() && now >= grant.revoke_deadline) {
      // A writer that does not answer is fenced; a reader harms nobody.
      if (grant.access == Access::write) {
        for (const SideId user : grant.users)
          if (Session* session = find_session(user)) lose(*session, "does not give up a grant");
      } else {
        grant.users.clear();
      }
    }
    if (grant.users.empty() && !grant.ended) {
      grant.ended = true;
      grant_end(grant);
    }
    if (!grant.ended || !grant_ended(grant)) {
      ++at;
      continue;
    }
    for (auto& done : grant.on_revoked) due_.push_back(std::move(done));
    --busy_;
    at = grants_.erase(at);
  }
}

SessionTransport::Session* SessionTransport::find_session(SideId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.get();
}

SessionTransport::Grant* SessionTransport::find_grant(GrantId id) {
  const auto found = grants_.find(id);
  return found == grants_.end() ? nullptr : found->second.get();
}

// ---- peers ----

std::string SessionTransport::address() const {
  const SideChannel::Target& target = side_->target();
  return fmt::format("{}:{}:{}:{}:{}", to_string(info_.kind), to_hex(uid_), to_hex(target.secret),
                     target.port, target.host);
}

Result<PeerId> SessionTransport::connect(std::string_view address) {
  const auto bad = [&] {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("not an address of the {} transport", to_string(info_.kind))};
  };
  std::string_view fields[4];
  for (auto& field : fields) {
    const std::size_t colon = address.find(':');
    if (colon == address.npos) return bad();
    field = address.substr(0, colon);
    address.remove_prefix(colon + 1);
  }
  SideChannel::Target target;
  target.host = address;
  target.secret = from_hex(fields[2]);
  const std::string uid = from_hex(fields[1]);
  const char* end = fields[3].data() + fields[3].size();
  if (fields[0] != to_string(info_.kind) || uid.size() != 16 || target.secret.size() != 32 ||
      std::from_chars(fields[3].data(), end, target.port).ptr != end)
    return bad();
  const SideId id = INFOS_TRY(side_->connect(target));
  auto session = std::make_unique<Session>();
  session->id = id;
  session->uid = uid;
  sessions_.emplace(id, std::move(session));
  return PeerId{id.value};
}

PeerState SessionTransport::peer_state(PeerId peer) const {
  const auto found = sessions_.find(SideId{peer.value});
  if (found == sessions_.end() || found->second->role != SideChannel::Role::initiator)
    return PeerState::closed;
  switch (found->second->phase) {
    case Phase::connecting:
      return PeerState::connecting;
    case Phase::open:
      return PeerState::open;
    case Phase::ending:
      return found->second->fenced ? PeerState::closed : PeerState::lost;
    case Phase::lost:
      break;
  }
  return PeerState::lost;
}

void SessionTransport::fence(PeerId peer, std::function<void()> done) {
  Session* session = find_session(SideId{peer.value});
  if (session == nullptr || session->role != SideChannel::Role::initiator) {
    if (done) done();
    return;
  }
  Fence fence{{}, std::move(done)};
  const std::string uid = session->uid;
  // What was granted before is void for that process; entries that bar nothing go.
  const std::uint64_t oldest = grants_.empty() ? next_grant_ : grants_.begin()->first.value;
  std::erase_if(void_before_, [&](const auto& entry) { return entry.second <= oldest; });
  void_before_[uid] = next_grant_;
  for (auto& [id, other] : sessions_) {
    const bool theirs = other->role == SideChannel::Role::acceptor && other->uid == uid;
    if (other.get() != session && !theirs) continue;
    other->fenced = true;
    if (other->phase == Phase::lost) {  // only stays for its state: let settle_sessions() drop it
      other->phase = Phase::ending;
      ++busy_;
    }
    end(*other, Verdict::cancelled);
    fence.sessions.insert(id);
  }
  fences_.push_back(std::move(fence));
  settle_sessions();
  call_due();
}

void SessionTransport::end(Session& session, Verdict verdict) {
  if (session.phase == Phase::ending || session.phase == Phase::lost) return;
  session.phase = Phase::ending;
  ++busy_;
  while (!session.waiting.empty()) {
    Op* op = session.waiting.front();
    session.waiting.pop_front();
    finish(*op, verdict);
  }
  for (Op* op : session.running) {
    if (!op->stopping) op->wish = verdict;
    op->stopping = true;
  }
  session_end(session);
  side_->close(session.id);
}

void SessionTransport::lose(Session& session, const std::string& why) {
  if (session.phase == Phase::ending || session.phase == Phase::lost) return;
  log_line(LogLevel::info, to_string(info_.kind), fmt::format("peer lost: {}", why));
  end(session, Verdict::peer_lost);
}

void SessionTransport::settle_sessions() {
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    Session& session = *at->second;
    if (session.phase != Phase::ending || !session_ended(session)) {
      ++at;
      continue;
    }
    while (!session.running.empty()) finish(**session.running.begin(), Verdict::failed);
    const SideId id = session.id;
    const bool gone = session.fenced || session.role == SideChannel::Role::acceptor;
    for (auto remote = remotes_.begin(); remote != remotes_.end();) {
      if (remote->second->session == id) remote->second->attachment.reset();
      remote = remote->second->session == id && gone ? remotes_.erase(remote) : std::next(remote);
    }
    session.attachment.reset();
    session.phase = Phase::lost;
    --busy_;
    for (auto& [grant_id, grant] : grants_) grant->users.erase(id);
    std::erase_if(fences_, [&](Fence& fence) {
      fence.sessions.erase(id);
      if (!fence.sessions.empty()) return false;
      if (fence.done) due_.push_back(std::move(fence.done));
      return true;
    });
    at = gone ? sessions_.erase(at) : std::next(at);
  }
}

// ---- progress ----

std::size_t SessionTransport::call_due() {
  std::size_t count = 0;
  while (!due_.empty()) {
    const auto call = std::move(due_.front());
    due_.pop_front();
    call();
    ++count;
  }
  return count;
}

std::size_t SessionTransport::progress() {
  poll();
  const auto now = SideChannel::Clock::now();
  if (armed_ || now - side_at_ >= kSideEvery) {
    armed_ = false;
    side_at_ = now;
    side_->progress(*this);
  }
  for (auto& [id, session] : sessions_)
    if (!session->waiting.empty()) start_waiting(*session);
  if (busy_ > 0) {
    settle_sessions();
    settle_grants();
  }
  return call_due();
}

bool SessionTransport::arm() {
  if (!due_.empty() || !arm_backend()) return false;
  armed_ = true;
  return true;
}

}  // namespace infos
