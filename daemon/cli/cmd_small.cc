// SPDX-License-Identifier: Apache-2.0
// `infos version` and the hidden `infos spec-reference`.
#include <cstdio>

#include "daemon/cli/commands.h"
#include "topology/spec/spec.h"

namespace infos::cli {

void describe_version(boost::program_options::options_description_easy_init add) {
  describe_output(add);
}

int run_version(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  if (output == Output::json) {
    std::printf("{\n  \"version\": \"%s\",\n  \"compiler\": \"%s\"\n}\n", INFOS_VERSION,
                __VERSION__);
  } else {
    std::printf("infos %s\n", INFOS_VERSION);
  }
  return kDone;
}

int run_spec_reference(const Invocation&) {
  std::fputs(spec_reference().c_str(), stdout);
  return kDone;
}

}  // namespace infos::cli
