// SPDX-License-Identifier: Apache-2.0
// Goal: a real trained model gives the text that its own C program gives, token for token, on every
// backend here. Method: stories260K.bin through a reader of its own, greedy, with an empty prompt
// and with the text's first words.
#include <fstream>
#include <sstream>

#include "tests/engine/engine_driver.h"
#include "tests/engine/memory_checkpoint.h"
#include "tests/support/data.h"

namespace infos::test {
namespace {

class StoriesText : public testing::TestWithParam<const char*> {};

TEST_P(StoriesText, GreedyFromEmptyPromptAndFirstWords_EqualsReferenceText) {
  INFOS_NEEDS_DATA("models/stories260K.bin");
  const auto checkpoint = read_llama2c(data_path("models/stories260K.bin"));
  ASSERT_NE(checkpoint, nullptr);
  const Llama2cTokenizer tokenizer(data_path("models/tok512.bin"), checkpoint->config().vocab);
  std::stringstream file;
  file << std::ifstream(data_path("models/stories260K.reference.txt")).rdbuf();
  const std::string want = file.str().substr(0, file.str().find_last_not_of('\n') + 1);
  ASSERT_GT(want.size(), 400U);
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto engine = Engine::open(*checkpoint, small_options(backend));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const auto prompt = tokenizer.encode(GetParam());
    std::string text = GetParam();
    TokenId previous = prompt.back();
    for (const TokenId token : generate(**engine, prompt, 210)) {
      text += tokenizer.piece(previous, token);
      previous = token;
    }
    ASSERT_GE(text.size(), want.size());
    EXPECT_EQ(text.substr(0, want.size()), want);
  }
}

TEST(Stories, GgufReader_GivesTheSameTokensAsTheOriginalFile) {
  INFOS_NEEDS_DATA("models/stories260K-f32.gguf");
  const auto original = read_llama2c(data_path("models/stories260K.bin"));
  auto gguf = open_checkpoint(data_path("models/stories260K-f32.gguf"));
  ASSERT_NE(original, nullptr);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  for (const std::string& backend : backends()) {
    SCOPED_TRACE(backend);
    auto a = Engine::open(*original, small_options(backend));
    auto b = Engine::open(**gguf, small_options(backend));
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(generate(**a, {1}, 60), generate(**b, {1}, 60));
  }
}
INSTANTIATE_TEST_SUITE_P(Prompts, StoriesText, testing::Values("", "Once upon a time"));

}  // namespace
}  // namespace infos::test
