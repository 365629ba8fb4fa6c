// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/batch_check.h"

#include <fmt/format.h>

namespace infos::cpu {
namespace {

template <typename... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::invalid_argument, fmt::format(text, std::forward<Args>(args)...)};
}

Status check_counts(const infos_batch& b, const BatchLimits& l) {
  if (b.n_tokens == 0 || b.n_tokens > l.max_tokens)
    return invalid("batch of {} tokens, allowed 1 to {}", b.n_tokens, l.max_tokens);
  if (b.n_sequences == 0 || b.n_sequences > l.max_sequences) {
    return invalid("batch of {} sequences, allowed 1 to {}", b.n_sequences, l.max_sequences);
  }
  if (b.n_logit_rows > b.n_tokens)
    return invalid("{} logit rows, allowed 0 to {}", b.n_logit_rows, b.n_tokens);
  if (!b.tokens || !b.positions || !b.row_begin || !b.table_begin)
    return invalid("batch: tokens, positions, row_begin or table_begin is null");
  if (b.n_logit_rows && (!b.logit_rows || !b.logits))
    return invalid("batch: logit_rows or logits is null");
  if (b.row_begin[0] != 0 || b.row_begin[b.n_sequences] != b.n_tokens) {
    return invalid("row_begin runs from {} to {}, expected 0 to {}", b.row_begin[0],
                   b.row_begin[b.n_sequences], b.n_tokens);
  }
  if (!b.block_table && b.table_begin[b.n_sequences] != 0)
    return invalid("batch: block_table is null");
  return {};
}

Status check_sequence(const infos_batch& b, const BatchLimits& l, std::uint32_t s) {
  const std::uint32_t begin = b.row_begin[s], end = b.row_begin[s + 1];
  if (begin > end || end > b.n_tokens)
    return invalid("sequence {}: rows [{}, {}) of {}", s, begin, end, b.n_tokens);
  if (b.table_begin[s] > b.table_begin[s + 1]) {
    return invalid("sequence {}: block table [{}, {})", s, b.table_begin[s], b.table_begin[s + 1]);
  }
  if (begin == end) return {};
  const std::int64_t first = b.positions[begin];
  if (first < 0) return invalid("sequence {}: position {}, allowed >= 0", s, first);
  for (std::uint32_t r = begin; r < end; ++r) {
    const std::int64_t position = b.positions[r];
    if (position != first + (r - begin))
      return invalid("row {}: position {}, expected {}", r, position, first + (r - begin));
    if (b.tokens[r] < 0 || static_cast<std::uint32_t>(b.tokens[r]) >= l.token_limit) {
      return invalid("row {}: token {}, allowed 0 to {}", r, b.tokens[r], l.token_limit - 1);
    }
  }
  const std::int64_t last = first + (end - begin) - 1;
  if (last >= l.max_context)
    return invalid("sequence {}: position {}, allowed up to {}", s, last, l.max_context - 1);
  const std::uint64_t blocks = static_cast<std::uint64_t>(last) / l.block_tokens + 1;
  const std::uint32_t table = b.table_begin[s + 1] - b.table_begin[s];
  if (table < blocks)
    return invalid("sequence {}: {} blocks in its table, its last row needs {}", s, table, blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint32_t block = b.block_table[b.table_begin[s] + i];
    if (block >= l.n_blocks)
      return invalid("sequence {}: block {} at {}, allowed 0 to {}", s, block, i, l.n_blocks - 1);
  }
  return {};
}

}  // namespace

Status check_batch(const infos_batch& batch, const BatchLimits& limits) {
  INFOS_TRY(check_counts(batch, limits));
  for (std::uint32_t s = 0; s < batch.n_sequences; ++s) INFOS_TRY(check_sequence(batch, limits, s));
  for (std::uint32_t i = 0; i < batch.n_logit_rows; ++i) {
    if (batch.logit_rows[i] >= batch.n_tokens) {
      return invalid("logit row {} is token row {}, allowed 0 to {}", i, batch.logit_rows[i],
                     batch.n_tokens - 1);
    }
  }
  return {};
}

}  // namespace infos::cpu
