// SPDX-License-Identifier: Apache-2.0
// Goal: what one mapping writes the other reads; a page that lies does no harm. Method: two
// mappings of one descriptor.
#include "daemon/runtime/status_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

namespace infos {
namespace {

StatusPage second_mapping(const StatusPage& page) {
  return StatusPage::open(UniqueFd(::fcntl(page.fd(), F_DUPFD_CLOEXEC, 0))).value();
}

TEST(StatusPage, OneWrites_TheOtherReads) {
  StatusPage ours = StatusPage::create().value();
  StatusPage theirs = second_mapping(ours);
  theirs->steps.store(42);
  theirs.set_phase(WorkerPhase::serving);
  theirs.set_failure("disk on fire");
  EXPECT_EQ(ours->steps.load(), 42u);
  EXPECT_EQ(ours.phase(), WorkerPhase::serving);
  EXPECT_EQ(ours.failure(), "disk on fire");
}

TEST(StatusPage, LongFailure_IsCut) {
  StatusPage page = StatusPage::create().value();
  page.set_failure(std::string(5000, 'x'));
  EXPECT_EQ(page.failure(), std::string(1024, 'x'));
}

TEST(StatusPage, LyingFields_AreBounded) {
  StatusPage page = StatusPage::create().value();
  page->failure_bytes.store(UINT64_MAX);
  EXPECT_EQ(page.failure().size(), 1024u);
  page->phase.store(99);
  EXPECT_EQ(page.phase(), WorkerPhase::failed);
}

TEST(StatusPage, Sealed_CannotBeShortened) {
  StatusPage page = StatusPage::create().value();
  EXPECT_NE(::ftruncate(page.fd(), 0), 0);
}

TEST(StatusPage, ForeignMemory_IsRefused) {
  UniqueFd small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_EQ(StatusPage::open(std::move(small)).error().code, ErrorCode::corrupt);
  UniqueFd zeros(::memfd_create("zeros", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(zeros.get(), 65536), 0);
  EXPECT_EQ(StatusPage::open(std::move(zeros)).error().code, ErrorCode::corrupt);
}

}  // namespace
}  // namespace infos
