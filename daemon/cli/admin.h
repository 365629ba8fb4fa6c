// SPDX-License-Identifier: Apache-2.0
// The admin API of this machine's infosd, as the commands use it: JSON in, JSON out, over its Unix
// socket.
#pragma once

#include <boost/json.hpp>

#include <string>

#include "daemon/cli/command.h"
#include "topology/base/result.h"

namespace infos::cli {

/// `--socket PATH`.
void describe_socket(boost::program_options::options_description_easy_init& add);
/// Errors: unavailable with what to do, or the server's own message.
Result<boost::json::value> admin_get(const Invocation& given, const std::string& target);
Result<boost::json::value> admin_post(const Invocation& given, const std::string& target,
                                      const std::string& body);

/// The member's text, number or truth as a word; "" when it is not there.
std::string word_of(const boost::json::value& object, std::string_view member);
/// The list `member` of an object; empty when it is not there.
boost::json::array list_of(const boost::json::value& object, std::string_view member);
/// Indented, for people and scripts; ends with a line break.
std::string pretty(const boost::json::value& value);

}  // namespace infos::cli
