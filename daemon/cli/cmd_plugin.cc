// SPDX-License-Identifier: Apache-2.0
// `infos plugin check`: the conformance suite for backends.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cstdio>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "devices/host/conformance/plugin_check.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

const char* word(PluginCheckResult::Outcome outcome) {
  switch (outcome) {
    case PluginCheckResult::Outcome::passed:
      return "passed";
    case PluginCheckResult::Outcome::failed:
      return "failed";
    case PluginCheckResult::Outcome::skipped:
      return "skipped";
  }
  return "unknown";
}

json::value report_json(const PluginReport& report) {
  json::array checks;
  for (const PluginCheckResult& check : report.checks)
    checks.push_back(
        {{"name", check.name}, {"outcome", word(check.outcome)}, {"detail", check.detail}});
  return {{"plugin", report.plugin}, {"ok", report.ok()}, {"checks", std::move(checks)}};
}

}  // namespace

void describe_plugin_check(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("only", text("TEXT"), "run the checks whose name holds this");
  add("device-options", text("OPTIONS"), "passed to the backend, as in isa=avx2");
  add("deadline", text("TIME")->default_value("60s"), "of each check");
  describe_output(add);
}

int run_plugin_check(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  PluginCheckOptions options;
  options.only = given.text("only");
  options.device_options = given.text("device-options");
  options.deadline = INFOS_CLI_TRY(parse_duration(given.text("deadline")));
  const PluginReport report = check_plugin(given.words.at(0), options);
  const std::string text =
      output == Output::json ? pretty(report_json(report)) : safe_for_terminal(report.text());
  std::fputs(text.c_str(), stdout);
  return report.ok() ? kDone : kFailed;
}

}  // namespace infos::cli
