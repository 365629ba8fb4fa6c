// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace infos::cli {

namespace po = boost::program_options;

po::options_description options_of(const Command& command) {
  po::options_description options("options", 100);
  if (command.describe) command.describe(options.add_options());
  options.add_options()("help,h", "print this");
  return options;
}

std::string help_of(const Command& command) {
  std::ostringstream out;
  out << "infos " << command.name << ": " << command.summary << "\n\nusage: infos " << command.name
      << (*command.usage ? " " : "") << command.usage << " [options]\n\n"
      << options_of(command);
  if (*command.more) out << "\n" << command.more << "\n";
  return out.str();
}

std::string help_of_all(const std::string& prefix) {
  std::string out =
      "infos: the inference operating system, from the command line\n\nusage: infos COMMAND "
      "[options]\n\n";
  const auto listed = [&](const Command& command) {
    return command.listed == Command::Listed::yes && std::string(command.name).starts_with(prefix);
  };
  std::size_t width = 0;
  for (const Command& command : commands())
    if (listed(command)) width = std::max(width, std::string(command.name).size());
  for (const Command& command : commands())
    if (listed(command)) out += fmt::format("  {:<{}}  {}\n", command.name, width, command.summary);
  return out +
         "\n`infos COMMAND --help` says more. Exit codes: 0 done, 1 it failed, 2 asked wrongly.\n";
}

int complain(int code, const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "infos: %s\n", what.c_str());
  return code;
}

int complain(int code, const Error& error) { return complain(code, error.message); }

Error bad_option(const char* name, const std::string& value, const std::string& want) {
  return {ErrorCode::invalid_argument,
          fmt::format("--{} '{}': want {}", name, value.substr(0, 200), want)};
}

Result<std::uint64_t> count_option(const Invocation& given, const char* name, std::uint64_t low,
                                   std::uint64_t high) {
  const std::string text = given.text(name);
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    return bad_option(name, text, fmt::format("a whole number from {} to {}", low, high));
  return value;
}

Result<double> real_option(const Invocation& given, const char* name, double low, double high) {
  const std::string text = given.text(name);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      value < low || value > high)
    return bad_option(name, text, fmt::format("a number from {} to {}", low, high));
  return value;
}

void describe_output(po::options_description_easy_init& add) {
  add("output,o", po::value<std::string>()->default_value("table")->value_name("FORMAT"),
      "table or json");
}

Result<Output> output_option(const Invocation& given) {
  const std::string word = given.text("output");
  if (word == "table") return Output::table;
  if (word == "json") return Output::json;
  return bad_option("output", word, "table or json");
}

}  // namespace infos::cli
