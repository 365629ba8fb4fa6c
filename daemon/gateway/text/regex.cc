// SPDX-License-Identifier: Apache-2.0
#include "daemon/gateway/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

namespace infos::text {
namespace {

constexpr std::uint32_t kMatchSteps =
    20'000'000;  // of one search; patterns of real models need a few per character
constexpr std::size_t kPatternBytesMax = 16 << 10;

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

/// What a thread needs to search; made once per thread because making it costs more than a search.
struct Scratch {
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreeContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeStack> stack{
      pcre2_jit_stack_create(32 << 10, 4 << 20, nullptr)};
  Scratch() {
    INFOS_CHECK(data != nullptr);
    INFOS_CHECK(context != nullptr);
    pcre2_set_match_limit(context.get(), kMatchSteps);
    pcre2_set_heap_limit(context.get(), 256 << 10);  // KiB, used without just-in-time compilation
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

Scratch& scratch() {
  thread_local Scratch one;
  return one;
}

}  // namespace

struct Regex::Code {
  pcre2_code* compiled = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(compiled); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax)
    return Error{ErrorCode::unsupported, "the regular expression has " +
                                             std::to_string(pattern.size()) + " bytes, at most " +
                                             std::to_string(kPatternBytesMax) + " are supported"};
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto holder = std::make_shared<Code>();
  holder->compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (!holder->compiled) {
    std::array<unsigned char, 160> message{};
    pcre2_get_error_message(code, message.data(), message.size());
    return Error{ErrorCode::unsupported,
                 "regular expression '" + std::string(pattern.substr(0, 200)) + "', offset " +
                     std::to_string(offset) + ": " + reinterpret_cast<const char*>(message.data())};
  }
  // Without it (no memory may be executable here) searches are slower and otherwise the same.
  (void)pcre2_jit_compile(holder->compiled, PCRE2_JIT_COMPLETE);
  return Regex(std::move(holder));
}

Regex::Match Regex::find(std::string_view subject, std::size_t from) const {
  Scratch& mine = scratch();
  const int count =
      pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(),
                  from, PCRE2_NO_UTF_CHECK, mine.data.get(), mine.context.get());
  if (count == PCRE2_ERROR_NOMATCH) return {Outcome::absent, 0, 0};
  if (count < 0) return {Outcome::gave_up, 0, 0};
  const PCRE2_SIZE* pair = pcre2_get_ovector_pointer(mine.data.get());
  if (pair[1] < pair[0] || pair[0] < from)
    return {Outcome::gave_up, 0, 0};  // \K may move the start about
  return {Outcome::found, pair[0], pair[1]};
}

}  // namespace infos::text
