// SPDX-License-Identifier: Apache-2.0
// What goes over a data connection: frames of a fixed head and at most 256 KiB. A get or put is cut
// into parts; the side that wants bytes names the runs of a part, the other sends its bytes in
// order, in data frames. Every length is bounded by its kind before anything is read.
#pragma once

#include <bit>
#include <cstdint>

namespace infos {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr std::uint32_t kWireMagic = 0x49'4B'56;  // "VKI"
constexpr std::uint32_t kWireVersion = 1;

enum class FrameKind : std::uint8_t {
  hello = 1,  ///< client: Hello
  welcome,    ///< server: the hello is good
  get,        ///< client: Request: send me these bytes as data frames of this part
  put,        ///< client: Request: data frames of this part follow
  data,       ///< the next bytes of a part
  verdict,    ///< server: how the part ended (`offset`); not for a get that went well
  abort,      ///< client: no more data comes for this part of a put
  beat,       ///< both: I am alive
};

struct FrameHead {
  std::uint32_t magic_kind = 0;  ///< magic in the upper 24 bits, kind below
  std::uint32_t bytes = 0;       ///< of the payload
  std::uint64_t part = 0;
  std::uint64_t offset = 0;  ///< data: of the part; verdict: Verdict
  std::uint64_t check = 0;   ///< CRC-32C of the payload, and the fields above mixed in
};
static_assert(sizeof(FrameHead) == 32);

struct WirePiece {
  std::uint64_t remote = 0, bytes = 0;
};

struct Hello {
  std::uint64_t secret_high = 0, secret_low = 0;      ///< of the address
  std::uint64_t instance_high = 0, instance_low = 0;  ///< who comes
  std::uint32_t version = kWireVersion, unused = 0;
};

struct Request {
  std::uint64_t grant = 0, secret = 0;
  std::uint32_t pieces = 0, unused = 0;  ///< that follow as WirePiece
};

constexpr std::uint32_t kPartPiecesMax = 2048;
constexpr std::uint64_t kPartBytesMax = 4u << 20;
constexpr std::uint32_t kDataBytesMax = 256 * 1024;
constexpr std::uint32_t kControlBytesMax = sizeof(Request) + kPartPiecesMax * sizeof(WirePiece);
/// Parts that a client may have open on one connection; a server closes at twice as many.
constexpr std::size_t kPartsOpenMax = 16;

constexpr std::uint32_t magic_kind(FrameKind kind) {
  return kWireMagic << 8 | static_cast<std::uint32_t>(kind);
}
constexpr FrameKind kind_of(const FrameHead& head) {
  return static_cast<FrameKind>(head.magic_kind & 0xFF);
}
/// The check of a frame whose payload has this sum.
constexpr std::uint64_t check_of(const FrameHead& head, std::uint64_t payload_sum) {
  std::uint64_t mixed = payload_sum;
  for (const std::uint64_t field :
       {std::uint64_t{head.magic_kind} << 32 | head.bytes, head.part, head.offset}) {
    mixed = (mixed ^ field) * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 29;
  }
  return mixed;
}
/// Whether the head can be one of ours, before its payload is read.
constexpr bool plausible(const FrameHead& head) {
  if (head.magic_kind >> 8 != kWireMagic) return false;
  switch (kind_of(head)) {
    case FrameKind::hello:
      return head.bytes == sizeof(Hello);
    case FrameKind::get:
    case FrameKind::put:
      return head.bytes >= sizeof(Request) && head.bytes <= kControlBytesMax;
    case FrameKind::data:
      return head.bytes > 0 && head.bytes <= kDataBytesMax;
    case FrameKind::welcome:
    case FrameKind::verdict:
    case FrameKind::abort:
    case FrameKind::beat:
      return head.bytes == 0;
  }
  return false;
}

}  // namespace infos
