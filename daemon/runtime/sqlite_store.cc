// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/sqlite_store.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <system_error>

#include "daemon/runtime/sqlite_rows.h"
#include "daemon/runtime/threaded_store.h"
#include "daemon/runtime/unique_fd.h"
#include "topology/base/log.h"

namespace infos {
namespace {

namespace fs = std::filesystem;

Error system_error(const std::string& path, const char* what) {
  return Error{ErrorCode::io, fmt::format("state file {}: {}: {}", path, what, ::strerror(errno))};
}

Error with_path(const std::string& path, const Error& error) {
  const bool named = error.message.find(path) != std::string::npos;
  return named ? error : Error{error.code, fmt::format("state file {}: {}", path, error.message)};
}

std::string read_pid(int fd) {
  char text[32] = {};
  const ssize_t got = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos) pid = "unknown";
  return pid;
}

/// Held as long as the store is open. A file of its own, because the state file itself may be moved
/// aside.
Result<UniqueFd> lock_file(const std::string& path) {
  const std::string lock_path = path + ".lock";
  UniqueFd fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return system_error(path, "its lock file cannot be opened");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error(path, "flock");
    return Error{
        ErrorCode::unavailable,
        fmt::format(
            "state file {}: in use by another infosd (pid {}); give this one another --state", path,
            read_pid(fd.get()))};
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0)
    return system_error(path, "its lock file cannot be written");
  return fd;
}

std::string time_suffix() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}.{:09}", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec);
}

/// Makes what was renamed in the folder of `path` survive a power cut.
void sync_folder(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const UniqueFd fd(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

bool has_content(const std::string& path) {
  std::error_code failed;
  const auto bytes = fs::file_size(path, failed);
  return !failed && bytes > 0;
}

/// Moves a damaged file and its WAL aside; the file itself may be missing. Returns: its new name.
Result<std::string> quarantine(const std::string& path) {
  const std::string aside = path + ".damaged-" + time_suffix();
  if (::rename(path.c_str(), aside.c_str()) != 0 && errno != ENOENT)
    return system_error(path, "it is damaged and cannot be moved aside");
  for (const char* suffix : {"-wal", "-shm", "-journal"})
    ::rename((path + suffix).c_str(), (aside + suffix).c_str());
  sync_folder(path);
  return aside;
}

class SqliteBackend final : public StoreBackend {
 public:
  SqliteBackend(std::string path, UniqueFd lock, SqliteRows rows, const SqliteStoreOptions& options)
      : path_(std::move(path)), lock_(std::move(lock)), rows_(std::move(rows)), options_(options) {
    // Newly opened and verified: what is there now is good.
    snapshot();
  }
  ~SqliteBackend() override { idle(); }

  Result<std::optional<StoredValue>> get(const std::string& key) override { return rows_.get(key); }
  Result<StoredList> list(const std::string& prefix) override { return rows_.list(prefix); }
  Result<StoreWritten> write(const StoreWrite& wish) override {
    auto written = rows_.write(wish);
    if (written.ok() && written->applied && ++unsaved_ >= options_.snapshot_every) snapshot();
    return written;
  }
  void idle() override {
    if (unsaved_ > 0) snapshot();
  }

 private:
  /// The old snapshot stays when a new one cannot be made.
  void snapshot() {
    unsaved_ = 0;
    const std::string fresh = path_ + ".snapshot.new";
    ::unlink(fresh.c_str());
    Status copied = rows_.copy_to(fresh);
    const UniqueFd fd(copied.ok() ? ::open(fresh.c_str(), O_RDONLY | O_CLOEXEC) : -1);
    if (copied.ok() && (!fd || ::fsync(fd.get()) != 0 ||
                        ::rename(fresh.c_str(), (path_ + ".snapshot").c_str()) != 0))
      copied = system_error(path_, "its snapshot cannot be saved");
    if (copied.ok()) return sync_folder(path_);
    ::unlink(fresh.c_str());
    log_warn("state", "no snapshot was made", {{"why", copied.error().message}});
  }

  const std::string path_;
  UniqueFd lock_;
  SqliteRows rows_;
  const SqliteStoreOptions options_;
  std::uint32_t unsaved_ = 0;  ///< writes since the last snapshot
};

/// Opens the snapshot in the place of the file that was moved aside, or a new file.
Result<SqliteRows> open_last_good(const std::string& path, const SqliteStoreOptions& options,
                                  std::string& story) {
  const std::string snapshot = path + ".snapshot";
  std::error_code failed;
  if (!fs::exists(snapshot)) {
    story += "; there is no snapshot: the state is empty now";
    return SqliteRows::open(path, options);
  }
  if (!has_content(snapshot)) {
    story += "; its snapshot is empty: the state is empty now";
    return SqliteRows::open(path, options);
  }
  if (!fs::copy_file(snapshot, path, failed))
    return Error{ErrorCode::io, fmt::format("state file {}: its snapshot cannot be copied: {}",
                                            path, failed.message())};
  auto rows = SqliteRows::open(path, options);
  if (rows.ok()) {
    story += fmt::format("; the state is that of the last good snapshot {}", snapshot);
    return rows;
  }
  if (rows.error().code != ErrorCode::corrupt) return rows;
  const std::string aside = INFOS_TRY(quarantine(path));
  story += fmt::format("; its snapshot is damaged too ({}): the state is empty now",
                       rows.error().message);
  return SqliteRows::open(path, options);
}

/// A state file that has a snapshot has had content. SQLite would take one that is gone or of no
/// bytes (a crash between moving it aside and copying the snapshot, a full disk, a mishap) for a
/// new one, and the first snapshot of that would overwrite the last good state.
Result<SqliteRows> open_rows(const std::string& path, const SqliteStoreOptions& options) {
  std::error_code failed;
  if (!has_content(path) && fs::exists(path + ".snapshot", failed)) {
    if (!fs::exists(path, failed)) return Error{ErrorCode::corrupt, "it is gone"};
    if (fs::is_regular_file(path, failed)) return Error{ErrorCode::corrupt, "it has no bytes"};
  }
  return SqliteRows::open(path, options);
}

}  // namespace

Result<OpenedStore> open_sqlite_store(const std::string& path, const SqliteStoreOptions& options) {
  UniqueFd lock = INFOS_TRY(lock_file(path));
  OpenedStore opened;
  auto rows = open_rows(path, options);
  if (!rows.ok()) {
    if (rows.error().code != ErrorCode::corrupt) return with_path(path, rows.error());
    opened.recovery = fmt::format("state file {} is damaged ({})", path, rows.error().message);
    const bool moved = fs::exists(path);
    const std::string aside = INFOS_TRY(quarantine(path));
    if (moved) opened.recovery += fmt::format("; it was moved to {}", aside);
    rows = open_last_good(path, options, opened.recovery);
    if (!rows.ok()) return with_path(path, rows.error());
    log_error("state", "the state was damaged", {{"recovery", opened.recovery}});
  }
  opened.store = make_threaded_store(
      std::make_unique<SqliteBackend>(path, std::move(lock), *std::move(rows), options));
  return opened;
}

}  // namespace infos
