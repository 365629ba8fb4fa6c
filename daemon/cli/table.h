// SPDX-License-Identifier: Apache-2.0
// Tables for people, and what a terminal is. Pure but for the last function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace infos::cli {

/// Columns as wide as their widest cell, two spaces between; the last is not padded.
std::string print_table(const std::vector<std::string>& head,
                        const std::vector<std::vector<std::string>>& rows);

/// Characters that a terminal would act on become '?', so that a server cannot write to it.
std::string safe_for_terminal(std::string_view text);

/// Whether stderr is a terminal: progress lines are drawn only there.
bool stderr_is_terminal();

}  // namespace infos::cli
