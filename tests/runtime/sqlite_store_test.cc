// SPDX-License-Identifier: Apache-2.0
// Goal: the SQLite store loses nothing that it acknowledged, notices damage, and says clearly what
// it cannot do. Method: children that are killed while they write, files with flipped bytes, limits
// of size and permission.
#include "daemon/runtime/sqlite_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "tests/runtime/store_support.h"

namespace infos {
namespace {

using test::get, test::list, test::put, test::write;
using testing::HasSubstr;

std::unique_ptr<StateStore> open_at(const std::string& path) {
  auto opened = open_sqlite_store(path);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->recovery, "");
  return std::move(opened->store);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Runs SQL on a store's file that nobody has open.
void tamper(const std::string& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_close(database);
}

/// Runs `body` in a child. Returns: its wait status.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST(SqliteStore, Reopened_HasEverything) {
  test::Folder folder;
  for (int i = 1; i <= 3; ++i) {
    const auto store = open_at(folder / "s.db");
    EXPECT_EQ(put(*store, "k" + std::to_string(i), "v").value().revision,
              Revision{static_cast<std::uint64_t>(i)});
    EXPECT_EQ(list(*store, "").value().rows.size(), static_cast<std::size_t>(i));
  }
}

TEST(SqliteStore, KilledWhileWriting_KeepsWhatItAcknowledged) {
  test::Folder folder;
  const std::string path = folder / "s.db";
  std::uint64_t acknowledged = 0;
  for (const int kill_after : {1, 2, 7, 20, 33}) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      auto opened = open_sqlite_store(path);
      if (!opened.ok()) ::_exit(1);
      for (std::uint64_t n = acknowledged + 1;; ++n) {
        if (!put(*opened->store, "key" + std::to_string(n % 5), std::to_string(n)).ok()) ::_exit(2);
        if (::write(pipe_fds[1], &n, sizeof n) != sizeof n) ::_exit(3);
      }
    }
    ::close(pipe_fds[1]);
    for (int i = 0; i < kill_after; ++i)
      ASSERT_EQ(::read(pipe_fds[0], &acknowledged, sizeof acknowledged), 8);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    // It may have gone on for a while before the signal came.
    while (::read(pipe_fds[0], &acknowledged, sizeof acknowledged) == 8) {
    }
    ::close(pipe_fds[0]);

    const auto store = open_at(path);
    const StoredList rows = list(*store, "").value();
    std::uint64_t newest = 0;
    for (const StoredValue& row : rows.rows)
      newest = std::max<std::uint64_t>(newest, std::stoull(row.value));
    EXPECT_GE(newest, acknowledged);
    EXPECT_LE(newest, acknowledged + 1);  // written, not yet acknowledged
    for (std::uint64_t n = newest; n > 0 && n + 5 > newest; --n) {
      const auto row = get(*store, "key" + std::to_string(n % 5));
      ASSERT_TRUE(row.ok()) << row.error().message;
      EXPECT_EQ((*row)->value, std::to_string(n));
    }
    acknowledged = newest;
  }
}

// ---- damage ----

struct Damage {
  const char* name;
  std::function<void(const std::string& path)> act;
};

std::vector<Damage> damages() {
  const auto flip = [](std::size_t where) {
    return [where](const std::string& path) {
      std::string bytes = read_file(path);
      ASSERT_GT(bytes.size(), where);
      for (std::size_t i = where; i < std::min(where + 64, bytes.size()); ++i)
        bytes[i] = static_cast<char>(~bytes[i]);
      write_file(path, bytes);
    };
  };
  return {
      {"Header", flip(0)},
      {"FirstPage", flip(110)},
      {"SecondPage", flip(4096)},
      {"Truncated", [](const std::string& path) { ASSERT_EQ(::truncate(path.c_str(), 5000), 0); }},
      {"Emptied", [](const std::string& path) { ASSERT_EQ(::truncate(path.c_str(), 0), 0); }},
      {"NotADatabase",
       [](const std::string& path) {
         write_file(path,
                    "something else entirely, longer than a header "
                    "of a database file would ever need to be......");
       }},
      {"ValueChanged",
       [](const std::string& path) {
         tamper(path, "UPDATE state SET value=x'6576696c' WHERE key='a'");
       }},
      {"RevisionChanged",
       [](const std::string& path) { tamper(path, "UPDATE state SET revision=1 WHERE key='b'"); }},
      {"AuditChanged",
       [](const std::string& path) {
         tamper(path, "UPDATE audit SET actor='nobody' WHERE revision=1");
       }},
      {"AuditCut",
       [](const std::string& path) { tamper(path, "DELETE FROM audit WHERE revision=2"); }},
      {"AuditEndCut",
       [](const std::string& path) { tamper(path, "DELETE FROM audit WHERE revision=3"); }}};
}

class SqliteLoss : public testing::Test {
 protected:
  void SetUp() override {
    const auto store = open_at(path);
    for (const char* key : {"a", "b", "c"})
      ASSERT_TRUE(put(*store, key, std::string("value of ") + key).ok());
  }
  test::Folder folder;
  const std::string path = folder / "s.db";
};
class SqliteDamage : public SqliteLoss, public testing::WithParamInterface<Damage> {};

TEST_P(SqliteDamage, IsMovedAsideAndTheSnapshotTakesItsPlace) {
  GetParam().act(path);
  auto opened = open_sqlite_store(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->recovery, HasSubstr("is damaged"));
  EXPECT_THAT(opened->recovery, HasSubstr("it was moved to " + path + ".damaged-"));
  EXPECT_THAT(opened->recovery, HasSubstr("last good snapshot"));
  EXPECT_EQ(list(*opened->store, "").value().rows.size(), 3u);
  EXPECT_EQ(get(*opened->store, "a").value()->value, "value of a");
  EXPECT_EQ(put(*opened->store, "d", "4").value().revision, Revision{4});
  opened->store.reset();
  EXPECT_EQ(list(*open_at(path), "").value().rows.size(), 4u);  // healthy again
}

