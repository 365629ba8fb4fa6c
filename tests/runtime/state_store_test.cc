// SPDX-License-Identifier: Apache-2.0
// Goal: every StateStore keeps the promises of its interface. Method: one suite, run on each
// implementation; a model map is the oracle of a long random run.
#include "daemon/runtime/state_store.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "daemon/runtime/sqlite_store.h"
#include "daemon/runtime/threaded_store.h"
#include "tests/runtime/store_support.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

using test::get, test::list, test::put, test::write;

class Conformance : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("memory"))
      store = make_memory_store();
    else
      store = open_sqlite_store(folder / "state.db").value().store;
  }
  test::Folder folder;
  std::unique_ptr<StateStore> store;
};

TEST_P(Conformance, WrittenValue_IsRead) {
  const std::string value("bytes\0\xff", 7);
  const StoreWritten written = put(*store, "a", value).value();
  EXPECT_EQ(written, (StoreWritten{true, Revision{1}}));
  EXPECT_EQ(get(*store, "a").value(), (StoredValue{"a", value, Revision{1}}));
  EXPECT_EQ(get(*store, "b").value(), std::nullopt);
}

TEST_P(Conformance, EmptyValue_IsNotAbsence) {
  EXPECT_TRUE(put(*store, "a", "").value().applied);
  EXPECT_EQ(get(*store, "a").value(), (StoredValue{"a", "", Revision{1}}));
}

TEST_P(Conformance, Delete_RemovesOnceAndCountsAsAWrite) {
  ASSERT_TRUE(put(*store, "a", "1").ok());
  EXPECT_EQ(write(*store, {"a", std::nullopt, std::nullopt, "test"}).value(),
            (StoreWritten{true, Revision{2}}));
  EXPECT_EQ(write(*store, {"a", std::nullopt, std::nullopt, "test"}).value(),
            (StoreWritten{false, Revision{0}}));
  EXPECT_EQ(get(*store, "a").value(), std::nullopt);
  EXPECT_EQ(put(*store, "a", "2").value().revision, Revision{3});
}

TEST_P(Conformance, CompareAndSwap_NeedsTheExpectedRevision) {
  EXPECT_EQ(write(*store, {"a", "1", Revision{0}, "test"}).value(),
            (StoreWritten{true, Revision{1}}));
  EXPECT_EQ(write(*store, {"a", "x", Revision{0}, "test"}).value(),
            (StoreWritten{false, Revision{1}}));
  EXPECT_EQ(write(*store, {"b", "x", Revision{1}, "test"}).value(),
            (StoreWritten{false, Revision{0}}));
  ASSERT_TRUE(put(*store, "other", "y").ok());
  EXPECT_EQ(write(*store, {"a", "2", Revision{1}, "test"}).value(),
            (StoreWritten{true, Revision{3}}));
  EXPECT_EQ(write(*store, {"a", std::nullopt, Revision{1}, "test"}).value(),
            (StoreWritten{false, Revision{3}}));
  EXPECT_EQ(get(*store, "a").value()->value, "2");
}

TEST_P(Conformance, List_GivesThePrefixInOrder) {
  for (const char* key : {"b/2", "b/1", "a", "b", "b/\xff\xff", "c"})
    ASSERT_TRUE(put(*store, key, key).ok());
  const StoredList rows = list(*store, "b/").value();
  EXPECT_EQ(rows.revision, Revision{6});
  std::vector<std::string> keys;
  for (const StoredValue& row : rows.rows) keys.push_back(row.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"b/1", "b/2", "b/\xff\xff"}));
  EXPECT_EQ(list(*store, "").value().rows.size(), 6u);
  EXPECT_EQ(list(*store, "b/\xff").value().rows.size(), 1u);
  EXPECT_TRUE(list(*store, "nothing").value().rows.empty());
}

TEST_P(Conformance, Watch_GivesWhatIsThereAndThenEachChange) {
  ASSERT_TRUE(put(*store, "w/a", "1").ok());
  std::mutex mutex;
  std::vector<StoreChange> seen;
  WatchId id;
  const StoredList rows = test::ask<StoredList>([&](auto done) {
                            id =
                                store->watch("w/", std::move(done), [&](const StoreChange& change) {
                                  const std::lock_guard lock(mutex);
                                  seen.push_back(change);
                                });
                          }).value();
  EXPECT_EQ(rows.rows.size(), 1u);
  ASSERT_TRUE(put(*store, "w/b", "2").ok());
  ASSERT_TRUE(put(*store, "elsewhere", "3").ok());
  ASSERT_TRUE(write(*store, {"w/a", std::nullopt, std::nullopt, "test"}).ok());
  ASSERT_TRUE(write(*store, {"w/a", "x", Revision{99}, "test"}).ok());  // does not apply: no change
  store->unwatch(id);
  ASSERT_TRUE(put(*store, "w/c", "4").ok());
  const std::lock_guard lock(mutex);
  EXPECT_EQ(seen, (std::vector<StoreChange>{{"w/b", "2", Revision{2}},
                                            {"w/a", std::nullopt, Revision{4}}}));
}

