// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation form C: canonical decomposition, canonical order, composition. Tables of
// Unicode 14 (nfc_tables.inc, made by scripts kept beside it). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace infos::text {

/// Bytes that are not UTF-8 pass through and end a combining sequence.
/// Source: Unicode Standard Annex 15; conformance is tested against a second implementation's
/// results.
std::string to_nfc(std::string_view text);

}  // namespace infos::text
