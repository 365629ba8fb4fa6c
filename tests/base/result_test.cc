// SPDX-License-Identifier: Apache-2.0
// Goal: Result carries values and errors, and INFOS_TRY leaves at the first error. Method: direct
// calls.
#include "topology/base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace infos {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error{ErrorCode::invalid_argument, "odd"};
  return n / 2;
}

Result<int> quarter(int n) {
  const int h = INFOS_TRY(half(n));
  return INFOS_TRY(half(h));
}

Status both_even(int a, int b) {
  INFOS_TRY(half(a));
  INFOS_TRY(half(b));
  return {};
}

TEST(Result, Try_PassesValuesAndStopsAtTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_TRUE(both_even(2, 4).ok());
  EXPECT_EQ(both_even(2, 3).error().code, ErrorCode::invalid_argument);
}

TEST(Result, MovesOnlyTypesThrough) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeathTest, ValueOfAnError_Aborts) {
  EXPECT_DEATH((void)half(1).value(), "check failed");
}

}  // namespace
}  // namespace infos
