// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/sqlite_database.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <string.h>

#include <utility>

namespace infos {

// ---- statements ----

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

SqliteStatement& SqliteStatement::operator=(SqliteStatement&& other) noexcept {
  std::swap(database_, other.database_);
  std::swap(statement_, other.statement_);
  return *this;
}

SqliteStatement::~SqliteStatement() { ::sqlite3_finalize(statement_); }

// Binding fails only for a wrong position (a bug) or a value above SQLite's limit, which the
// store's own limits exclude.
SqliteStatement& SqliteStatement::bind(int position, std::int64_t value) {
  INFOS_CHECK(::sqlite3_bind_int64(statement_, position, value) == SQLITE_OK);
  return *this;
}
SqliteStatement& SqliteStatement::bind_text(int position, std::string_view text) {
  INFOS_CHECK(::sqlite3_bind_text64(statement_, position, text.data(), text.size(),
                                    SQLITE_TRANSIENT, SQLITE_UTF8) == SQLITE_OK);
  return *this;
}
SqliteStatement& SqliteStatement::bind_blob(int position, std::string_view bytes) {
  const void* data = bytes.empty() ? "" : bytes.data();  // null would bind NULL
  INFOS_CHECK(::sqlite3_bind_blob64(statement_, position, data, bytes.size(), SQLITE_TRANSIENT) ==
              SQLITE_OK);
  return *this;
}

Result<bool> SqliteStatement::step() {
  const int code = ::sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    ::sqlite3_reset(statement_);
    return false;
  }
  Error error = database_->error("a statement");
  ::sqlite3_reset(statement_);
  return error;
}

void SqliteStatement::reset() { ::sqlite3_reset(statement_); }

std::int64_t SqliteStatement::integer(int column) const {
  return ::sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::bytes(int column) const {
  const void* data = ::sqlite3_column_blob(statement_, column);
  const int size = ::sqlite3_column_bytes(statement_, column);
  return data ? std::string(static_cast<const char*>(data), static_cast<std::size_t>(size))
              : std::string();
}

// ---- the connection ----

Result<SqliteDatabase> SqliteDatabase::open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int flags =
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = ::sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  INFOS_CHECK(handle != nullptr);  // only out of memory
  SqliteDatabase database(path, handle);
  if (code != SQLITE_OK) return database.error("open");
  if (::sqlite3_db_readonly(handle, "main") == 1)
    return Error{ErrorCode::io,
                 fmt::format("state file {}: it cannot be written to (permissions?)", path)};
  ::sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  ::sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  return database;
}

SqliteDatabase::SqliteDatabase(SqliteDatabase&& other) noexcept
    : path_(std::move(other.path_)), handle_(std::exchange(other.handle_, nullptr)) {}

SqliteDatabase& SqliteDatabase::operator=(SqliteDatabase&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(handle_, other.handle_);
  return *this;
}

SqliteDatabase::~SqliteDatabase() { ::sqlite3_close_v2(handle_); }

Status SqliteDatabase::run(const std::string& sql) {
  if (::sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return error(sql.substr(0, 40));
  return {};
}

Result<SqliteStatement> SqliteDatabase::prepare(const std::string& sql) const {
  sqlite3_stmt* statement = nullptr;
  if (::sqlite3_prepare_v3(handle_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement,
                           nullptr) != SQLITE_OK)
    return error(sql.substr(0, 40));
  return SqliteStatement(this, statement);
}

Result<std::string> SqliteDatabase::ask(const std::string& sql) const {
  SqliteStatement statement = INFOS_TRY(prepare(sql));
  const bool row = INFOS_TRY(statement.step());
  return row ? statement.bytes(0) : std::string();
}

void SqliteDatabase::roll_back() {
  if (!::sqlite3_get_autocommit(handle_))
    ::sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

Error SqliteDatabase::error(std::string_view doing) const {
  const int code = ::sqlite3_extended_errcode(handle_);
  const int system = ::sqlite3_system_errno(handle_);
  std::string message =
      fmt::format("state file {}: {}: {}", path_, doing, ::sqlite3_errmsg(handle_));
  const bool from_system = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (from_system && system != 0) message += fmt::format(" ({})", ::strerror(system));
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::corrupt, std::move(message)};
    case SQLITE_FULL:
    case SQLITE_TOOBIG:
      return {ErrorCode::resource_exhausted, std::move(message)};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::unavailable, std::move(message)};
    default:
      return {ErrorCode::io, std::move(message)};
  }
}

}  // namespace infos
