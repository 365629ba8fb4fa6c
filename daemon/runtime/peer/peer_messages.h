// SPDX-License-Identifier: Apache-2.0
// What two daemons say to each other before and beside their owners' messages: hello, welcome,
// ping, join, renewal; and the frames that carry all of it: payload bytes (u32) and kind (u16),
// little-endian, then the payload. Schema: peer.proto. Never allocates by a length that it has not
// checked, nor before the bytes are there. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "topology/base/ids.h"
#include "topology/base/result.h"

namespace infos {

/// Kinds of frames below kOwnerKinds are the link's own.
enum class PeerFrameKind : std::uint16_t {
  hello = 1,    ///< both sides, first of all
  welcome = 2,  ///< the node with the smaller id: this connection is the link
  refusal = 3,  ///< why the connection is closed; the last frame
  ping = 4,
  pong = 5,
  join_request = 6,  ///< the only frame that a side without a certificate may send
  join_answer = 7,
  renew_request = 8,  ///< to a controller
  renew_answer = 9,
  renewed = 10,  ///< the sender's new certificate, from now on that of this link
};
constexpr std::uint16_t kOwnerKinds = 64;

/// This build speaks kPeerVersion and the one before it; nothing came before 1.
constexpr std::uint32_t kPeerVersion = 1;
constexpr std::uint32_t kPeerVersionMin = 1;

struct Hello {
  std::string cluster;
  NodeId node;
  std::uint32_t incarnation = 0;
  std::uint32_t version = 0;      ///< the newest that the sender speaks
  std::uint32_t version_min = 0;  ///< the oldest
  std::uint64_t features = 0;     ///< bits; both use those that both have
  std::uint64_t last_link = 0;    ///< the link to this peer that the sender saw last; 0: none
  std::string address;            ///< where the sender listens, HOST:PORT; may be empty
  std::string build;              ///< for people
};
struct Welcome {
  std::uint64_t link = 0;
};
struct Refusal {
  std::string reason;
};
struct Ping {
  std::uint64_t sequence = 0;
};
struct JoinRequest {
  std::string token;
  std::string name;     ///< that the node wishes for
  std::string request;  ///< certificate request, PEM
  std::string address;  ///< where it will listen; may be empty
};
struct JoinAnswer {
  std::string error;  ///< not empty: refused, and nothing else is set
  std::string certificate;
  std::string authority;
  NodeId controller;
};
struct RenewRequest {
  std::string request;
};
struct RenewAnswer {
  std::string error;
  std::string certificate;
};
struct Renewed {
  std::string certificate;
  std::string proof;  ///< signature of the new key over what only this TLS session knows
};

std::string encode(const Hello& message);
std::string encode(const Welcome& message);
std::string encode(const Refusal& message);
std::string encode(const Ping& message);
std::string encode(const JoinRequest& message);
std::string encode(const JoinAnswer& message);
std::string encode(const RenewRequest& message);
std::string encode(const RenewAnswer& message);
std::string encode(const Renewed& message);
/// For each of the messages above. Errors: corrupt, naming the field.
template <typename T>
Result<T> decode_peer(std::string_view bytes);

/// The version that both speak. Errors: unsupported, naming both ranges.
Result<std::uint32_t> agree_version(const Hello& mine, const Hello& theirs);

constexpr std::size_t kPeerHeaderBytes = 6;
/// Until a connection is the link, and for all that a side without a certificate may send.
constexpr std::size_t kGreetingBytesMax = 16u << 10;
constexpr std::size_t kPeerFrameBytesMax = 16u << 20;

/// Requires: payload.size() <= kPeerFrameBytesMax.
void append_peer_frame(std::string& out, std::uint16_t kind, std::string_view payload);
inline void append_peer_frame(std::string& out, PeerFrameKind kind, std::string_view payload) {
  append_peer_frame(out, static_cast<std::uint16_t>(kind), payload);
}

struct PeerFrame {
  std::uint16_t kind = 0;
  std::string_view payload;  ///< valid until the reader is next touched
};

/// Cuts a byte stream into frames.
class PeerFrameReader {
 public:
  /// Largest payload from now on.
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  void append(std::string_view bytes);
  /// The next whole frame, if there is one. Errors: corrupt: a length above the limit; the stream
  /// is useless then.
  Result<std::optional<PeerFrame>> next();
  /// Bytes held.
  std::size_t held() const { return buffer_.size() - begin_; }

 private:
  std::size_t limit_ = kGreetingBytesMax;
  std::string buffer_;
  std::size_t begin_ = 0;  ///< of the first byte not yet given out
};

}  // namespace infos
