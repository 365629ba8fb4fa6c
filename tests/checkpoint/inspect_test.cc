// SPDX-License-Identifier: Apache-2.0
// Goal: inspect tells the truth about a model. Method: figures of the trained 260 k model and a
// synthetic one, by hand.
#include "devices/engine/checkpoint/inspect.h"

#include <gtest/gtest.h>

#include "devices/engine/checkpoint/synth.h"
#include "tests/checkpoint/temp_directory.h"
#include "tests/support/data.h"

namespace infos {
namespace {

constexpr const char* kStories = "models/stories260K-f32.gguf";

TEST(Inspect, Stories_FiguresAddUp) {
  INFOS_NEEDS_DATA(kStories);
  const auto summary = inspect_model(test::data_path(kStories));
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  // 2 * 512 * 64 + 5 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 172) + 64; the untied output
  // is a copy.
  EXPECT_EQ(summary->parameters, 292800u);
  EXPECT_EQ(summary->weight_bytes.value, 292800u * 4);
  ASSERT_EQ(summary->by_dtype.size(), 1u);
  EXPECT_EQ(summary->by_dtype[0].tensors, 48u);
  EXPECT_EQ(summary->kv_bytes_per_token.value, 2u * 2 * 5 * 4 * 8);
  EXPECT_EQ(summary->tokenizer, "gguf llama (default)");
}

TEST(Inspect, QuantisedModel_GroupsByDtype_MostBytesFirst) {
  const test::TempDirectory directory;
  ASSERT_TRUE(synth_model({.shape = "tiny-mixtral",
                           .dtype = DType::q4_0,
                           .path = directory.file("m.gguf"),
                           .seed = 1,
                           .progress = {}})
                  .ok());
  const auto summary = inspect_model(directory.file("m.gguf"));
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  ASSERT_EQ(summary->by_dtype.size(), 2u);
  EXPECT_EQ(summary->by_dtype[0].dtype, DType::q4_0);
  EXPECT_EQ(summary->by_dtype[1].dtype, DType::f32);
  EXPECT_EQ(summary->by_dtype[0].bytes.value, summary->by_dtype[0].elements / 32 * 18);
  const std::string text = to_text(*summary);
  EXPECT_NE(text.find("2 of 4 experts"), std::string::npos) << text;
  EXPECT_NE(text.find("chat template   yes"), std::string::npos) << text;
  const std::string json = to_json(*summary);
  EXPECT_NE(json.find(R"("experts":4)"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("name":"blk.0.ffn_gate_exps.weight","dtype":"q4_0","dims":[4,512,256])"),
            std::string::npos)
      << json;
}

}  // namespace
}  // namespace infos
