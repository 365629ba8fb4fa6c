// SPDX-License-Identifier: Apache-2.0
// ThreadedStore makes a StateStore of a backend that answers at once: one thread, a bounded queue,
// watches. The backend is touched by that thread alone (SQLite 3.40.1 wants one connection on one
// thread).
#pragma once

#include <memory>

#include "daemon/runtime/state_store.h"
#include "topology/base/units.h"

namespace infos {

/// What a store keeps its rows in. Thread: the store's.
class StoreBackend {
 public:
  virtual ~StoreBackend() = default;
  virtual Result<std::optional<StoredValue>> get(const std::string& key) = 0;
  virtual Result<StoredList> list(const std::string& prefix) = 0;
  virtual Result<StoreWritten> write(const StoreWrite& wish) = 0;
  /// Nothing was asked for a while: time for upkeep.
  virtual void idle() {}
};

struct ThreadedStoreOptions {
  std::size_t queue_max = 4096;  ///< calls that wait; beyond: resource_exhausted
  Duration idle_after = seconds(2);
};

std::unique_ptr<StateStore> make_threaded_store(std::unique_ptr<StoreBackend> backend,
                                                const ThreadedStoreOptions& options = {});

/// A store that forgets everything at its end.
std::unique_ptr<StateStore> make_memory_store();

}  // namespace infos
