// SPDX-License-Identifier: Apache-2.0
// Copier: performs copy jobs in chunks, by the owner's thread (work()) and by helper threads that
// join in when much is waiting. Every byte that lands through the shm transport is written here, so
// a job that is aborted and collected writes nothing any more.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace infos {

struct CopyRun {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
};

/// Owned by who gives it, from give() until it comes back from collect().
struct CopyJob {
  std::uint64_t tag = 0;  ///< the owner's
  std::vector<CopyRun> runs;
  bool aborted = false;  ///< written by abort(); read when collected

 private:
  friend class Copier;
  std::size_t next_run = 0;
  std::uint64_t next_byte = 0;  ///< in that run
  std::uint32_t active = 0;     ///< chunks being copied now
  bool exhausted() const { return aborted || next_run == runs.size(); }
};

class Copier {
 public:
  /// `event_fd` is written when a helper finished a job.
  Copier(std::uint32_t helpers, int event_fd);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  void give(CopyJob* job);
  /// No chunk of it begins from now on; it is collected when none is under way.
  void abort(CopyJob* job);
  /// Copies one chunk. Returns: whether there was one.
  bool work();
  /// Whether work() or collect() has something now.
  bool has_work();
  /// The jobs that are over, in order of their end.
  std::vector<CopyJob*> collect();

 private:
  struct Chunk {
    CopyJob* job = nullptr;
    std::size_t run = 0;
    std::uint64_t byte = 0;
    std::uint64_t bytes = 0;  ///< over all its runs
  };
  /// Requires: the lock is held.
  bool claim(Chunk& chunk);
  static void copy(const Chunk& chunk);
  /// Requires: the lock is held. Returns: whether the job is over.
  bool settle(CopyJob* job);
  void help();

  const int event_fd_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<CopyJob*> waiting_;  ///< jobs with chunks left
  std::uint64_t waiting_bytes_ = 0;
  std::vector<CopyJob*> over_;
  bool signalled_ = false, stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace infos
