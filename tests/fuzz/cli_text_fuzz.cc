// SPDX-License-Identifier: Apache-2.0
// Goal: what a server or a trace file says cannot crash the command line, and is read alike however
// it is cut. Method: the first byte chooses the cut; the rest is an HTTP answer of events, read
// whole and in two pieces, and a trace.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/cli/bench_plan.h"
#include "daemon/cli/http_parse.h"
#include "topology/base/check.h"

namespace {

struct Seen {
  bool ok = true;
  int status = 0;
  bool done = false;
  std::string events;
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen read(std::string_view text, std::size_t cut) {
  Seen seen;
  infos::cli::EventParser events(
      [&](std::string_view data) { seen.events += std::string(data) + "\n"; });
  infos::cli::HttpAnswerParser parser(
      [&](std::string_view piece) { seen.ok = events.feed(piece).ok() && seen.ok; });
  for (const std::string_view piece : {text.substr(0, cut), text.substr(cut)}) {
    if (!seen.ok) break;
    const auto used = parser.feed(piece);
    seen.ok = seen.ok && used.ok();
    if (used.ok()) INFOS_CHECK(*used <= piece.size());
  }
  seen.done = parser.done();
  seen.status = parser.status();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = std::min<std::size_t>(data[0], text.size());
  const Seen whole = read(text, text.size());
  const Seen pieces = read(text, cut);
  INFOS_CHECK(whole.ok == pieces.ok);
  if (whole.ok) INFOS_CHECK(whole == pieces);
  const auto plan = infos::cli::read_trace(text, {1000, 1});
  if (plan.ok()) INFOS_CHECK(plan->size() <= 1000);
  return 0;
}
