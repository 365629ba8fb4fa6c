// SPDX-License-Identifier: Apache-2.0
// The default state store: one SQLite file, one connection, one thread. WAL with full syncs, a
// CRC32C in each row, a hash-chained audit trail, a snapshot beside the file. A damaged file is
// moved aside and the last good snapshot takes its place; a second opener is refused. Never
// repairs, never guesses.
#pragma once

#include <memory>
#include <string>

#include "daemon/runtime/state_store.h"
#include "topology/base/units.h"

namespace infos {

struct SqliteStoreOptions {
  Bytes bytes_max{1u << 30};              ///< of the file; a write beyond it is refused
  std::uint32_t audit_rows_max = 10'000;  ///< older ones are dropped
  std::uint32_t snapshot_every = 64;      ///< writes; also when the store is idle, and at its end
};

struct OpenedStore {
  std::unique_ptr<StateStore> store;
  /// What had to be done to open it ("... is damaged: ...; it was moved to ...; ..."); empty:
  /// nothing.
  std::string recovery;
};

/// Files: `path`, `path`-wal, `path`.lock, `path`.snapshot, and `path`.damaged-TIME when there was
/// damage. Errors: unavailable (another process has it open, with its pid), io (with the system's
/// reason), unsupported (written by a newer version), invalid_argument (a database of another
/// program).
Result<OpenedStore> open_sqlite_store(const std::string& path,
                                      const SqliteStoreOptions& options = {});

}  // namespace infos