TEST_P(SqliteDamage, OfTheSnapshotToo_StartsEmptyAndSaysSo) {
  GetParam().act(path);
  GetParam().act(path + ".snapshot");
  auto opened = open_sqlite_store(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->recovery, HasSubstr("the state is empty now"));
  EXPECT_TRUE(list(*opened->store, "").value().rows.empty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, SqliteDamage, testing::ValuesIn(damages()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(SqliteLoss, FileGone_TheSnapshotTakesItsPlace) {
  ASSERT_EQ(::unlink(path.c_str()), 0);
  auto opened = open_sqlite_store(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->recovery, HasSubstr("it is gone"));
  EXPECT_EQ(list(*opened->store, "").value().rows.size(), 3u);
}

TEST_F(SqliteLoss, FileAndSnapshotGone_IsANewStore) {
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::unlink((path + ".snapshot").c_str()), 0);
  auto opened = open_sqlite_store(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened->recovery, "");
  EXPECT_TRUE(list(*opened->store, "").value().rows.empty());
}

TEST(SqliteStore, DamagedWithoutSnapshot_StartsEmptyAndSaysSo) {
  test::Folder folder;
  write_file(folder / "s.db", std::string(8192, 'x'));
  auto opened = open_sqlite_store(folder / "s.db");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_THAT(opened->recovery, HasSubstr("there is no snapshot"));
  EXPECT_TRUE(put(*opened->store, "a", "1").ok());
}

// ---- refusals ----

TEST(SqliteStore, SecondOpener_IsRefusedWithThePidOfTheFirst) {
  test::Folder folder;
  const auto store = open_at(folder / "s.db");
  const auto second = open_sqlite_store(folder / "s.db");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  EXPECT_THAT(second.error().message,
              HasSubstr("in use by another infosd (pid " + std::to_string(::getpid()) + ")"));
}

TEST(SqliteStore, OtherDatabases_AreRefusedAndLeftAlone) {
  test::Folder folder;
  tamper(folder / "foreign.db", "CREATE TABLE t(x)");
  const std::string before = read_file(folder / "foreign.db");
  const auto foreign = open_sqlite_store(folder / "foreign.db");
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(foreign.error().message, HasSubstr("another program"));
  EXPECT_EQ(read_file(folder / "foreign.db"), before);

  open_at(folder / "newer.db");
  tamper(folder / "newer.db", "PRAGMA user_version=2");
  const auto newer = open_sqlite_store(folder / "newer.db");
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().code, ErrorCode::unsupported);
}

TEST(SqliteStore, FullStore_RefusesTheWriteAndKeepsTheRest) {
  test::Folder folder;
  SqliteStoreOptions options;
  options.bytes_max = Bytes{64u << 10};
  const auto store = std::move(open_sqlite_store(folder / "s.db", options).value().store);
  ASSERT_TRUE(put(*store, "small", "1").ok());
  const auto refused = put(*store, "large", std::string(200u << 10, 'x'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::resource_exhausted);
  EXPECT_EQ(get(*store, "large").value(), std::nullopt);
  EXPECT_EQ(put(*store, "small", "2").value().revision, Revision{2});
}

TEST(SqliteStore, FullDisk_RefusesTheWriteAndKeepsTheRest) {
  test::Folder folder;
  const std::string path = folder / "s.db";
  const int status = in_child([&] {
    auto opened = open_sqlite_store(path);
    if (!opened.ok() || !put(*opened->store, "small", "1").ok()) return 10;
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{256u << 10, 256u << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto refused = put(*opened->store, "large", std::string(900u << 10, 'x'));
    if (refused.ok()) return 11;
    if (refused.error().code != ErrorCode::io &&
        refused.error().code != ErrorCode::resource_exhausted)
      return 12;
    const auto rows = list(*opened->store, "");
    if (!rows.ok() || rows->rows.size() != 1) return 13;
    return put(*opened->store, "small", "2").ok() ? 0 : 14;
  });
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
  const auto store = open_at(path);
  EXPECT_EQ(get(*store, "small").value()->value, "2");
}

TEST(SqliteStore, FolderOfAnother_IsRefusedWithTheReason) {
  test::Folder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  const int status = in_child([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::seteuid(kNobody) != 0) return 10;
    const auto opened = open_sqlite_store(folder / "s.db");
    if (opened.ok()) return 11;
    if (opened.error().code != ErrorCode::io) return 12;
    return opened.error().message.find("Permission denied") != std::string::npos ? 0 : 13;
  });
  EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status);
}

TEST(SqliteStore, MissingFolder_IsNamed) {
  test::Folder folder;
  const auto opened = open_sqlite_store(folder / "none/s.db");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("none/s.db"));
  EXPECT_THAT(opened.error().message, HasSubstr("No such file or directory"));
}

TEST(SqliteStore, LongAudit_IsPrunedAndStillVerifies) {
  test::Folder folder;
  SqliteStoreOptions options;
  options.audit_rows_max = 10;
  {
    const auto store = std::move(open_sqlite_store(folder / "s.db", options).value().store);
    for (int i = 0; i < 35; ++i) ASSERT_TRUE(put(*store, "a", std::to_string(i)).ok());
  }
  const auto store = open_at(folder / "s.db");
  EXPECT_EQ(put(*store, "a", "x").value().revision, Revision{36});
}

}  // namespace
}  // namespace infos
