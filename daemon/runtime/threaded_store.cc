// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/threaded_store.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace infos {
namespace {

Status check_key(std::string_view key) {
  if (key.empty() || key.size() > kStoreKeyBytesMax)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("state key of {} bytes: want 1 to {}", key.size(), kStoreKeyBytesMax)};
  return {};
}

Status check_write(const StoreWrite& wish) {
  const Status key = check_key(wish.key);
  if (!key.ok()) return key;
  if (wish.value && wish.value->size() > kStoreValueBytesMax)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("value of state key '{}' has {} bytes: at most {}", wish.key,
                             wish.value->size(), kStoreValueBytesMax)};
  return {};
}

class ThreadedStore final : public StateStore {
 public:
  ThreadedStore(std::unique_ptr<StoreBackend> backend, const ThreadedStoreOptions& options)
      : options_(options), backend_(std::move(backend)), thread_([this] { run(); }) {}

  ~ThreadedStore() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }

  void get(std::string key, Done<std::optional<StoredValue>> done) override {
    Status checked = check_key(key);
    submit<std::optional<StoredValue>>(std::move(checked), std::move(done),
                                       [this, key = std::move(key)] { return backend_->get(key); });
  }
  void list(std::string prefix, Done<StoredList> done) override {
    submit<StoredList>(Status(), std::move(done),
                       [this, prefix = std::move(prefix)] { return backend_->list(prefix); });
  }
  void write(StoreWrite wish, Done<StoreWritten> done) override {
    Status checked = check_write(wish);
    submit<StoreWritten>(std::move(checked), std::move(done),
                         [this, wish = std::move(wish)] { return apply(wish); });
  }
  WatchId watch(std::string prefix, Done<StoredList> done,
                std::function<void(const StoreChange&)> changed) override;
  void unwatch(WatchId watch) override;

 private:
  struct Watch {
    std::string prefix;
    std::function<void(const StoreChange&)> changed;
    bool live = false;  ///< its list has been answered
  };

  /// Queues `work`; a call that may not be made is answered in its turn too.
  template <typename T, typename Work>
  void submit(Status checked, Done<T> done, Work work) {
    std::function<void()> job;
    if (checked.ok())
      job = [done, work = std::move(work)] { done(work()); };
    else
      job = [done, error = std::move(checked).error()] { done(error); };
    {
      const std::lock_guard lock(mutex_);
      // Refusals are answered in order as well; they are small, so that they may exceed the bound.
      if (jobs_.size() >= options_.queue_max)
        job = [done, n = options_.queue_max] {
          done(Error{ErrorCode::resource_exhausted,
                     fmt::format("state store: {} calls wait already", n)});
        };
      jobs_.push_back(std::move(job));
    }
    arrived_.notify_one();
  }

  Result<StoreWritten> apply(const StoreWrite& wish);
  void run();

  const ThreadedStoreOptions options_;
  std::unique_ptr<StoreBackend> backend_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::recursive_mutex watch_mutex_;  ///< held while a watch is told, so that unwatch() is final;
                                      ///< `changed` may unwatch
  bool telling_ = false;
  std::map<WatchId, Watch> watches_;
  std::uint64_t watches_made_ = 0;
  std::thread thread_;
};

WatchId ThreadedStore::watch(std::string prefix, Done<StoredList> done,
                             std::function<void(const StoreChange&)> changed) {
  WatchId id;
  {
    const std::lock_guard lock(watch_mutex_);
    id = WatchId{++watches_made_};
    watches_[id] = Watch{prefix, std::move(changed)};
  }
  list(std::move(prefix), [this, id, done = std::move(done)](Result<StoredList> rows) {
    if (rows.ok()) {
      const std::lock_guard lock(watch_mutex_);
      if (const auto found = watches_.find(id); found != watches_.end()) found->second.live = true;
    }
    done(std::move(rows));
  });
  return id;
}

void ThreadedStore::unwatch(WatchId watch) {
  const std::lock_guard lock(watch_mutex_);
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  // Called from inside `changed`: the map is being walked.
  if (telling_)
    found->second = Watch{};
  else
    watches_.erase(found);
}

Result<StoreWritten> ThreadedStore::apply(const StoreWrite& wish) {
  auto written = backend_->write(wish);
  if (!written.ok() || !written->applied) return written;
  const StoreChange change{wish.key, wish.value, written->revision};
  const std::lock_guard lock(watch_mutex_);
  telling_ = true;
  for (auto& [id, watch] : watches_) {
    if (!watch.live || !wish.key.starts_with(watch.prefix)) continue;
    const auto changed = watch.changed;  // may remove itself
    changed(change);
  }
  telling_ = false;
  std::erase_if(watches_, [](const auto& entry) { return !entry.second.changed; });
  return written;
}

void ThreadedStore::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto wanted = [this] { return !jobs_.empty() || ending_; };
    if (!arrived_.wait_for(lock, std::chrono::nanoseconds(options_.idle_after.ns), wanted)) {
      lock.unlock();
      backend_->idle();
      lock.lock();
      continue;
    }
    if (jobs_.empty()) break;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
  lock.unlock();
  backend_.reset();
}

class MemoryBackend final : public StoreBackend {
 public:
  Result<std::optional<StoredValue>> get(const std::string& key) override {
    const auto found = rows_.find(key);
    if (found == rows_.end()) return std::optional<StoredValue>();
    return std::optional<StoredValue>(found->second);
  }
  Result<StoredList> list(const std::string& prefix) override {
    StoredList list{{}, last_};
    for (auto row = rows_.lower_bound(prefix); row != rows_.end() && row->first.starts_with(prefix);
         ++row)
      list.rows.push_back(row->second);
    return list;
  }
  Result<StoreWritten> write(const StoreWrite& wish) override {
    const auto found = rows_.find(wish.key);
    const Revision current = found == rows_.end() ? Revision{} : found->second.revision;
    if (wish.expected && *wish.expected != current) return StoreWritten{false, current};
    if (!wish.value && !current) return StoreWritten{false, current};
    ++last_.value;
    if (wish.value)
      rows_[wish.key] = StoredValue{wish.key, *wish.value, last_};
    else
      rows_.erase(found);
    return StoreWritten{true, last_};
  }

 private:
  std::map<std::string, StoredValue> rows_;
  Revision last_;
};

}  // namespace

std::unique_ptr<StateStore> make_threaded_store(std::unique_ptr<StoreBackend> backend,
                                                const ThreadedStoreOptions& options) {
  return std::make_unique<ThreadedStore>(std::move(backend), options);
}

std::unique_ptr<StateStore> make_memory_store() {
  return make_threaded_store(std::make_unique<MemoryBackend>());
}

}  // namespace infos
