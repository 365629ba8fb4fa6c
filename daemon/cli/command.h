// SPDX-License-Identifier: Apache-2.0
// The commands of `infos`: one table from which parsing, --help and shell completion all follow. A
// command lives in its own file and adds one line to commands.cc. Exit codes: 0 done, 1 it failed,
// 2 asked wrongly.
#pragma once

#include <boost/program_options.hpp>

#include <optional>
#include <string>
#include <vector>

#include "topology/base/result.h"

namespace infos::cli {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

/// What was given to one command: options by name, and the words that are none.
struct Invocation {
  boost::program_options::variables_map options;
  std::vector<std::string> words;

  bool has(const char* name) const { return options.count(name) > 0; }
  /// The option's text, or its default, or "".
  std::string text(const char* name) const {
    return has(name) ? options[name].as<std::string>() : std::string();
  }
};

/// Adds options; nothing else may know them.
using Describe = void (*)(boost::program_options::options_description_easy_init add);

struct Command {
  enum class Listed { yes, no };
  const char* name;                  ///< one word, or two: "model synth"
  const char* summary;               ///< one line, no full stop
  const char* usage;                 ///< "[MODEL] [MESSAGE]"; options are added
  const char* more;                  ///< examples and what else a reader needs; may be ""
  std::size_t words_min, words_max;  ///< how many words it takes
  std::vector<std::string>
      choices;  ///< of its first word, for completion; empty: files or free text
  Describe describe;
  int (*run)(const Invocation& given);
  Listed listed = Listed::yes;
};

const std::vector<Command>& commands();
/// All options of a command, --help included.
boost::program_options::options_description options_of(const Command& command);
/// What --help prints.
std::string help_of(const Command& command);
std::string help_of_all(const std::string& prefix = "");

/// Says on stderr "infos: what"; returns `code`.
int complain(int code, const std::string& what);
int complain(int code, const Error& error);

/// A wrong option value: "--name 'value': want what", for exit code 2.
Error bad_option(const char* name, const std::string& value, const std::string& want);
/// Whole number in [low, high] / number in [low, high]. Requires: the option is given or has a
/// default.
Result<std::uint64_t> count_option(const Invocation& given, const char* name, std::uint64_t low,
                                   std::uint64_t high);
Result<double> real_option(const Invocation& given, const char* name, double low, double high);

/// `-o table|json`. Errors: invalid_argument.
enum class Output { table, json };
void describe_output(boost::program_options::options_description_easy_init& add);
Result<Output> output_option(const Invocation& given);

/// Yields the value, or complains and returns kUsage from the enclosing run function.
#define INFOS_CLI_TRY(expression)                                                    \
  ({                                                                                 \
    auto infos_cli_result = (expression);                                            \
    if (!infos_cli_result.ok())                                                      \
      return ::infos::cli::complain(::infos::cli::kUsage, infos_cli_result.error()); \
    std::move(infos_cli_result).value();                                             \
  })

}  // namespace infos::cli
