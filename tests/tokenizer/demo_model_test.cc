// SPDX-License-Identifier: Apache-2.0
// Goal: the shipped demo model's tokenizer and chat template mean here what they meant in training.
// Method: token ids pinned from the training script's own encoder (configs/demo/bpe.py), and the
// prompt that it trains on, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/gateway/chat_template.h"
#include "daemon/gateway/tokenizer.h"

namespace infos {
namespace {

using testing::ElementsAre;

class DemoModel : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_checkpoint(INFOS_SOURCE_DIR "/configs/demo/infos-demo.gguf");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    checkpoint_ = std::move(opened).value();
    auto made = make_tokenizer(checkpoint_->tokenizer());
    ASSERT_TRUE(made.ok()) << made.error().message;
    tokenizer_ = std::move(made).value();
  }
  std::vector<TokenId> encode(std::string_view text) const {
    return tokenizer_->encode(text, Tokenizer::Specials::parse, Tokenizer::AddBos::if_model_does);
  }
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(DemoModel, EncodesAsItsTrainingDid) {
  EXPECT_THAT(encode("What is infos?"), ElementsAre(401, 283, 326, 63));
  EXPECT_THAT(encode("<|im_start|>user\nHello!<|im_end|>\n"),
              ElementsAre(766, 279, 10, 72, 363, 111, 33, 767, 10));
  EXPECT_THAT(encode("  7+5 = 12\n\nIt's a KV cache.  "),
              ElementsAre(32, 32, 55, 43, 53, 32, 61, 32, 49, 50, 10, 10, 638, 634, 256, 488, 605,
                          46, 32, 32));
  EXPECT_EQ(tokenizer_->vocabulary(), 768U);
  EXPECT_EQ(tokenizer_->eos(), 767);
  EXPECT_TRUE(tokenizer_->is_control(766));
}

TEST_F(DemoModel, ChatTemplate_WritesTheTrainedPrompt) {
  const auto parsed = ChatTemplate::parse(checkpoint_->tokenizer().chat_template);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ChatTemplate::Input input;
  input.messages = {{"system", "Be brief.", ""}, {"user", "What is infos?", ""}};
  EXPECT_EQ(parsed.value()->render(input).value(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is "
            "infos?<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace infos