TEST_P(Conformance, UnwatchInsideAWatch_EndsIt) {
  int calls = 0;  // no lock: the store's thread touches these only between a put and its answer
  WatchId id;
  ASSERT_TRUE(test::ask<StoredList>([&](auto done) {
                id = store->watch("", std::move(done), [&](const StoreChange&) {
                  ++calls;
                  store->unwatch(id);
                });
              }).ok());
  ASSERT_TRUE(put(*store, "a", "1").ok());
  ASSERT_TRUE(put(*store, "a", "2").ok());
  EXPECT_EQ(calls, 1);
}

TEST_P(Conformance, KeysAndValuesOutOfBounds_AreRefusedAndChangeNothing) {
  EXPECT_EQ(put(*store, "", "x").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(put(*store, std::string(kStoreKeyBytesMax + 1, 'k'), "x").error().code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(put(*store, "a", std::string(kStoreValueBytesMax + 1, 'v')).error().code,
            ErrorCode::invalid_argument);
  EXPECT_TRUE(list(*store, "").value().rows.empty());
  const std::string largest(kStoreValueBytesMax, 'v');
  EXPECT_TRUE(put(*store, std::string(kStoreKeyBytesMax, 'k'), largest).value().applied);
  EXPECT_EQ(list(*store, "").value().rows.at(0).value, largest);
}

TEST_P(Conformance, RandomWrites_MatchAMap) {
  constexpr std::uint64_t kSeed = 20;
  Rng rng(kSeed);
  std::map<std::string, StoredValue> model;
  std::uint64_t last = 0;
  for (int i = 0; i < 300; ++i) {
    StoreWrite wish{"k" + std::to_string(rng.below(12)), std::nullopt, std::nullopt, "test"};
    if (rng.chance(0.7)) wish.value = std::to_string(i);
    const Revision current = model.contains(wish.key) ? model[wish.key].revision : Revision{};
    if (rng.chance(0.5)) wish.expected = rng.chance(0.5) ? current : Revision{rng.below(20)};
    const bool applies = (!wish.expected || *wish.expected == current) && (wish.value || current);
    const StoreWritten written = write(*store, wish).value();
    ASSERT_EQ(written, (StoreWritten{applies, applies ? Revision{++last} : current}))
        << "seed " << kSeed << " write " << i;
    if (applies && wish.value)
      model[wish.key] = {wish.key, *wish.value, Revision{last}};
    else if (applies)
      model.erase(wish.key);
  }
  const StoredList rows = list(*store, "").value();
  ASSERT_EQ(rows.rows.size(), model.size());
  for (const StoredValue& row : rows.rows) EXPECT_EQ(row, model.at(row.key));
}

TEST_P(Conformance, CallsThatWaitAtTheEnd_AreAnswered) {
  int answers = 0;
  for (int i = 0; i < 100; ++i)
    store->write({"a", std::to_string(i), std::nullopt, "test"},
                 [&](Result<StoreWritten>) { ++answers; });
  store.reset();
  EXPECT_EQ(answers, 100);
}

INSTANTIATE_TEST_SUITE_P(Stores, Conformance, testing::Values("memory", "sqlite"),
                         [](const auto& info) { return std::string(info.param); });

class BlockingBackend final : public StoreBackend {
 public:
  explicit BlockingBackend(std::mutex& gate) : gate_(gate) {}
  Result<std::optional<StoredValue>> get(const std::string&) override {
    const std::lock_guard wait(gate_);
    return std::optional<StoredValue>();
  }
  Result<StoredList> list(const std::string&) override { return StoredList{}; }
  Result<StoreWritten> write(const StoreWrite&) override { return StoreWritten{}; }

 private:
  std::mutex& gate_;
};

TEST(ThreadedStore, FullQueue_RefusesInsteadOfGrowing) {
  std::mutex gate;
  int refused = 0, answered = 0;
  ThreadedStoreOptions options;
  options.queue_max = 4;
  auto store = make_threaded_store(std::make_unique<BlockingBackend>(gate), options);
  {
    const std::lock_guard hold(gate);
    for (int i = 0; i < 20; ++i)
      store->get("k", [&](const Result<std::optional<StoredValue>>& answer) {
        ++(answer.ok() ? answered : refused);
      });
  }
  store.reset();
  EXPECT_GE(refused, 15);  // the thread may have taken one call out before it was held up
  EXPECT_EQ(refused + answered, 20);
}

}  // namespace
}  // namespace infos
