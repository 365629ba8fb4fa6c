// SPDX-License-Identifier: Apache-2.0
// What engine tests do again and again: open an engine on a checkpoint, lay sequences out in
// blocks, decode greedily.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "devices/engine/engine.h"
#include "devices/host/plugin.h"

namespace infos::test {

/// The backends of this build: the reference, and the CPU plugin when it was built.
inline std::vector<std::string> backends() {
  std::vector<std::string> names = {"reference"};
  if (find_plugin("cpu").ok()) names.push_back("cpu");
  return names;
}

inline EngineOptions small_options(const std::string& backend) {
  EngineOptions options;
  options.backend = backend;
  options.threads = 2;
  options.block_tokens = 4;
  options.max_step_tokens = 64;
  options.max_sequences = 8;
  return options;
}

/// `count` blocks from `first`, in an order that is not the natural one.
inline std::vector<BlockId> scattered_blocks(std::uint32_t first, std::uint32_t count) {
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < count; ++i)
    blocks.push_back({first + (i % 2 == 0 ? count - 1 - i / 2 : i / 2)});
  return blocks;
}

/// Greedy: `steps` tokens after `prompt`, one sequence alone.
inline std::vector<TokenId> generate(Engine& engine, const std::vector<TokenId>& prompt,
                                     std::size_t steps) {
  const RequestId request{1};
  SamplingParams greedy;
  greedy.temperature = 0;
  engine.open_sequence(request, prompt, static_cast<std::uint32_t>(prompt.size()), greedy);
  const auto tokens_all = static_cast<std::uint32_t>(prompt.size() + steps);
  const auto blocks = scattered_blocks(0, tokens_all / engine.block_tokens() + 1);
  std::vector<TokenId> out, rows = prompt;
  std::uint32_t start = 0;
  while (out.size() < steps) {
    const EngineSequence sequence{request, rows, start,
                                  blocks,  true, static_cast<std::uint32_t>(out.size())};
    const auto sampled = engine.step({&sequence, 1});
    if (!sampled.ok()) {
      ADD_FAILURE() << sampled.error().message;
      return out;
    }
    start += static_cast<std::uint32_t>(rows.size());
    rows = {sampled->front().token};
    out.push_back(rows[0]);
  }
  engine.close_sequence(request);
  return out;
}

}  // namespace infos::test
