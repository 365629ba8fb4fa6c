// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/recording_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/runtime/unique_fd.h"
#include "topology/base/log.h"

namespace infos {
namespace {

constexpr std::size_t kWakeBytes = 1u << 20;  // writes begin early when so much waits

}  // namespace

struct RecordingFile::Writer {
  Writer(std::string p, UniqueFd f, const RecordingOptions& o)
      : path(std::move(p)), fd(std::move(f)), options(o), thread([this] { run(); }) {}
  ~Writer() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    wake.notify_one();
    thread.join();
  }

  void append(const std::string& bytes);
  void run();
  bool write_all(std::string_view bytes);
  void turn_off(const std::string& why);

  const std::string path;
  const UniqueFd fd;
  const RecordingOptions options;
  std::atomic<bool> on{true};
  std::mutex mutex;
  std::condition_variable wake;
  std::string waiting;
  bool ending = false;
  std::thread thread;
};

void RecordingFile::Writer::append(const std::string& bytes) {
  bool overflow = false;
  std::size_t size = 0;
  {
    const std::lock_guard lock(mutex);
    overflow = waiting.size() + bytes.size() > options.buffer_bytes_max;
    if (!overflow) waiting += bytes;
    size = waiting.size();
  }
  if (overflow)
    return turn_off(fmt::format("{} bytes wait to be written already: the disk is too slow", size));
  if (size >= kWakeBytes) wake.notify_one();
}

void RecordingFile::Writer::turn_off(const std::string& why) {
  if (!on.exchange(false)) return;
  log_error("recording", "is turned off; the file ends here", {{"file", path}, {"why", why}});
}

bool RecordingFile::Writer::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      turn_off(::strerror(errno));
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

void RecordingFile::Writer::run() {
  std::string taken;
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait_for(lock, std::chrono::nanoseconds(options.flush_interval.ns),
                  [this] { return ending || waiting.size() >= kWakeBytes; });
    const bool last = ending;
    taken.clear();
    taken.swap(waiting);
    lock.unlock();
    if (on) write_all(taken);
    if (last) return;
    lock.lock();
  }
}

RecordingFile::RecordingFile(std::unique_ptr<Writer> writer, const RecordingOptions& options)
    : options_(options), writer_(std::move(writer)) {}

Result<std::unique_ptr<RecordingFile>> RecordingFile::create(const std::string& path,
                                                             const RecordingOptions& options) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return Error{ErrorCode::io, fmt::format("recording {}: {}", path, ::strerror(errno))};
  std::unique_ptr<RecordingFile> file(
      new RecordingFile(std::make_unique<Writer>(path, std::move(fd), options), options));
  file->append(recording_header());
  return file;
}

RecordingFile::~RecordingFile() { append(recorder_.hashes()); }

void RecordingFile::start(std::uint64_t instance, const CoreConfig& config) {
  append(recorder_.start(instance, config));
}

bool RecordingFile::is_on() const { return writer_->on.load(std::memory_order_relaxed); }

void RecordingFile::append(const std::string& bytes) {
  if (is_on()) writer_->append(bytes);
}

}  // namespace infos
