// SPDX-License-Identifier: Apache-2.0
// Goal: a million bad tokens admit nobody; what is decided about a token survives a restart; only
// one of two controllers can spend it.
// Method: the verifier alone, with a store in memory.
#include "daemon/runtime/peer/join_tokens.h"

#include <gtest/gtest.h>

#include <future>

#include "daemon/runtime/threaded_store.h"
#include "topology/base/rng.h"

namespace infos {
namespace {

constexpr UnixSeconds kNow = 1'000'000;

JoinTokens::Options options_with(AttemptLimit attempts = AttemptLimit()) {
  JoinTokens::Options options;
  options.wall_clock = [] { return kNow; };
  options.clock = [] { return Time{}; };
  options.post = [](const std::function<void()>& task) { task(); };
  options.attempts = attempts;
  return options;
}

template <typename T>
T answer_of(const std::function<void(std::function<void(T)>)>& call) {
  std::promise<T> answer;
  call([&](T result) { answer.set_value(std::move(result)); });
  return answer.get_future().get();
}
JoinTokens::NewToken create(JoinTokens& tokens) {
  return answer_of<Result<JoinTokens::NewToken>>(
             [&](auto done) { tokens.create({Role::worker}, seconds(60), done); })
      .value();
}

TEST(JoinTokens, AMillionBadTokens_AdmitNobody) {
  const auto store = make_memory_store();
  // So many attempts at once are allowed that each one is looked at.
  JoinTokens tokens(*store, options_with(AttemptLimit(2'000'000, microseconds(1))));
  const JoinTokens::NewToken good = create(tokens);
  Rng rng(7);
  const char* digits = "0123456789abcdef";
  int admitted = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    std::string guess = good.text;
    // A third differs from the good token in one digit only.
    const int wrong = i % 3 == 0 ? 1 : 64;
    for (int k = 0; k < wrong; ++k) {
      const std::size_t at = wrong == 1 ? 17 + rng.below(64) : 17 + static_cast<std::size_t>(k);
      const char old = guess[at];
      do guess[at] = digits[rng.below(16)];
      while (wrong == 1 && guess[at] == old);
    }
    admitted += guess != good.text && tokens.take(guess, "a").ok() ? 1 : 0;
  }
  EXPECT_EQ(admitted, 0);
  EXPECT_TRUE(tokens.take(good.text, "a").ok());
}

TEST(JoinTokens, WrongAttempts_AreLimitedForEachSource) {
  AttemptLimit limit(3, seconds(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limit.allows("a", Time{}));
    limit.failed("a", Time{});
  }
  EXPECT_FALSE(limit.allows("a", Time{}));
  EXPECT_TRUE(limit.allows("b", Time{}));
  EXPECT_TRUE(limit.allows("a", Time{} + seconds(1)));
  limit.failed("a", Time{} + seconds(1));
  EXPECT_FALSE(limit.allows("a", Time{} + seconds(1)));
}

TEST(JoinTokens, ManySources_ShareOneLimitInTheEnd) {
  AttemptLimit limit(3, seconds(1));
  for (int i = 0; i < 5000; ++i) limit.failed(std::to_string(i), Time{});
  EXPECT_FALSE(limit.allows("new", Time{}));
  EXPECT_TRUE(limit.allows("7", Time{}));
}

TEST(JoinTokens, SpentToken_StaysSpentAfterARestart) {
  const auto store = make_memory_store();
  JoinTokens::NewToken made;
  {
    JoinTokens tokens(*store, options_with());
    made = create(tokens);
    ASSERT_TRUE(tokens.take(made.text, "a").ok());
    ASSERT_TRUE(
        answer_of<Status>([&](auto done) { tokens.spend(made.record.id, "n2", done); }).ok());
  }
  JoinTokens again(*store, options_with());
  ASSERT_TRUE(answer_of<Status>([&](auto done) { again.load(done); }).ok());
  EXPECT_EQ(again.list().at(0).used_by, "n2");
  EXPECT_FALSE(again.take(made.text, "a").ok());
}

TEST(JoinTokens, TwoControllers_OneSpendsIt) {
  const auto store = make_memory_store();
  JoinTokens first(*store, options_with()), second(*store, options_with());
  const JoinTokens::NewToken made = create(first);
  ASSERT_TRUE(answer_of<Status>([&](auto done) { second.load(done); }).ok());
  ASSERT_TRUE(first.take(made.text, "a").ok());
  ASSERT_TRUE(second.take(made.text, "a").ok());
  EXPECT_TRUE(answer_of<Status>([&](auto done) { first.spend(made.record.id, "n2", done); }).ok());
  EXPECT_FALSE(
      answer_of<Status>([&](auto done) { second.spend(made.record.id, "n3", done); }).ok());
}

TEST(JoinTokens, Store_HoldsNoSecret) {
  const auto store = make_memory_store();
  JoinTokens tokens(*store, options_with());
  const JoinTokens::NewToken made = create(tokens);
  const auto rows =
      answer_of<Result<StoredList>>([&](auto done) { store->list("", done); }).value();
  ASSERT_EQ(rows.rows.size(), 1u);
  EXPECT_EQ(rows.rows[0].value.find(made.text.substr(17)), std::string::npos);
  const auto read = decode_token_record(rows.rows[0].value);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, made.record);
}

TEST(JoinTokens, DamagedRow_IsPassedOver) {
  const auto store = make_memory_store();
  ASSERT_TRUE(answer_of<Result<StoreWritten>>([&](auto done) {
                store->write({"join-token/0", "\x01", std::nullopt, "test"}, done);
              }).ok());
  JoinTokens tokens(*store, options_with());
  EXPECT_TRUE(answer_of<Status>([&](auto done) { tokens.load(done); }).ok());
  EXPECT_TRUE(tokens.list().empty());
}

TEST(JoinTokens, RevokedWhileTaken_CannotBeSpent) {
  const auto store = make_memory_store();
  JoinTokens tokens(*store, options_with());
  const JoinTokens::NewToken made = create(tokens);
  ASSERT_TRUE(tokens.take(made.text, "a").ok());
  ASSERT_TRUE(answer_of<Status>([&](auto done) { tokens.revoke(made.record.id, done); }).ok());
  EXPECT_FALSE(
      answer_of<Status>([&](auto done) { tokens.spend(made.record.id, "n2", done); }).ok());
}

}  // namespace
}  // namespace infos
