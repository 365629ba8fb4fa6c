// SPDX-License-Identifier: Apache-2.0
// Goal: whatever pieces a stream arrives in, the same frames come out; a lying header is refused
// before it costs memory. Method: all cuts of a small stream, and headers written by hand.
#include "daemon/runtime/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/control/codec.h"

namespace infos {
namespace {

std::vector<std::string> all_frames(FrameReader& reader) {
  std::vector<std::string> frames;
  while (true) {
    const auto frame = reader.next();
    if (!frame.ok() || !frame->has_value()) return frames;
    frames.emplace_back(**frame);
  }
}

TEST(Frame, AnyTwoCuts_GiveTheSameFrames) {
  std::string stream;
  const std::vector<std::string> payloads{"one", "", std::string("\0two", 4), "three"};
  for (const std::string& payload : payloads) append_frame(stream, Generation{7}, payload);
  for (std::size_t a = 0; a <= stream.size(); ++a) {
    for (std::size_t b = a; b <= stream.size(); ++b) {
      FrameReader reader(Generation{7});
      std::vector<std::string> got;
      for (const auto& [begin, end] : {std::pair{std::size_t{0}, a}, {a, b}, {b, stream.size()}}) {
        reader.append(std::string_view(stream).substr(begin, end - begin));
        for (std::string& frame : all_frames(reader)) got.push_back(std::move(frame));
      }
      ASSERT_EQ(got, payloads) << "cut at " << a << " and " << b;
    }
  }
}

TEST(Frame, LengthAboveTheBound_IsRefusedWithoutItsBytes) {
  FrameReader reader(Generation{1});
  reader.append(std::string("\x01\x00\x00\x04\x01\x00\x00\x00", 8));  // 64 MiB + 1
  const auto frame = reader.next();
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, ErrorCode::corrupt);
  EXPECT_EQ(frame.error().message, "frame of 67108865 bytes: at most 67108864 are allowed");
}

TEST(Frame, ForeignGeneration_IsRefused) {
  std::string stream;
  append_frame(stream, Generation{2}, "late");
  FrameReader reader(Generation{3});
  reader.append(stream);
  const auto frame = reader.next();
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().message, "frame of process generation 2: want 3");
}

TEST(Frame, LongStream_KeepsItsOrder) {
  FrameReader reader(Generation{1});
  std::uint64_t next = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string stream;
    append_frame(stream, Generation{1}, std::to_string(2 * i));
    append_frame(stream, Generation{1}, std::to_string(2 * i + 1));
    const std::size_t cut = stream.size() - 3;
    reader.append(stream.substr(0, cut));
    for (const std::string& frame : all_frames(reader)) ASSERT_EQ(frame, std::to_string(next++));
    reader.append(stream.substr(cut));
    for (const std::string& frame : all_frames(reader)) ASSERT_EQ(frame, std::to_string(next++));
  }
  EXPECT_EQ(next, 4000u);
}

}  // namespace
}  // namespace infos
