// SPDX-License-Identifier: Apache-2.0
// `infos drain`: takes a node's or a model's workers out of service, gently, and back again.
#include <fmt/format.h>

#include <cstdio>

#include <boost/json.hpp>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"

namespace infos::cli {

void describe_drain(boost::program_options::options_description_easy_init add) {
  add("undo", "take it back into service");
  describe_socket(add);
}

int run_drain(const Invocation& given) {
  const std::string& what = given.words.at(0);
  const std::string& name = given.words.at(1);
  if (what != "node" && what != "model")
    return complain(kUsage, fmt::format("drain '{}': want node or model", what.substr(0, 64)));
  const bool drained = !given.has("undo");
  const boost::json::object wish{{"what", what}, {"name", name}, {"drained", drained}};
  const auto answer = admin_post(given, "/admin/v1/drain-part", boost::json::serialize(wish));
  if (!answer.ok()) return complain(kFailed, answer.error().message + "\nnothing was changed");
  std::printf("%s %s is %s; plan %s has %s workers\n", what.c_str(), name.c_str(),
              drained ? "drained" : "back in service", word_of(*answer, "epoch").c_str(),
              word_of(*answer, "workers").c_str());
  return kDone;
}

}  // namespace infos::cli
