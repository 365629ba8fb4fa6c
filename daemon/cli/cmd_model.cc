// SPDX-License-Identifier: Apache-2.0
// `infos model inspect` and `infos model synth`: what a model's files hold, and models of real
// shape without training.
#include <fmt/format.h>

#include <cstdio>

#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "devices/engine/checkpoint/inspect.h"
#include "devices/engine/checkpoint/shapes.h"
#include "devices/engine/checkpoint/synth.h"
#include "topology/base/units.h"
#include "topology/model/cost.h"

namespace infos::cli {
namespace {

/// What serving it takes, in the lines' form of to_text.
std::string cost_text(const ModelSummary& summary) {
  const ModelConfig& c = summary.config;
  const Bytes kv = kv_bytes_per_token(c, 2) * c.max_context;
  return fmt::format(
      "{:<16}{} of weights and {} of KV for one full context in 16 bits\n{:<16}{:.3g} GFLOP per "
      "token, {:.3g} at "
      "full "
      "context\n",
      "memory", to_human(summary.weight_bytes), to_human(kv), "arithmetic",
      sequence_flops(c, {1, 0, 1}) / 1e9, sequence_flops(c, {1, c.max_context - 1ULL, 1}) / 1e9);
}

std::string tensors_text(const ModelSummary& summary) {
  std::vector<std::vector<std::string>> rows;
  for (const ModelSummary::Tensor& tensor : summary.tensors) {
    std::string dims;
    for (const std::int64_t dim : tensor.dims)
      dims += (dims.empty() ? "" : " x ") + std::to_string(dim);
    rows.push_back({tensor.name, to_string(tensor.dtype), dims, to_human(tensor.bytes)});
  }
  return print_table({"TENSOR", "TYPE", "DIMS", "SIZE"}, rows);
}

/// Errors: invalid_argument, naming the words allowed.
Result<DType> dtype_option(const Invocation& given) {
  const std::string word = given.text("dtype");
  std::string words;
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    if (word == to_string(dtype)) return dtype;
    words += (words.empty() ? "" : ", ") + std::string(to_string(dtype));
  }
  return bad_option("dtype", word, "one of " + words);
}

std::string shapes_text() {
  std::string out;
  for (const std::string& name : shape_names()) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

void describe_model_inspect(boost::program_options::options_description_easy_init add) {
  add("tensors", "list every tensor, in the table too");
  describe_output(add);
}

int run_model_inspect(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const auto summary = inspect_model(given.words.at(0));
  if (!summary.ok()) return complain(kFailed, summary.error());
  if (output == Output::json) return std::printf("%s\n", to_json(*summary).c_str()), kDone;
  std::fputs(safe_for_terminal(to_text(*summary) + cost_text(*summary)).c_str(), stdout);
  if (given.has("tensors"))
    std::fputs(safe_for_terminal("\n" + tensors_text(*summary)).c_str(), stdout);
  return kDone;
}

void describe_model_synth(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("shape", text("NAME"), "whose shape it has; `infos model synth --shapes` lists them");
  add("shapes", "list the shapes");
  add("dtype", text("TYPE")->default_value("f16"),
      "of the matrices: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k");
  add("output,o", text("FILE"), "the GGUF file to write; it is replaced as a whole");
  add("seed", text("N")->default_value("1"), "of the random weights");
}

int run_model_synth(const Invocation& given) {
  if (given.has("shapes")) {
    for (const std::string& name : shape_names()) std::printf("%s\n", name.c_str());
    return kDone;
  }
  SynthOptions options;
  options.dtype = INFOS_CLI_TRY(dtype_option(given));
  options.seed = INFOS_CLI_TRY(count_option(given, "seed", 0, UINT64_MAX));
  options.shape = given.text("shape");
  options.path = given.text("output");
  if (options.shape.empty())
    return complain(kUsage, "model synth: want --shape, one of " + shapes_text());
  if (options.path.empty()) return complain(kUsage, "model synth: want -o FILE");
  if (!named_shape(options.shape).ok())
    return complain(kUsage, bad_option("shape", options.shape, "one of " + shapes_text()));
  options.progress = [](Bytes done, Bytes total) {
    if (stderr_is_terminal())
      std::fprintf(stderr, "\r\033[K%s of %s", to_human(done).c_str(), to_human(total).c_str());
  };
  const Status status = synth_model(options);
  if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);
  if (!status.ok()) return complain(kFailed, status.error());
  std::printf("%s: %s in %s with random weights\n", options.path.c_str(), options.shape.c_str(),
              to_string(options.dtype));
  return kDone;
}

}  // namespace infos::cli
