// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace infos {
namespace {

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}
  ~PlainStream() override { close(fd_); }
  PlainStream(const PlainStream&) = delete;
  PlainStream& operator=(const PlainStream&) = delete;

  ssize_t read(std::span<const iovec> into) override {
    const ssize_t got = readv(fd_, into.data(), static_cast<int>(into.size()));
    if (got > 0) return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? kAgain : kClosed;
  }
  ssize_t write(std::span<const iovec> from) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());
    message.msg_iovlen = from.size();
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    wants_room_ = sent < 0 && (errno == EAGAIN || errno == ENOTCONN);
    if (sent >= 0) return sent;
    return wants_room_ || errno == EINTR ? kAgain : kClosed;
  }
  bool wants_room() const override { return wants_room_; }
  int fd() const override { return fd_; }

 private:
  const int fd_;
  bool wants_room_ = false;
};

}  // namespace

std::unique_ptr<Stream> make_plain_stream(int fd) { return std::make_unique<PlainStream>(fd); }

}  // namespace infos
