// SPDX-License-Identifier: Apache-2.0
// What the store tests share: waiting for answers.
#pragma once

#include <future>
#include <memory>
#include <string>

#include "daemon/runtime/state_store.h"
#include "tests/runtime/folder.h"

namespace infos::test {

template <typename T, typename Call>
Result<T> ask(Call call) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto future = promise->get_future();
  call([promise](Result<T> answer) { promise->set_value(std::move(answer)); });
  return future.get();
}

inline Result<std::optional<StoredValue>> get(StateStore& store, const std::string& key) {
  return ask<std::optional<StoredValue>>([&](auto done) { store.get(key, std::move(done)); });
}
inline Result<StoredList> list(StateStore& store, const std::string& prefix) {
  return ask<StoredList>([&](auto done) { store.list(prefix, std::move(done)); });
}
inline Result<StoreWritten> write(StateStore& store, StoreWrite wish) {
  return ask<StoreWritten>([&](auto done) { store.write(std::move(wish), std::move(done)); });
}
inline Result<StoreWritten> put(StateStore& store, const std::string& key,
                                const std::string& value) {
  return write(store, {key, value, std::nullopt, "test"});
}

}  // namespace infos::test
