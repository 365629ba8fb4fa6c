// SPDX-License-Identifier: Apache-2.0
// Text from a file, made fit for a terminal and a log. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace infos {

/// Control characters and bytes that are not UTF-8 become '?'; beyond `limit` bytes it ends with
/// "...".
std::string printable(std::string_view text, std::size_t limit = 1024);

}  // namespace infos
