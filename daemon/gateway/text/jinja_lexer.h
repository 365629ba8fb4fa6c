// SPDX-License-Identifier: Apache-2.0
// Cuts a template into text and the tokens inside of its tags, with Jinja's white space control as
// chat templates expect it: trim_blocks and lstrip_blocks on, one newline at the very end dropped.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/base/result.h"

namespace infos::text::jinja {

struct Token {
  enum class Kind {
    text,          ///< output as it stands
    output_begin,  ///< {{
    output_end,    ///< }}
    block_begin,   ///< {%
    block_end,     ///< %}
    name,
    integer,
    decimal,
    string,  ///< `text` has its escapes resolved
    op,      ///< `text` is the operator
    end,
  } kind = Kind::end;
  std::string text;
  std::uint32_t offset = 0;  ///< in the normalised source
};

/// "line:column" of an offset, both from 1; columns count bytes.
std::string place_of(std::string_view source, std::uint32_t offset);

/// CRLF and CR become LF, one LF at the end is dropped.
std::string normalise_newlines(std::string_view text);

/// Requires: `source` came from normalise_newlines. Errors: invalid_argument with line:column.
Result<std::vector<Token>> tokenise(std::string_view source);

}  // namespace infos::text::jinja
