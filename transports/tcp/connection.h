// SPDX-License-Identifier: Apache-2.0
// Connection: frames over one stream, both ways. Gathers what is to be sent from where it lies and
// reads what comes to where it belongs. Knows parts, not who asked for them nor whether they may.
// Owner's thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/units.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/wire.h"
#include "transports/transport.h"

namespace infos {

/// A part of which this side sends the bytes.
struct PartOut {
  std::uint64_t id = 0;
  std::uint64_t owner = 0;  ///< the grant (server) or the operation (client)
  std::vector<iovec> runs;
  std::uint64_t bytes = 0;

  std::size_t run = 0;   ///< progress: the next run
  std::size_t byte = 0;  ///< ... and byte in it
  std::uint64_t sent = 0;
};

/// A part whose bytes come here.
struct PartIn {
  std::uint64_t owner = 0;
  enum class Fate { keep, discard } fate = Fate::keep;  ///< discard: read, land nowhere
  Verdict verdict = Verdict::ok;                        ///< what a discarded one is answered
  std::vector<iovec> runs;
  std::uint64_t bytes = 0;

  std::size_t run = 0, byte = 0;
  std::uint64_t received = 0;
};

class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  /// A frame other than data and beat, checked. Returns: false: it breaks the protocol, close.
  virtual bool on_frame(const FrameHead& head, std::span<const std::byte> payload) = 0;
  /// All bytes of the part are here and checked; it is forgotten after this.
  virtual void on_part(std::uint64_t id, const PartIn& part) = 0;
};

enum class Checksums { on, off };

class Connection {
 public:
  Connection(std::unique_ptr<Stream> stream, ConnectionOwner& owner, Checksums checksums);
  ~Connection();

  /// Queues; send() moves it.
  void send_frame(FrameKind kind, std::uint64_t part, std::uint64_t offset,
                  std::span<const std::byte> payload = {});
  void send_part(PartOut part) { parts_out_.push_back(std::move(part)); }
  /// Returns: false: there is a part of that name already.
  bool expect_part(std::uint64_t id, PartIn part) {
    return parts_in_.emplace(id, std::move(part)).second;
  }
  /// From here on the memory of those parts is not touched. Returns: their ids.
  std::vector<std::uint64_t> drop_out(std::uint64_t owner);
  std::vector<std::uint64_t> discard_in(std::uint64_t owner, Verdict verdict);
  /// Forgets the part that was being received. Returns: whether there was one.
  bool forget_in(std::uint64_t id) { return parts_in_.erase(id) > 0; }

  /// Move what can move, within a budget. Returns: false: the connection is broken.
  bool send();
  bool receive();

  const Stream& stream() const { return *stream_; }
  bool has_to_send() const { return !batch_.empty() || !control_.empty() || !parts_out_.empty(); }
  /// Whether the last receive() stopped for its budget.
  bool has_more_to_read() const { return more_to_read_; }
  std::size_t parts_in() const { return parts_in_.size(); }
  std::size_t parts_out() const { return parts_out_.size(); }
  /// Whether a byte came since the last call.
  bool take_heard() { return std::exchange(heard_, false); }
  /// Whether a byte went since the last call.
  bool take_spoken() { return std::exchange(spoken_, false); }
  /// Whether it broke because bytes did not match their check.
  bool corrupt() const { return corrupt_; }
  std::uint64_t bytes_in = 0, bytes_out = 0;

 private:
  void fill_batch();
  void add_data_frame(PartOut& part);
  void own_batch();
  std::uint64_t sum_of(std::span<const iovec> runs) const;
  // connection_receive.cc
  bool take_head();
  void target(std::vector<iovec>& into);
  void took(std::size_t bytes);
  void advance(std::size_t bytes);
  bool finish_frame();

  std::unique_ptr<Stream> stream_;
  ConnectionOwner& owner_;
  const Checksums checksums_;

  // sending
  std::vector<std::byte> control_;        ///< whole frames that wait
  std::vector<std::byte> control_batch_;  ///< ... and those of the batch
  std::deque<PartOut> parts_out_;
  std::vector<FrameHead> heads_;  ///< of the batch's data frames; reserved, never grows past that
  std::vector<iovec> batch_;      ///< what is being sent
  std::size_t batch_at_ = 0;
  std::vector<std::byte> owned_batch_;

  // receiving
  FrameHead next_head_;
  std::size_t head_got_ = 0;
  FrameHead head_;  ///< of the frame whose payload is being read
  bool in_payload_ = false;
  std::uint32_t payload_got_ = 0, payload_crc_ = 0;
  std::vector<std::byte> payload_;  ///< of a control frame
  std::vector<std::byte> scratch_;  ///< where discarded bytes go
  std::map<std::uint64_t, PartIn> parts_in_;
  std::vector<iovec> into_;
  bool heard_ = false, spoken_ = false, more_to_read_ = false, corrupt_ = false;
};

}  // namespace infos
