// SPDX-License-Identifier: Apache-2.0
// Waiting for a store's answer, for the time before a daemon serves. Never on a thread that serves.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "daemon/runtime/state_store.h"

namespace infos {

/// Calls `call(done)` and waits for `done`.
template <typename T, typename Call>
Result<T> wait_for(Call call) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto future = promise->get_future();
  call([promise](Result<T> answer) { promise->set_value(std::move(answer)); });
  return future.get();
}

/// Empty: the key is not there.
inline Result<std::string> read_key(StateStore& store, const std::string& key) {
  const auto row =
      wait_for<std::optional<StoredValue>>([&](auto done) { store.get(key, std::move(done)); });
  if (!row.ok()) return row.error();
  return row->has_value() ? (*row)->value : std::string();
}

}  // namespace infos
