// SPDX-License-Identifier: Apache-2.0
// `infos token create|list|revoke`: asks the controller's infosd on this machine for what lets
// other machines join.
#include <fmt/format.h>
#include <time.h>

#include <cstdio>

#include <boost/json.hpp>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "daemon/runtime/peer/identity.h"
#include "topology/base/units.h"

namespace infos::cli {
namespace {

namespace json = boost::json;
namespace po = boost::program_options;

std::string date_of(const json::value& row, const char* member) {
  const json::value* value = row.is_object() ? row.as_object().if_contains(member) : nullptr;
  if (!value || !value->is_int64()) return "";
  const time_t seconds = value->as_int64();
  tm parts{};
  if (!::gmtime_r(&seconds, &parts)) return "";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string shown(const json::value& row, const char* member) {
  return safe_for_terminal(word_of(row, member));
}

}  // namespace

void describe_token_create(po::options_description_easy_init add) {
  add("roles", po::value<std::string>()->value_name("ROLES")->default_value("gateway,worker"),
      "what the node may do: gateway, worker, prefill, decode, between commas");
  add("ttl", po::value<std::string>()->value_name("TIME")->default_value("1h"),
      "how long the token is good for, 1s to 168h");
  describe_socket(add);
  describe_output(add);
}

int run_token_create(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  INFOS_CLI_TRY(parse_roles(given.text("roles")));
  INFOS_CLI_TRY(parse_duration(given.text("ttl")));
  const json::object wish{{"roles", given.text("roles")}, {"ttl", given.text("ttl")}};
  const auto made = admin_post(given, "/admin/v1/tokens", json::serialize(wish));
  if (!made.ok()) return complain(kFailed, made.error());
  if (output == Output::json) return std::fputs(pretty(*made).c_str(), stdout), kDone;
  std::printf("%s\n", shown(*made, "command").c_str());
  std::fprintf(stderr, "one machine may join with it until %s, with the roles %s\n",
               date_of(*made, "expires").c_str(), shown(*made, "roles").c_str());
  return kDone;
}

void describe_token(po::options_description_easy_init add) {
  describe_socket(add);
  describe_output(add);
}

int run_token_list(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const auto answer = admin_get(given, "/admin/v1/tokens");
  if (!answer.ok()) return complain(kFailed, answer.error());
  if (output == Output::json) return std::fputs(pretty(*answer).c_str(), stdout), kDone;
  std::vector<std::vector<std::string>> rows;
  for (const json::value& row : list_of(*answer, "tokens"))
    rows.push_back({shown(row, "id"), shown(row, "state"), shown(row, "roles"),
                    date_of(row, "expires"), shown(row, "used_by")});
  std::fputs(print_table({"ID", "STATE", "ROLES", "EXPIRES", "USED BY"}, rows).c_str(), stdout);
  return kDone;
}

int run_token_revoke(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  // A whole token is as good as its id; its secret stays here.
  const std::string id = given.words[0].substr(0, given.words[0].find('.'));
  const auto answer =
      admin_post(given, "/admin/v1/tokens/revoke", json::serialize(json::object{{"id", id}}));
  if (!answer.ok()) return complain(kFailed, answer.error());
  if (output == Output::json) return std::fputs(pretty(*answer).c_str(), stdout), kDone;
  std::printf("token %s is revoked\n", shown(*answer, "revoked").c_str());
  return kDone;
}

}  // namespace infos::cli
