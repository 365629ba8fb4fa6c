// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "devices/engine/reference/backend.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/host/conformance/checks.h"
#include "devices/host/conformance/tiny_model.h"

namespace infos::conformance {

namespace {

const Plugin& reference_plugin() {
  static const auto plugin = open_query(&reference::plugin_query, "(built in)");
  return **plugin;
}

/// Root of the mean squared difference, as a fraction of the wanted values' own.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return INFINITY;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += d * d;
    size += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return std::sqrt(error / size);
}

/// What a backend may lose: f32 sums in another order; 16-bit products; activations rounded to 8
/// bits beside quantised weights. A wrong index or op is off by a tenth and more.
double tolerance(std::uint32_t dtype) {
  if (dtype == INFOS_F32) return 1e-4;
  return dtype == INFOS_F16 || dtype == INFOS_BF16 ? 1e-2 : 3e-2;
}

/// Prefill in chunks, decode steps and a second sequence, as one list of batches.
std::vector<std::vector<Rows>> script(std::uint32_t vocab) {
  const auto a = random_tokens(20, vocab, 1), b = random_tokens(11, vocab, 2);
  const auto part = [](const std::vector<std::int32_t>& all, std::size_t from, std::size_t to) {
    return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                     all.begin() + static_cast<std::ptrdiff_t>(to));
  };
  return {{{0, 0, part(a, 0, 9)}},
          {{0, 9, part(a, 9, 17)}, {1, 0, part(b, 0, 5)}},
          {{1, 5, part(b, 5, 6)}, {0, 17, part(a, 17, 18)}},
          {{0, 18, part(a, 18, 20)}, {1, 6, part(b, 6, 11)}}};
}

Verdict compare(const Plugin& plugin, const std::string& options, const std::string& name,
                std::uint32_t dtype) {
  const ModelConfig config = tiny_config(name, dtype);
  TinyModel mine = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, dtype));
  TinyModel oracle = INFOS_CHECK_OK(TinyModel::load(reference_plugin(), "", config, dtype));
  for (const auto& rows : script(config.vocab)) {
    const auto got = INFOS_CHECK_OK(mine.run(rows));
    const auto want = INFOS_CHECK_OK(oracle.run(rows));
    const double error = relative_error(got, want);
    if (!(error <= tolerance(dtype)))
      return fail(fmt::format("{} {}: logits differ by {:.2e} of their size: at most {:.0e}", name,
                              reference::dtype_name(dtype), error, tolerance(dtype)));
  }
  return pass();
}

Verdict families(const Plugin& plugin, const std::string& options) {
  const infos_device_info info = INFOS_CHECK_OK(Device::describe(plugin, 0));
  for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "mixtral"}) {
    if (std::string(name) == "mixtral" && ((info.op_mask >> INFOS_OP_MOE_FFN) & 1) == 0) continue;
    if (Verdict v = compare(plugin, options, name, INFOS_F32);
        v.outcome != PluginCheckResult::Outcome::passed)
      return v;
  }
  return pass();
}

Verdict dtypes(const Plugin& plugin, const std::string& options) {
  const infos_device_info info = INFOS_CHECK_OK(Device::describe(plugin, 0));
  for (std::uint32_t dtype = 1; dtype < 64; ++dtype) {
    if (((info.dtype_mask >> dtype) & 1) == 0 || reference::block_of(dtype).elements == 0) continue;
    if (Verdict v = compare(plugin, options, "llama", dtype);
        v.outcome != PluginCheckResult::Outcome::passed)
      return v;
  }
  return pass();
}

/// Each row alone, in chunks and beside others must give the same bits.
Verdict invariance(const Plugin& plugin, const std::string& options) {
  const infos_device_info info = INFOS_CHECK_OK(Device::describe(plugin, 0));
  if (info.batch_invariant == 0) return skip("the device does not claim it");
  for (std::uint32_t dtype = 1; dtype < 64; ++dtype) {
    if (((info.dtype_mask >> dtype) & 1) == 0 || reference::block_of(dtype).elements == 0) continue;
    const ModelConfig config = tiny_config("llama", dtype);
    TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, dtype));
    const auto tokens = random_tokens(23, config.vocab, 7);
    const auto whole = INFOS_CHECK_OK(m.run({{0, 0, tokens}}));
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      std::vector<Rows> rows;
      for (std::uint32_t other = 0; other < i % 3;
           ++other)  // company of differing size, before the row
        rows.push_back({2 + other, 0, random_tokens(1 + (i * 5 + other) % 7, config.vocab, i)});
      rows.push_back({1, i, {tokens[i]}});
      const auto logits = INFOS_CHECK_OK(m.run(rows));
      const std::vector<float> got(logits.end() - config.vocab, logits.end());
      const std::vector<float> want(whole.begin() + i * config.vocab,
                                    whole.begin() + (i + 1) * config.vocab);
      if (got != want)
        return fail(fmt::format(
            "{}: row {} alone or in other company differs by {:.2e} from the whole prompt's",
            reference::dtype_name(dtype), i, relative_error(got, want)));
    }
  }
  return pass();
}

