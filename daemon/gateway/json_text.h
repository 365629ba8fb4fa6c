// SPDX-License-Identifier: Apache-2.0
// Appends JSON text to a string, for answers that are written without a document in memory. No
// state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace infos {

/// Appends `text` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);
/// Appends a number; infinities and NaN, which JSON lacks, become -9999.0 (as the OpenAI API writes
/// "impossible").
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, std::uint64_t value);
/// `bytes` as UTF-8 text, what is not becoming U+FFFD.
std::string utf8_lossy(std::string_view bytes);

}  // namespace infos
