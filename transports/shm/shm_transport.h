// SPDX-License-Identifier: Apache-2.0
// The transport between processes of one host, over shared memory. Every byte is copied by the side
// where it lands (a put asks the destination to fetch), so a fence is local and nobody can write
// into anybody else's memory.
#pragma once

#include <memory>

#include "topology/base/units.h"
#include "transports/transport.h"

namespace infos {

struct ShmOptions {
  /// Threads that copy beside the owner's, when a megabyte or more is waiting.
  std::uint32_t helpers = 1;
  /// A peer whose owner makes no progress for so long is lost.
  Duration silence_max = milliseconds(500);
};

/// Errors: io, resource_exhausted (no shared memory, no descriptors).
Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options);

}  // namespace infos
