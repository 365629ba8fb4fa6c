// SPDX-License-Identifier: Apache-2.0
// Stream: bytes to and from one peer, plain TCP or TLS 1.3 over it. Never blocks. Owner's thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "topology/base/result.h"

namespace infos {

class Stream {
 public:
  static constexpr ssize_t kAgain = -1, kClosed = -2;
  virtual ~Stream() = default;
  /// Returns: bytes moved, kAgain or kClosed (also for every error).
  virtual ssize_t read(std::span<const iovec> into) = 0;
  virtual ssize_t write(std::span<const iovec> from) = 0;
  /// Whether it waits for room in the socket.
  virtual bool wants_room() const = 0;
  /// Whether it holds bytes that were written and are not in the socket yet; write() tries again.
  virtual bool has_unsent() const { return false; }
  /// Whether it holds bytes that the socket does not show.
  virtual bool has_buffered() const { return false; }
  virtual int fd() const = 0;
};

enum class StreamRole { client, server };

/// Owns the socket.
std::unique_ptr<Stream> make_plain_stream(int fd);

/// Certificate, key and authority of this side; both sides must show a certificate of the
/// authority.
class TlsContext {
 public:
  /// Errors: invalid_argument, naming the file.
  static Result<std::shared_ptr<TlsContext>> load(const std::string& certificate_file,
                                                  const std::string& key_file,
                                                  const std::string& authority_file);
  virtual ~TlsContext() = default;
  /// Owns the socket.
  virtual std::unique_ptr<Stream> wrap(int fd, StreamRole role) = 0;
};

}  // namespace infos
