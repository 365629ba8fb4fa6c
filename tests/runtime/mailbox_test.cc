// SPDX-License-Identifier: Apache-2.0
// Goal: nothing is lost, repeated or reordered between the threads; a full box holds its writer, a
// closed one frees it. Method: two threads and small capacities.
#include "daemon/runtime/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

namespace infos {
namespace {

TEST(Mailbox, SmallBox_CarriesEverythingInOrder) {
  Mailbox<int> box(3);
  constexpr int kCount = 5000;
  std::thread writer([&] {
    for (int i = 0; i < kCount; ++i) box.push(i);
    box.close();
  });
  std::vector<int> got;
  while (static_cast<int>(got.size()) < kCount) {
    box.wait_for(seconds(10));
    box.drain(got);
  }
  writer.join();
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[i], i);
}

TEST(Mailbox, ClosedBox_KeepsWhatItHasAndFreesItsWriter) {
  Mailbox<int> box(1);
  box.push(1);
  std::thread writer([&] { box.push(2); });  // waits, or finds the box closed
  box.close();
  writer.join();
  std::vector<int> got;
  box.drain(got);
  EXPECT_EQ(got, std::vector<int>{1});
  EXPECT_TRUE(box.closed());
  box.wait_for(seconds(3600));  // does not wait
}

TEST(Mailbox, APoke_EndsOneWait) {
  Mailbox<int> box(1);
  std::thread poker([&] { box.poke(); });
  box.wait_for(seconds(3600));  // ends, whichever came first
  poker.join();
  std::vector<int> got;
  box.drain(got);
  EXPECT_TRUE(got.empty());
  EXPECT_FALSE(box.closed());
}

}  // namespace
}  // namespace infos