Verdict hostile_batches(const Plugin& plugin, const std::string& options) {
  const ModelConfig config = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
  const std::vector<Rows> rows = {{0, 0, random_tokens(6, config.vocab, 3)},
                                  {1, 0, random_tokens(3, config.vocab, 4)}};
  const auto want = INFOS_CHECK_OK(m.run(rows));
  const auto vocab = static_cast<std::int32_t>(config.vocab);
  const auto context = static_cast<std::int32_t>(kBucket.max_context);
  const struct {
    const char* what;
    std::function<void(Batch&, infos_batch&)> spoil;
  } cases[] = {
      {"no tokens", [](Batch&, infos_batch& b) { b.n_tokens = 0; }},
      {"more tokens than the bucket",
       [](Batch&, infos_batch& b) { b.n_tokens = kBucket.max_tokens + 1; }},
      {"no sequences", [](Batch&, infos_batch& b) { b.n_sequences = 0; }},
      {"more sequences than the bucket",
       [](Batch&, infos_batch& b) { b.n_sequences = kBucket.max_sequences + 1; }},
      {"null tokens", [](Batch&, infos_batch& b) { b.tokens = nullptr; }},
      {"null positions", [](Batch&, infos_batch& b) { b.positions = nullptr; }},
      {"null row_begin", [](Batch&, infos_batch& b) { b.row_begin = nullptr; }},
      {"null block_table", [](Batch&, infos_batch& b) { b.block_table = nullptr; }},
      {"null table_begin", [](Batch&, infos_batch& b) { b.table_begin = nullptr; }},
      {"null logits", [](Batch&, infos_batch& b) { b.logits = nullptr; }},
      {"null logit_rows", [](Batch&, infos_batch& b) { b.logit_rows = nullptr; }},
      {"a token below 0", [](Batch& a, infos_batch&) { a.tokens[4] = -1; }},
      {"a token beyond the vocabulary", [vocab](Batch& a, infos_batch&) { a.tokens[4] = vocab; }},
      {"a position below 0", [](Batch& a, infos_batch&) { a.positions[0] = -1; }},
      {"a position beyond the context",
       [context](Batch& a, infos_batch&) { a.positions.back() = context; }},
      {"positions that jump", [](Batch& a, infos_batch&) { a.positions[2] = 5; }},
      {"a block beyond the pool",
       [](Batch& a, infos_batch&) { a.table[1] = kBlocksEach * kSequences; }},
      {"too few blocks",
       [](Batch& a, infos_batch&) {
         a.table_begin[1] = 1;
         a.table_begin[2] = 2;
       }},
      {"tables that go back", [](Batch& a, infos_batch&) { a.table_begin[1] = 9; }},
      {"rows that go back", [](Batch& a, infos_batch&) { a.row_begin[1] = 20; }},
      {"an empty sequence", [](Batch& a, infos_batch&) { a.row_begin[1] = 0; }},
      {"rows not covered", [](Batch& a, infos_batch&) { a.row_begin[2] = 8; }},
      {"a logit row beyond the tokens", [](Batch& a, infos_batch&) { a.logit_rows[0] = 9; }},
  };
  for (const auto& c : cases) {
    Batch batch = make_batch(rows, config.vocab);
    infos_batch view = batch.view();
    c.spoil(batch, view);
    const Status status = m.program.execute(m.kv, view);
    if (status.ok()) return fail(fmt::format("accepts a batch with {}", c.what));
    if (status.error().code != ErrorCode::invalid_argument)
      return fail(fmt::format("a batch with {} gives {}: want INFOS_INVALID", c.what,
                              to_string(status.error().code)));
  }
  if (INFOS_CHECK_OK(m.run(rows)) != want)
    return fail("a good batch gives other logits after bad ones");
  return pass();
}

Verdict foreign_pool(const Plugin& plugin, const std::string& options) {
  const ModelConfig config = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
  infos_kv_config other = kv_config(config);
  other.kv_heads += 1;
  const KvPool pool = INFOS_CHECK_OK(m.device.create_kv(other));
  Batch batch = make_batch({{0, 0, {1, 2}}}, config.vocab);
  if (m.program.execute(pool, batch.view()).ok())
    return fail("executes on a KV pool of another shape");
  return pass();
}

Verdict deadlines(const Plugin& plugin, const std::string& options) {
  const ModelConfig config = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
  Batch batch = make_batch({{0, 0, {1, 2}}}, config.vocab);
  infos_batch view = batch.view();
  view.deadline_ns = 1;  // long ago
  const Status late = m.program.execute(m.kv, view);
  if (late.ok() || late.error().code != ErrorCode::deadline_exceeded)
    return fail("a deadline that has passed is not INFOS_DEADLINE");
  m.device.cancel();  // nothing runs: must not harm what comes
  INFOS_CHECK_OK(m.run({{0, 0, {1, 2}}}));
  return pass();
}

Verdict logit_rows(const Plugin& plugin, const std::string& options) {
  const ModelConfig config = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
  const auto tokens = random_tokens(8, config.vocab, 5);
  const auto all = INFOS_CHECK_OK(m.run({{0, 0, tokens}}));
  Batch batch = make_batch({{0, 0, tokens}}, config.vocab);
  batch.logit_rows = {6, 2, 2};  // any order, repeated
  batch.logits.assign(3 * config.vocab, 0.0F);
  const Status status = m.program.execute(m.kv, batch.view());
  if (!status.ok()) return fail(status.error().message);
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t v = 0; v < config.vocab; ++v)
      if (std::fabs(batch.logits[i * config.vocab + v] -
                    all[batch.logit_rows[i] * config.vocab + v]) > 1e-3F)
        return fail(fmt::format("logit row {} is not token row {}", i, batch.logit_rows[i]));
  batch.logit_rows.clear();
  if (const Status none = m.program.execute(m.kv, batch.view()); !none.ok())
    return fail("a batch that wants no logits: " + none.error().message);
  return pass();
}

}  // namespace

std::vector<Check> execute_checks() {
  return {{"logits of every family are the reference's", families},
          {"logits of every weight dtype are the reference's", dtypes},
          {"a row's logits do not depend on its batch", invariance},
          {"logit rows come in the order asked for", logit_rows},
          {"hostile batches are refused and leave no trace", hostile_batches},
          {"a KV pool of another shape is refused", foreign_pool},
          {"deadlines are kept, an idle cancel does no harm", deadlines}};
}

}  // namespace infos::conformance
