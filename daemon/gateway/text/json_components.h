// SPDX-License-Identifier: Apache-2.0
// Reads the components of a tokenizer.json around its model: normalizer, pre_tokenizer, decoder,
// post_processor. Whatever is not supported exactly is refused with a sentence that names it.
// Called while loading only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/gateway/text/json_place.h"
#include "daemon/gateway/text/normalize.h"
#include "daemon/gateway/text/split.h"
#include "topology/base/ids.h"

namespace infos::text {

/// `root` is the whole document in each.
Status read_normalizer(const JsonPlace& root, Normalizer& out);

struct PreTokenizing {
  Splitter splitter;
  bool byte_level = false;  ///< the model's tokens are written in the byte-level alphabet
};
Result<PreTokenizing> read_pre_tokenizer(const JsonPlace& root);

/// How a token becomes text.
struct Decoding {
  bool byte_level = false;                                        ///< the byte-level alphabet
  bool byte_fallback = false;                                     ///< "<0x0A>" is the byte
  std::vector<std::pair<std::string, std::string>> replacements;  ///< in order, in each token
  std::size_t strip_first_spaces = 0;                             ///< of the whole text
  std::string bytes_of(std::string_view token) const;
};
Result<Decoding> read_decoder(const JsonPlace& root, const PreTokenizing& pre);

/// The tokens that the post-processor puts before a text.
Result<std::vector<TokenId>> read_prefix(const JsonPlace& root);

}  // namespace infos::text
