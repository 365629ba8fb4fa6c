// SPDX-License-Identifier: Apache-2.0
// Neighbor: another shm transport on this host, as one process sees it: its file mapped read-only,
// its process watched by a pidfd, its door (a pipe) written to. Decides whether it is alive.
// Owner's thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/units.h"
#include "transports/shm/shared_file.h"

namespace infos {

/// Where a transport is: goes into address() and into the hello letter.
struct ShmPlace {
  int pid = 0;
  int file_fd = -1;  ///< in that process
  Nonce nonce;
};
std::string to_text(const ShmPlace& place);
/// Errors: invalid_argument.
Result<ShmPlace> parse_place(std::string_view text);

enum class LetterKind : std::uint32_t { hello = 1, put, done };

/// What goes through a door, whole or not at all (a pipe writes up to 4096 bytes in one piece).
struct Letter {
  LetterKind kind = LetterKind::hello;
  std::uint32_t slot = 0;    ///< hello: pid; put: grant slot; done: verdict
  std::uint64_t from = 0;    ///< the sender's nonce, low half
  std::uint64_t op = 0;      ///< hello: the file's descriptor
  std::uint64_t secret = 0;  ///< hello: the sender's nonce, high half; put: the grant's
  std::uint64_t local = 0;   ///< put: source offset in the sender's file, or where its pieces are
  std::uint64_t remote = 0;  ///< put of one piece: offset in the grant
  std::uint64_t bytes = 0;   ///< put of one piece
  std::uint64_t count = 0;   ///< put: pieces; more than one lie as a list in the sender's file
};
static_assert(sizeof(Letter) == 64);

class Neighbor {
 public:
  /// Errors: unavailable (gone, another user's, or not visible from here).
  static Result<std::shared_ptr<Neighbor>> open(const ShmPlace& place);
  ~Neighbor();
  Neighbor(const Neighbor&) = delete;
  Neighbor& operator=(const Neighbor&) = delete;

  const Nonce& nonce() const { return place_.nonce; }
  int pid_fd() const { return pid_fd_.get(); }
  /// The bytes [offset, offset + bytes) of its file; null: it has no such bytes. Good while this
  /// object lives.
  const std::byte* at(std::uint64_t offset, std::uint64_t bytes);
  /// Requires: index < kGrantSlots.
  const GrantSlot& slot(std::uint32_t index) const;

  /// Looks at pidfd and heartbeat. `fresh`: the caller itself was not away since it last looked.
  enum class Watcher { fresh, was_away };
  void watch(Time now, Watcher watcher, Duration silence_max);
  bool lost() const { return lost_; }
  /// Whether its process or transport is gone for good.
  bool gone() const { return gone_; }

  /// Written now or by a later flush().
  void send(const Letter& letter);
  /// Returns: whether all is written.
  bool flush();

  bool greeted = false;                   ///< our hello was sent
  std::uint64_t grants_void_through = 0;  ///< fenced: its puts need grants after this one
  std::uint32_t puts_out = 0;             ///< ours that it has
  std::uint32_t peers = 0;                ///< PeerIds that stand for it

 private:
  struct Mapping {
    const std::byte* base;
    std::uint64_t bytes;
  };
  explicit Neighbor(const ShmPlace& place) : place_(place) {}
  bool map_file();
  const SharedHead& head() const {
    return *reinterpret_cast<const SharedHead*>(mappings_.front().base);
  }

  ShmPlace place_;
  OwnFd file_, pid_fd_, door_;
  std::vector<Mapping> mappings_;  ///< all of the file, each larger than the one before
  std::uint64_t file_bytes_ = 0;   ///< how much of them may be touched
  std::uint64_t beat_seen_ = 0;
  Time beat_at_{};
  bool lost_ = false, gone_ = false;
  std::deque<Letter> outbox_;  ///< bounded by the operations that are open
};

}  // namespace infos
