// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/sqlite_rows.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <chrono>

#include "daemon/runtime/crc32c.h"

namespace infos {
namespace {

constexpr int kApplicationId = 0x696e666f;  // "info"
constexpr int kSchemaVersion = 1;
constexpr std::size_t kPageBytes = 4096;

constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS state(key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER "
    "NOT NULL, "
    "crc INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS audit(revision INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, "
    "actor TEXT NOT NULL, "
    "action TEXT NOT NULL, key TEXT NOT NULL, value_sha256 BLOB NOT NULL, previous BLOB NOT NULL, "
    "hash BLOB NOT NULL) "
    "STRICT;";

std::string sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

/// Parts with their lengths, so that no two different lists give the same bytes.
std::string join(std::initializer_list<std::string_view> parts) {
  std::string joined;
  for (const std::string_view part : parts) {
    joined += fmt::format("{}:", part.size());
    joined += part;
  }
  return joined;
}

std::int64_t row_checksum(std::string_view key, std::string_view value, std::int64_t revision) {
  return crc32c(0, join({key, value, std::to_string(revision)}));
}

std::int64_t wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

struct AuditEntry {
  std::int64_t revision = 0;
  std::int64_t time_ms = 0;
  std::string actor, action, key, value_sha256, previous;
  std::string hash() const {
    return sha256(join({previous, std::to_string(revision), std::to_string(time_ms), actor, action,
                        key, value_sha256}));
  }
};

/// The least text that is greater than all texts with this prefix; empty: there is none.
std::string prefix_end(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (!prefix.empty()) ++prefix.back();
  return prefix;
}

Error damage(std::string what) { return Error{ErrorCode::corrupt, std::move(what)}; }

}  // namespace

// ---- opening ----

Result<SqliteRows> SqliteRows::open(const std::string& path, const SqliteStoreOptions& options) {
  SqliteRows rows;
  rows.database_ = std::make_unique<SqliteDatabase>(INFOS_TRY(SqliteDatabase::open(path)));
  rows.audit_rows_max_ = options.audit_rows_max;
  Status status = rows.set_up(options);
  if (status.ok()) status = rows.prepare();
  if (status.ok()) status = rows.verify();
  if (!status.ok()) return status.error();
  return rows;
}

Status SqliteRows::set_up(const SqliteStoreOptions& options) {
  // Exclusive mode before WAL: the WAL index then is private memory, and no second connection can
  // come in.
  for (const char* pragma :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA cell_size_check=ON", "PRAGMA mmap_size=0"}) {
    Status status = database_->run(pragma);
    if (!status.ok()) return status;
  }
  Status owner = check_owner();
  if (!owner.ok()) return owner;
  const std::uint64_t pages = std::max<std::uint64_t>(1, options.bytes_max.value / kPageBytes);
  for (const std::string& sql :
       {std::string("PRAGMA journal_mode=WAL"), std::string("PRAGMA synchronous=FULL"),
        fmt::format("PRAGMA max_page_count={}", pages),
        fmt::format("PRAGMA application_id={}", kApplicationId),
        fmt::format("PRAGMA user_version={}", kSchemaVersion), std::string(kTables)}) {
    Status status = database_->run(sql);
    if (!status.ok()) return status;
  }
  return {};
}

/// A new file, or one of ours and of a version that we know.
Status SqliteRows::check_owner() {
  const std::string tables = INFOS_TRY(database_->ask("SELECT count(*) FROM sqlite_schema"));
  if (tables == "0") return {};
  const std::string id = INFOS_TRY(database_->ask("PRAGMA application_id"));
  if (id != std::to_string(kApplicationId))
    return Error{ErrorCode::invalid_argument, "it is the SQLite database of another program"};
  const std::string version = INFOS_TRY(database_->ask("PRAGMA user_version"));
  if (version != std::to_string(kSchemaVersion))
    return Error{
        ErrorCode::unsupported,
        fmt::format("it has version {}: this infosd reads version {}", version, kSchemaVersion)};
  return {};
}

Status SqliteRows::prepare() {
  const std::pair<SqliteStatement*, const char*> wanted[] = {
      {&get_, "SELECT value, revision, crc FROM state WHERE key=?1"},
      {&list_,
       "SELECT key, value, revision, crc FROM state WHERE key>=?1 AND (?2='' OR key<?2) ORDER BY "
       "key"},
      {&put_, "INSERT OR REPLACE INTO state(key,value,revision,crc) VALUES(?1,?2,?3,?4)"},
      {&remove_, "DELETE FROM state WHERE key=?1"},
      {&key_revision_, "SELECT revision FROM state WHERE key=?1"},
      {&audit_,
       "INSERT INTO audit(revision,time_ms,actor,action,key,value_sha256,previous,hash) "
       "VALUES(?1,?2,?3,?4,?5,?6,?7,?8)"},
      {&audit_prune_, "DELETE FROM audit WHERE revision<=?1"}};
  for (const auto& [statement, sql] : wanted) *statement = INFOS_TRY(database_->prepare(sql));
  return {};
}

// ---- damage ----

Status SqliteRows::verify() {
  const std::string verdict = INFOS_TRY(database_->ask("PRAGMA integrity_check(1)"));
  if (verdict != "ok") return damage(verdict);
  Status status = verify_audit();
  if (status.ok()) status = verify_rows();
  return status;
}

Status SqliteRows::verify_rows() {
  const StoredList all = INFOS_TRY(list(""));
  for (const StoredValue& row : all.rows)
    if (row.revision > last_)
      return damage(fmt::format("row '{}' has revision {}, after the last audited one {}", row.key,
                                row.revision.value, last_.value));
  return {};
}

Status SqliteRows::verify_audit() {
  SqliteStatement rows = INFOS_TRY(
      database_->prepare("SELECT revision,time_ms,actor,action,key,value_sha256,previous,hash FROM "
                         "audit ORDER BY revision"));
  while (INFOS_TRY(rows.step())) {
    const AuditEntry entry{rows.integer(0), rows.integer(1), rows.bytes(2), rows.bytes(3),
                           rows.bytes(4),   rows.bytes(5),   rows.bytes(6)};
    const bool continues = !last_ || (entry.previous == last_hash_ &&
                                      entry.revision == static_cast<std::int64_t>(last_.value) + 1);
    if (!continues)
      return damage(
          fmt::format("audit entry {} does not continue the one before it", entry.revision));
    last_hash_ = rows.bytes(7);
    if (entry.hash() != last_hash_)
      return damage(fmt::format("audit entry {} does not match its hash", entry.revision));
    last_ = Revision{static_cast<std::uint64_t>(entry.revision)};
  }
  return {};
}

// ---- rows ----

Result<std::optional<StoredValue>> SqliteRows::get(const std::string& key) {
  get_.bind_text(1, key);
  if (!INFOS_TRY(get_.step())) return std::optional<StoredValue>();
  StoredValue row{key, get_.bytes(0), Revision{static_cast<std::uint64_t>(get_.integer(1))}};
  const bool intact = get_.integer(2) == row_checksum(key, row.value, get_.integer(1));
  get_.reset();
  if (!intact) return damage(fmt::format("row '{}' does not match its checksum", key));
  return std::optional<StoredValue>(std::move(row));
}

Result<StoredList> SqliteRows::list(const std::string& prefix) {
  list_.bind_text(1, prefix).bind_text(2, prefix_end(prefix));
  StoredList list{{}, last_};
  while (INFOS_TRY(list_.step())) {
    StoredValue row{list_.bytes(0), list_.bytes(1),
                    Revision{static_cast<std::uint64_t>(list_.integer(2))}};
    if (list_.integer(3) != row_checksum(row.key, row.value, list_.integer(2))) {
      list_.reset();
      return damage(fmt::format("row '{}' does not match its checksum", row.key));
    }
    list.rows.push_back(std::move(row));
  }
  return list;
}

Result<Revision> SqliteRows::key_revision(const std::string& key) {
  key_revision_.bind_text(1, key);
  if (!INFOS_TRY(key_revision_.step())) return Revision{};
  const Revision revision{static_cast<std::uint64_t>(key_revision_.integer(0))};
  key_revision_.reset();
  return revision;
}

Result<StoreWritten> SqliteRows::write(const StoreWrite& wish) {
  const Revision before = last_;
  const std::string hash_before = last_hash_;
  Status begun = database_->run("BEGIN IMMEDIATE");
  if (!begun.ok()) return begun.error();
  auto written = write_in_transaction(wish);
  if (written.ok()) {
    Status committed = database_->run("COMMIT");
    if (!committed.ok()) written = committed.error();
  }
  if (!written.ok()) {
    database_->roll_back();
    last_ = before;
    last_hash_ = hash_before;
  }
  return written;
}

Result<StoreWritten> SqliteRows::write_in_transaction(const StoreWrite& wish) {
  const Revision current = INFOS_TRY(key_revision(wish.key));
  if (wish.expected && *wish.expected != current) return StoreWritten{false, current};
  if (!wish.value && !current) return StoreWritten{false, current};
  const auto revision = static_cast<std::int64_t>(last_.value + 1);
  if (wish.value) {
    put_.bind_text(1, wish.key).bind_blob(2, *wish.value).bind(3, revision);
    put_.bind(4, row_checksum(wish.key, *wish.value, revision));
    INFOS_TRY(put_.step());
  } else {
    remove_.bind_text(1, wish.key);
    INFOS_TRY(remove_.step());
  }
  const Revision next{static_cast<std::uint64_t>(revision)};
  Status audited = append_audit(wish, next);
  if (!audited.ok()) return audited.error();
  return StoreWritten{true, next};
}

Status SqliteRows::append_audit(const StoreWrite& wish, Revision revision) {
  const AuditEntry entry{static_cast<std::int64_t>(revision.value),
                         wall_clock_ms(),
                         wish.actor,
                         wish.value ? "put" : "delete",
                         wish.key,
                         sha256(wish.value.value_or("")),
                         last_hash_};
  const std::string hash = entry.hash();
  audit_.bind(1, entry.revision)
      .bind(2, entry.time_ms)
      .bind_text(3, entry.actor)
      .bind_text(4, entry.action);
  audit_.bind_text(5, entry.key)
      .bind_blob(6, entry.value_sha256)
      .bind_blob(7, entry.previous)
      .bind_blob(8, hash);
  INFOS_TRY(audit_.step());
  if (entry.revision > static_cast<std::int64_t>(audit_rows_max_)) {
    audit_prune_.bind(1, entry.revision - static_cast<std::int64_t>(audit_rows_max_));
    INFOS_TRY(audit_prune_.step());
  }
  last_ = revision;
  last_hash_ = hash;
  return {};
}

Status SqliteRows::copy_to(const std::string& path) {
  SqliteStatement copy = INFOS_TRY(database_->prepare("VACUUM INTO ?1"));
  copy.bind_text(1, path);
  INFOS_TRY(copy.step());
  return {};
}

}  // namespace infos
