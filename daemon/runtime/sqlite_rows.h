// SPDX-License-Identifier: Apache-2.0
// What the state store keeps in its SQLite file: rows with a checksum, and the audit trail, each
// entry of which holds the hash of the one before. Decides what counts as damage. Thread: the
// store's.
#pragma once

#include <memory>
#include <string>

#include "daemon/runtime/sqlite_database.h"
#include "daemon/runtime/sqlite_store.h"
#include "daemon/runtime/threaded_store.h"

namespace infos {

class SqliteRows {
 public:
  /// Opens the file, makes its tables when it is new, and verifies everything in it.
  /// Errors: corrupt (damage, in words), io, unsupported, invalid_argument.
  static Result<SqliteRows> open(const std::string& path, const SqliteStoreOptions& options);

  Result<std::optional<StoredValue>> get(const std::string& key);
  Result<StoredList> list(const std::string& prefix);
  Result<StoreWritten> write(const StoreWrite& wish);
  /// Writes a copy of the whole database to a file that is not there.
  Status copy_to(const std::string& path);

 private:
  SqliteRows() = default;
  Status set_up(const SqliteStoreOptions& options);
  Status check_owner();
  Status verify();
  Status verify_rows();
  Status verify_audit();
  Status prepare();
  Result<StoreWritten> write_in_transaction(const StoreWrite& wish);
  Result<Revision> key_revision(const std::string& key);
  Status append_audit(const StoreWrite& wish, Revision revision);

  std::unique_ptr<SqliteDatabase> database_;  // at one place: statements refer to it
  SqliteStatement get_, list_, put_, remove_, key_revision_, audit_, audit_prune_;
  std::uint32_t audit_rows_max_ = 0;
  Revision last_;
  std::string last_hash_;  ///< of the newest audit entry
};

}  // namespace infos
