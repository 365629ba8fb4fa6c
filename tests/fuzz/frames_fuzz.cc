// SPDX-License-Identifier: Apache-2.0
// Hostile frames and recordings: either an error or a message that survives writing and reading
// again. The first byte picks the parser.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/control/codec.h"

namespace {

template <typename T>
void round_trip(infos::Result<T> (*decode)(std::string_view), std::string_view bytes) {
  const infos::Result<T> first = decode(bytes);
  if (!first.ok()) {
    if (first.error().code != infos::ErrorCode::corrupt || first.error().message.empty())
      std::abort();
    return;
  }
  // Compared as bytes: a NaN is not equal to itself.
  const std::string once = encode(*first);
  const infos::Result<T> second = decode(once);
  if (!second.ok() || encode(*second) != once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      round_trip(infos::decode_to_worker, bytes);
      break;
    case 1:
      round_trip(infos::decode_from_worker, bytes);
      break;
    default:
      round_trip(infos::decode_record, bytes);
      break;
  }
  return 0;
}
