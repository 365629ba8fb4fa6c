// SPDX-License-Identifier: Apache-2.0
// RAII over the few SQLite calls that the state store needs: a connection, prepared statements,
// errors as Result. One thread. Knows nothing of what is stored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "topology/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace infos {

class SqliteDatabase;

/// A prepared statement. Binding and reading are by position: parameters from 1, columns from 0.
class SqliteStatement {
 public:
  SqliteStatement() = default;
  SqliteStatement(SqliteStatement&& other) noexcept;
  SqliteStatement& operator=(SqliteStatement&& other) noexcept;
  ~SqliteStatement();

  SqliteStatement& bind(int position, std::int64_t value);
  SqliteStatement& bind_text(int position, std::string_view text);
  SqliteStatement& bind_blob(int position, std::string_view bytes);
  /// True: a row is there. False: done; the statement is ready to be bound again. Errors: see
  /// SqliteDatabase.
  Result<bool> step();
  /// Makes it ready to be bound again before its last row.
  void reset();
  std::int64_t integer(int column) const;
  std::string bytes(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(const SqliteDatabase* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}
  const SqliteDatabase* database_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

/// Errors of all calls: corrupt (damaged, or not a database), resource_exhausted (disk or size
/// limit), io, unavailable.
class SqliteDatabase {
 public:
  /// Opens for writing, creating it when it is not there.
  static Result<SqliteDatabase> open(const std::string& path);
  SqliteDatabase(SqliteDatabase&& other) noexcept;
  SqliteDatabase& operator=(SqliteDatabase&& other) noexcept;
  ~SqliteDatabase();

  /// Runs statements that give no rows that matter.
  Status run(const std::string& sql);
  Result<SqliteStatement> prepare(const std::string& sql) const;
  /// The first column of the first row.
  Result<std::string> ask(const std::string& sql) const;
  /// Ends a transaction that failed; does nothing when none is open.
  void roll_back();
  /// Why the last call failed.
  Error error(std::string_view doing) const;

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  sqlite3* handle_ = nullptr;
};

}  // namespace infos
