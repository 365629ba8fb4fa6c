// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/admin.h"

#include <fmt/format.h>

#include "daemon/cli/http_client.h"

namespace infos::cli {
namespace {

namespace json = boost::json;

Result<json::value> admin_call(const Invocation& given, HttpCall call) {
  Endpoint endpoint;
  endpoint.unix_path = given.has("socket") ? given.text("socket") : default_admin_socket();
  const Result<HttpAnswer> answer = http_call(endpoint, call);
  if (!answer.ok()) {
    if (answer.error().code != ErrorCode::unavailable) return answer.error();
    return Error{
        ErrorCode::unavailable,
        answer.error().message +
            "; is infosd running? Start one with `infos up`, or name its socket with --socket"};
  }
  if (answer->status / 100 != 2) return Error{ErrorCode::invalid_argument, error_message(*answer)};
  json::error_code failed;
  json::value value = json::parse(answer->body, failed);
  if (failed)
    return Error{ErrorCode::corrupt,
                 fmt::format("{} {}: the answer is not JSON", call.method, call.target)};
  return value;
}

void pretty_into(const json::value& value, std::size_t depth, std::string& out) {
  const std::string indent(2 * depth + 2, ' ');
  const auto close = [&](char c) { out += "\n" + std::string(2 * depth, ' ') + c; };
  if (value.is_object() && !value.as_object().empty()) {
    out += '{';
    const char* between = "\n";
    for (const auto& [key, member] : value.as_object()) {
      out += between + indent + json::serialize(json::value(key)) + ": ";
      pretty_into(member, depth + 1, out);
      between = ",\n";
    }
    close('}');
  } else if (value.is_array() && !value.as_array().empty()) {
    out += '[';
    const char* between = "\n";
    for (const json::value& member : value.as_array()) {
      out += between + indent;
      pretty_into(member, depth + 1, out);
      between = ",\n";
    }
    close(']');
  } else if (value.is_double()) {
    out += fmt::format("{}", value.as_double());
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

void describe_socket(boost::program_options::options_description_easy_init& add) {
  add("socket", boost::program_options::value<std::string>()->value_name("PATH"),
      "admin socket of infosd (default: $INFOS_ADMIN_SOCKET, /run/infos/admin.sock, or the user's "
      "own)");
}

Result<json::value> admin_get(const Invocation& given, const std::string& target) {
  HttpCall call;
  call.target = target;
  return admin_call(given, std::move(call));
}

Result<json::value> admin_post(const Invocation& given, const std::string& target,
                               const std::string& body) {
  HttpCall call;
  call.method = "POST";
  call.target = target;
  call.body = body;
  return admin_call(given, std::move(call));
}

std::string word_of(const json::value& object, std::string_view member) {
  if (!object.is_object()) return "";
  const json::value* value = object.as_object().if_contains(member);
  if (!value || value->is_null()) return "";
  if (value->is_string()) return std::string(value->as_string());
  if (value->is_bool()) return value->as_bool() ? "yes" : "no";
  return json::serialize(*value);
}

json::array list_of(const json::value& object, std::string_view member) {
  if (!object.is_object()) return {};
  const json::value* value = object.as_object().if_contains(member);
  return value && value->is_array() ? value->as_array() : json::array();
}

std::string pretty(const json::value& value) {
  std::string out;
  pretty_into(value, 0, out);
  return out + "\n";
}

}  // namespace infos::cli
