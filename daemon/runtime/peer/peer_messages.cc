// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/peer_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/control/wire.h"

namespace infos {

using wire::Like;

template <typename A>
void fields(A& a, Like<Hello> auto& m) {
  a(1, "cluster", m.cluster), a(2, "node", m.node), a(3, "incarnation", m.incarnation);
  a(4, "version", m.version), a(5, "version_min", m.version_min);
  a.fixed(6, "features", m.features), a.fixed(7, "last_link", m.last_link);
  a(8, "address", m.address), a(9, "build", m.build);
}
template <typename A>
void fields(A& a, Like<Welcome> auto& m) {
  a.fixed(1, "link", m.link);
}
template <typename A>
void fields(A& a, Like<Refusal> auto& m) {
  a(1, "reason", m.reason);
}
template <typename A>
void fields(A& a, Like<Ping> auto& m) {
  a(1, "sequence", m.sequence);
}
template <typename A>
void fields(A& a, Like<JoinRequest> auto& m) {
  a(1, "token", m.token), a(2, "name", m.name), a(3, "request", m.request);
  a(4, "address", m.address);
}
template <typename A>
void fields(A& a, Like<JoinAnswer> auto& m) {
  a(1, "error", m.error), a(2, "certificate", m.certificate), a(3, "authority", m.authority);
  a(4, "controller", m.controller);
}
template <typename A>
void fields(A& a, Like<RenewRequest> auto& m) {
  a(1, "request", m.request);
}
template <typename A>
void fields(A& a, Like<RenewAnswer> auto& m) {
  a(1, "error", m.error), a(2, "certificate", m.certificate);
}
template <typename A>
void fields(A& a, Like<Renewed> auto& m) {
  a(1, "certificate", m.certificate), a(2, "proof", m.proof);
}

namespace {

template <typename T>
std::string encode_any(const T& message) {
  std::string out;
  wire::WireWriter(out).put_body(message);
  return out;
}

std::uint32_t read_little(const char* bytes, int count) {
  std::uint32_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

std::string encode(const Hello& message) { return encode_any(message); }
std::string encode(const Welcome& message) { return encode_any(message); }
std::string encode(const Refusal& message) { return encode_any(message); }
std::string encode(const Ping& message) { return encode_any(message); }
std::string encode(const JoinRequest& message) { return encode_any(message); }
std::string encode(const JoinAnswer& message) { return encode_any(message); }
std::string encode(const RenewRequest& message) { return encode_any(message); }
std::string encode(const RenewAnswer& message) { return encode_any(message); }
std::string encode(const Renewed& message) { return encode_any(message); }

template <typename T>
Result<T> decode_peer(std::string_view bytes) {
  T message{};
  wire::WireReader reader(bytes);
  if (!reader.read(message))
    return Error{ErrorCode::corrupt, "message of a peer: " + reader.error()};
  return message;
}
template Result<Hello> decode_peer(std::string_view);
template Result<Welcome> decode_peer(std::string_view);
template Result<Refusal> decode_peer(std::string_view);
template Result<Ping> decode_peer(std::string_view);
template Result<JoinRequest> decode_peer(std::string_view);
template Result<JoinAnswer> decode_peer(std::string_view);
template Result<RenewRequest> decode_peer(std::string_view);
template Result<RenewAnswer> decode_peer(std::string_view);
template Result<Renewed> decode_peer(std::string_view);

Result<std::uint32_t> agree_version(const Hello& mine, const Hello& theirs) {
  const std::uint32_t newest = std::min(mine.version, theirs.version);
  if (newest >= mine.version_min && newest >= theirs.version_min) return newest;
  return Error{ErrorCode::unsupported,
               fmt::format("peer versions: this node speaks {} to {}, node {} speaks {} to {}",
                           mine.version_min, mine.version, theirs.node.value, theirs.version_min,
                           theirs.version)};
}

void append_peer_frame(std::string& out, std::uint16_t kind, std::string_view payload) {
  INFOS_CHECK(payload.size() <= kPeerFrameBytesMax);
  const auto size = static_cast<std::uint32_t>(payload.size());
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift & 0xffU);
  out += static_cast<char>(kind & 0xffU);
  out += static_cast<char>(kind >> 8);
  out += payload;
}

void PeerFrameReader::append(std::string_view bytes) {
  if (begin_ == buffer_.size()) {
    buffer_.clear();
    begin_ = 0;
  } else if (begin_ > buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_ += bytes;
}

Result<std::optional<PeerFrame>> PeerFrameReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kPeerHeaderBytes) return std::optional<PeerFrame>();
  const std::size_t size = read_little(rest.data(), 4);
  if (size > limit_)
    return Error{ErrorCode::corrupt,
                 fmt::format("frame of {} bytes: at most {} are allowed here", size, limit_)};
  if (rest.size() - kPeerHeaderBytes < size) return std::optional<PeerFrame>();
  begin_ += kPeerHeaderBytes + size;
  const auto kind = static_cast<std::uint16_t>(read_little(rest.data() + 4, 2));
  return std::optional<PeerFrame>({kind, rest.substr(kPeerHeaderBytes, size)});
}

}  // namespace infos
