// SPDX-License-Identifier: Apache-2.0
// SideChannel: small messages between two transports beside their data path: wire-up, checks of
// grants, revocation, and life. RDMA libraries notice a stopped peer late or never; here each side
// beats every 50 ms, a silent peer is lost after a while and a dead one as soon as its kernel says.
//
// One listener per transport and TCP connections under TLS 1.3 with a pre-shared key (the secret in
// the address), so that it may listen off loopback. Owner's thread only; never blocks; no threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"

struct ssl_ctx_st;

namespace infos {

using SideId = Id<struct SideTag, std::uint32_t>;  ///< one connection of a SideChannel

class SideChannel {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Role : std::uint8_t { initiator, acceptor };

  /// Called inside progress(). May call send(), connect() and close().
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void side_open(SideId side, Role role) = 0;
    virtual void side_message(SideId side, std::uint8_t type, std::string_view payload) = 0;
    /// The connection is gone; nothing more comes of it.
    virtual void side_lost(SideId side, const std::string& why) = 0;
  };

  /// A numeric address and the listener's secret.
  struct Target {
    std::string host;
    std::uint16_t port = 0;
    std::string secret;
  };

  /// Listens on a numeric address, any port. A peer that is silent for longer is lost. Errors:
  /// invalid_argument, io.
  static Result<std::unique_ptr<SideChannel>> listen(const std::string& host,
                                                     std::chrono::milliseconds silence);
  ~SideChannel();

  const Target& target() const { return self_; }
  /// Errors: invalid_argument, unavailable.
  Result<SideId> connect(const Target& target);
  /// Requires: type > 0, payload <= kPayloadMax. Nothing happens for a connection that is gone.
  void send(SideId side, std::uint8_t type, std::string_view payload);
  void close(SideId side);
  std::size_t progress(Handler& handler);
  /// Readable when progress() has something to do.
  int fd() const { return epoll_; }

  static constexpr std::size_t kPayloadMax = 1 << 20;

 private:
  struct Side;
  SideChannel() = default;
  void accept_all();
  SideId add(int fd, Role role, const std::string& secret);
  std::string pump(SideId id, Side& side, Handler& handler);
  std::string parse(SideId id, Side& side, Handler& handler);
  std::string flush(Side& side);

  Target self_;
  std::chrono::milliseconds silence_{};
  int listener_ = -1;
  int epoll_ = -1;
  ssl_ctx_st* server_ = nullptr;
  ssl_ctx_st* client_ = nullptr;
  std::uint32_t next_ = 1;
  Clock::time_point walked_ = Clock::now();  ///< when all connections were last looked after
  bool reap_ = false;                        ///< some were closed since
  std::map<SideId, std::unique_ptr<Side>> sides_;
};

}  // namespace infos
