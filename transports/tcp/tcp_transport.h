// SPDX-License-Identifier: Apache-2.0
// The transport over TCP, for pairs of workers without anything better. Bytes are gathered from
// where they lie, checked by a hash on the way, read to where they belong and acknowledged from
// there. One listener per transport; off loopback it speaks mutual TLS 1.3 or does not exist.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "topology/base/units.h"
#include "transports/transport.h"

namespace infos {

struct TcpOptions {
  std::string host = "127.0.0.1";  ///< numeric address to listen on and to give to peers
  std::uint16_t port = 0;          ///< 0: any
  /// All three or none: PEM files of this side's certificate, its key, and who signs peers.
  std::string certificate_file, key_file, authority_file;
  /// Plain TCP off loopback: keys and bytes can be read and changed on the way.
  enum class Insecure : std::uint8_t { no, yes } insecure = Insecure::no;
  /// Per socket; a system's default may be unfit (bbr halves loopback). "": the system's.
  std::string congestion = "cubic";
  Duration beat_every = milliseconds(100), silence_max = milliseconds(500);
  Duration connect_max = seconds(2);
  /// Off only to measure what they cost; both sides must agree.
  enum class Checks : std::uint8_t { on, off } checks = Checks::on;
};

/// Errors: invalid_argument (not an address, TLS files, plain off loopback), io (cannot listen).
Result<std::unique_ptr<Transport>> make_tcp_transport(const TcpOptions& options);

}  // namespace infos
