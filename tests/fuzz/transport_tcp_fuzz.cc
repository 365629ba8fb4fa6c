// SPDX-License-Identifier: Apache-2.0
// Fuzz target: what a data port reads, from a stranger or from a client that knows the secret and
// says anything. Nothing may be written outside a write grant, whatever comes, and nothing is
// allocated by a length that was read. Half of the inputs are raw bytes; the other half are made
// into frames with right checks, so that what lies behind the check is reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "transports/tcp/crc32c.h"
#include "transports/tcp/tcp_impl.h"

namespace infos {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024, kGrantBegin = 16 * 1024, kGrantBytes = 32 * 1024;
constexpr auto kCanary = std::byte{0xC5};

/// Gives out the bytes in chunks of many sizes, takes whatever is written.
class MemoryStream final : public Stream {
 public:
  explicit MemoryStream(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  ssize_t read(std::span<const iovec> into) override {
    if (at_ == bytes_.size()) return kClosed;
    chunk_ = chunk_ * 5 % 4099 + 1;
    std::size_t left = std::min<std::size_t>(chunk_, bytes_.size() - at_), total = 0;
    for (const iovec& run : into) {
      const std::size_t take = std::min(left, run.iov_len);
      std::memcpy(run.iov_base, bytes_.data() + at_, take);
      at_ += take;
      total += take;
      left -= take;
    }
    return static_cast<ssize_t>(total);
  }
  ssize_t write(std::span<const iovec> from) override {
    ssize_t total = 0;
    for (const iovec& run : from) total += static_cast<ssize_t>(run.iov_len);
    return total;
  }
  bool wants_room() const override { return false; }
  bool has_buffered() const override { return at_ < bytes_.size(); }
  int fd() const override { return -1; }

 private:
  const std::vector<std::byte> bytes_;
  std::size_t at_ = 0, chunk_ = 1;
};

/// Takes numbers from the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data, size) {}
  bool empty() const { return data_.empty(); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::size_t take = std::min(bytes, data_.size());
    std::memcpy(&value, data_.data(), take);
    data_ = data_.subspan(take);
    return value;
  }
  std::span<const std::uint8_t> bytes(std::size_t most) {
    const auto taken = data_.first(std::min(most, data_.size()));
    data_ = data_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::uint8_t> data_;
};

struct World {
  std::unique_ptr<TcpTransport> transport;
  std::span<std::byte> memory;
  Request readable, writable;

  World() : transport(TcpTransport::create({}).value()) {
    const RegionId region = transport->allocate(kBytes, memory).value();
    readable = request(region, Access::read);
    writable = request(region, Access::write);
  }
  Request request(RegionId region, Access access) const {
    const GrantId grant = transport->grant(region, kGrantBegin, kGrantBytes, access).value();
    const std::string key = transport->key(grant);
    return {grant.value, std::strtoull(key.substr(key.rfind(' ') + 1).c_str(), nullptr, 16), 0, 0};
  }
};

void append(std::vector<std::byte>& out, const void* bytes, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), from, from + size);
}

void append_frame(std::vector<std::byte>& out, FrameKind kind, std::uint64_t part,
                  std::uint64_t offset, const std::vector<std::byte>& payload) {
  FrameHead head{magic_kind(kind), static_cast<std::uint32_t>(payload.size()), part, offset, 0};
  head.check = check_of(head, crc32c(0, payload.data(), payload.size()));
  append(out, &head, sizeof head);
  append(out, payload.data(), payload.size());
}

/// One frame of the client's, as the input says.
void craft(const World& world, Input& input, std::vector<std::byte>& out) {
  const auto kind = static_cast<FrameKind>(input.number(1) % 9);
  const std::uint64_t part = input.number(1) % 8, offset = input.number(3);
  std::vector<std::byte> payload;
  if (kind == FrameKind::get || kind == FrameKind::put) {
    const std::uint64_t which = input.number(1);
    Request request = which % 4 == 0 ? world.readable : world.writable;
    request.pieces = static_cast<std::uint32_t>(input.number(1) % 5);
    append(payload, &request, sizeof request);
    for (std::uint32_t i = 0; i < request.pieces + (which > 250 ? 1 : 0); ++i) {
      WirePiece piece{input.number(2), input.number(2)};
      if (which % 8 == 7) piece.remote = UINT64_MAX - piece.remote;
      append(payload, &piece, sizeof piece);
    }
  } else {
    const auto bytes = input.bytes(input.number(2) % 2048);
    append(payload, bytes.data(), bytes.size());
  }
  append_frame(out, kind, part, offset, payload);
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace
}  // namespace infos

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace infos;
  static const World world;
  std::memset(world.memory.data(), static_cast<int>(kCanary), world.memory.size());
  Input input(data, size);
  const std::uint64_t mode = input.number(1);
  std::vector<std::byte> bytes;
  if (mode % 4 != 0) {
    const Hello hello = world.transport->hello_for_tests();
    std::vector<std::byte> payload;
    append(payload, &hello, sizeof hello);
    append_frame(bytes, FrameKind::hello, 0, 0, payload);
  }
  while (mode % 2 == 1 && !input.empty()) craft(world, input, bytes);
  const auto raw = input.bytes(size);
  append(bytes, raw.data(), raw.size());
  world.transport->serve(std::make_unique<MemoryStream>(std::move(bytes)));
  for (int turns = 0; turns < 100 && !world.transport->arm(); ++turns) world.transport->progress();
  for (std::uint64_t i = 0; i < kBytes; ++i)
    check((i >= kGrantBegin && i < kGrantBegin + kGrantBytes) || world.memory[i] == kCanary);
  check(world.transport->arm());  // the stream ended, and so did its session
  return 0;
}
