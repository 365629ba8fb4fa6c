// SPDX-License-Identifier: Apache-2.0
// Where the parts of an installation lie, seen from this executable: in a build folder or under a
// prefix.
#pragma once

#include <string>
#include <vector>

namespace infos::cli {

/// The folder of this executable.
std::string executable_folder();
/// infosd beside this executable.
std::string infosd_path();
/// Where the demo model is looked for, in order: $INFOS_DEMO_MODEL alone when it is set.
std::vector<std::string> demo_model_places();
/// The first that exists; empty: none.
std::string find_demo_model();

}  // namespace infos::cli
