// SPDX-License-Identifier: Apache-2.0
// infos: finds the command, reads its options, runs it.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string_view>

#include "daemon/cli/commands.h"

namespace infos::cli {
namespace {

namespace po = boost::program_options;

/// The command that `words` begin with, and how many words its name has; or null.
/// A command of two words goes before that of its first word alone.
const Command* find_command(const std::vector<std::string>& words, std::size_t& taken) {
  const Command* found = nullptr;
  taken = 1;
  for (const Command& command : commands()) {
    const std::string name = command.name;
    if (words.size() >= 2 && name == words[0] + " " + words[1]) {
      taken = 2;
      return &command;
    }
    if (!words.empty() && name == words[0]) found = &command;
  }
  return found;
}

/// "want synth or inspect" for a first word that needs a second.
std::string second_words(const std::string& first) {
  std::string out;
  for (const Command& command : commands()) {
    const std::string name = command.name;
    if (name.starts_with(first + " "))
      out += (out.empty() ? "" : " or ") + name.substr(first.size() + 1);
  }
  return out;
}

bool asks_help(const std::string& word) { return word == "--help" || word == "-h"; }

int unknown_command(const std::vector<std::string>& words) {
  const std::string second = second_words(words[0]);
  if (!second.empty() && words.size() > 1 && asks_help(words[1]))
    return std::fputs(help_of_all(words[0] + " ").c_str(), stdout), kDone;
  if (!second.empty() && words.size() == 1)
    return complain(kUsage, fmt::format("{}: want {} after it", words[0], second));
  if (!second.empty())
    return complain(kUsage,
                    fmt::format("{} '{}': want {}", words[0], words[1].substr(0, 64), second));
  return complain(kUsage, fmt::format("unknown command '{}'; `infos --help` lists them",
                                      words[0].substr(0, 64)));
}

Result<Invocation> read_options(const Command& command, const std::vector<std::string>& rest) {
  Invocation given;
  try {
    po::options_description options = options_of(command);
    po::options_description all;
    all.add(options).add_options()("words", po::value<std::vector<std::string>>());
    po::positional_options_description positional;
    positional.add("words", -1);
    using Style = po::command_line_style::style_t;
    const int style =
        Style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing);
    po::store(po::command_line_parser(rest).options(all).positional(positional).style(style).run(),
              given.options);
    po::notify(given.options);
  } catch (const std::exception& error) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("{}: {}; see `infos {} --help`", command.name, error.what(), command.name)};
  }
  if (given.options.count("words"))
    given.words = given.options["words"].as<std::vector<std::string>>();
  return given;
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) return std::fputs(help_of_all().c_str(), stderr), kUsage;
  if (words[0] == "help" && words.size() > 1) {  // as in git: `help up` is `up --help`
    std::vector<std::string> turned(words.begin() + 1, words.end());
    turned.emplace_back("--help");
    return run(turned);
  }
  if (asks_help(words[0]) || words[0] == "help")
    return std::fputs(help_of_all().c_str(), stdout), kDone;
  std::size_t taken = 0;
  const std::vector<std::string> asked =
      words[0] == "--version" ? std::vector<std::string>{"version"} : words;
  const Command* command = find_command(asked, taken);
  if (!command) return unknown_command(asked);
  const std::vector<std::string> rest(asked.begin() + static_cast<std::ptrdiff_t>(taken),
                                      asked.end());
  const Result<Invocation> given = read_options(*command, rest);
  if (!given.ok()) return complain(kUsage, given.error());
  if (given->has("help")) return std::fputs(help_of(*command).c_str(), stdout), kDone;
  if (command->words_max == 0 && !given->words.empty())
    return complain(kUsage,
                    fmt::format("{}: takes options only, not '{}'; see `infos {} --help`",
                                command->name, given->words[0].substr(0, 64), command->name));
  if (given->words.size() < command->words_min || given->words.size() > command->words_max)
    return complain(kUsage, fmt::format("{}: got {} word{}, want: infos {} {}", command->name,
                                        given->words.size(), given->words.size() == 1 ? "" : "s",
                                        command->name, command->usage));
  return command->run(*given);
}

}  // namespace
}  // namespace infos::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const int code = infos::cli::run(std::vector<std::string>(argv + 1, argv + argc));
  // Output that did not arrive (a full disk, a closed pipe) is a failure.
  return std::fflush(stdout) != 0 && code == infos::cli::kDone ? infos::cli::kFailed : code;
}
