// SPDX-License-Identifier: Apache-2.0
// StateStore: where desired state lives between restarts. Keys to bytes with one revision counter,
// compare-and-swap, watches and an audit trail. Calls return at once; answers come on the store's
// own thread, in the order of the calls. Every implementation passes the one conformance suite in
// tests/runtime. The data plane never waits for a store.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/base/ids.h"
#include "topology/base/result.h"

namespace infos {

using Revision =
    Id<struct RevisionTag>;  ///< counts the writes of one store, from 1; 0: "is not there"

constexpr std::size_t kStoreKeyBytesMax = 512;
constexpr std::size_t kStoreValueBytesMax = 1u << 20;

struct StoredValue {
  std::string key;
  std::string value;
  Revision revision;  ///< of the write that gave it this value
  friend bool operator==(const StoredValue&, const StoredValue&) = default;
};
struct StoredList {
  std::vector<StoredValue> rows;  ///< by key
  Revision revision;              ///< of the last write that the list shows
};

/// One wish to change a key.
struct StoreWrite {
  std::string key;
  std::optional<std::string> value;  ///< nothing: delete
  std::optional<Revision>
      expected;  ///< only when the key has this revision; Revision{0}: only when it is not there
  std::string actor;  ///< who wishes, for the audit trail
};
struct StoreWritten {
  bool applied =
      false;  ///< false: `expected` did not hold, or there was nothing to delete; nothing changed
  Revision revision;  ///< applied: of this write; else the key's own, 0 when it is not there
  friend bool operator==(const StoreWritten&, const StoreWritten&) = default;
};
/// A write that was applied.
struct StoreChange {
  std::string key;
  std::optional<std::string> value;  ///< nothing: deleted
  Revision revision;
  friend bool operator==(const StoreChange&, const StoreChange&) = default;
};
using WatchId = Id<struct WatchTag>;

class StateStore {
 public:
  template <typename T>
  using Done = std::function<void(Result<T>)>;

  /// Answers what was asked before, then ends. Watches end without a word.
  virtual ~StateStore() = default;

  /// All of them. Errors: invalid_argument (key or value too long or empty), corrupt (a stored row
  /// is damaged), resource_exhausted (disk, size limit or queue is full: nothing was changed), io,
  /// unavailable.
  virtual void get(std::string key, Done<std::optional<StoredValue>> done) = 0;
  virtual void list(std::string prefix, Done<StoredList> done) = 0;
  /// When the answer says `applied`, the write survives a crash of process and machine.
  virtual void write(StoreWrite wish, Done<StoreWritten> done) = 0;
  /// Answers with what is there under `prefix`; `changed` is then called for each later change, in
  /// order, without a gap.
  virtual WatchId watch(std::string prefix, Done<StoredList> done,
                        std::function<void(const StoreChange&)> changed) = 0;
  /// No call of `changed` begins after this returns, and none is under way, unless that is where it
  /// is called from.
  virtual void unwatch(WatchId watch) = 0;
};

}  // namespace infos
