// SPDX-License-Identifier: Apache-2.0
// The words of the spec's enumerations and core lists.
#include <fmt/format.h>

#include <charconv>
#include <set>

#include "topology/spec/spec.h"

namespace infos {

const char* to_string(LinkKind kind) {
  switch (kind) {
    case LinkKind::rdma:
      return "rdma";
    case LinkKind::tcp:
      return "tcp";
    case LinkKind::shm:
      return "shm";
    case LinkKind::pcie:
      return "pcie";
    case LinkKind::nvlink:
      return "nvlink";
  }
  return "unknown";
}

const char* to_string(TopologyKind kind) {
  switch (kind) {
    case TopologyKind::automatic:
      return "auto";
    case TopologyKind::aggregated:
      return "aggregated";
    case TopologyKind::prefill_decode:
      return "prefill-decode";
    case TopologyKind::attention_ffn:
      return "attention-ffn";
  }
  return "unknown";
}

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::aggregated:
      return "aggregated";
    case Phase::prefill:
      return "prefill";
    case Phase::decode:
      return "decode";
    case Phase::attention:
      return "attention";
    case Phase::ffn:
      return "ffn";
  }
  return "unknown";
}

const char* to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::exact:
      return "exact";
    case Numerics::bounded:
      return "bounded";
    case Numerics::permissive:
      return "permissive";
  }
  return "unknown";
}

const char* to_string(ArrivalProcess process) {
  switch (process) {
    case ArrivalProcess::poisson:
      return "poisson";
    case ArrivalProcess::constant:
      return "constant";
    case ArrivalProcess::gamma:
      return "gamma";
    case ArrivalProcess::closed:
      return "closed";
  }
  return "unknown";
}

const char* to_string(LengthShape shape) {
  switch (shape) {
    case LengthShape::fixed:
      return "fixed";
    case LengthShape::uniform:
      return "uniform";
    case LengthShape::normal:
      return "normal";
    case LengthShape::lognormal:
      return "lognormal";
  }
  return "unknown";
}

const char* to_string(TraceFormat format) {
  switch (format) {
    case TraceFormat::csv:
      return "csv";
    case TraceFormat::jsonl:
      return "jsonl";
  }
  return "unknown";
}

Result<CoreList> parse_cores(std::string_view text) {
  constexpr std::uint32_t kCoresMax = 4096;
  const auto refuse = [&](std::string_view why) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("'{}' is not a core list: {}, want numbers 0 to {} and ranges, as in 0-3,8",
                    text.substr(0, 64), why, kCoresMax - 1)};
  };
  std::set<std::uint32_t> cores;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    std::uint32_t low = 0;
    auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), low);
    std::uint32_t high = low;
    if (error == std::errc{} && end != item.data() + item.size() && *end == '-') {
      const auto second = std::from_chars(end + 1, item.data() + item.size(), high);
      end = second.ptr;
      error = second.ec;
    }
    if (error != std::errc{} || end != item.data() + item.size())
      return refuse(fmt::format("'{}' is no number or range", item.substr(0, 32)));
    if (low > high || high >= kCoresMax)
      return refuse(fmt::format("'{}' is empty or too large", item.substr(0, 32)));
    for (std::uint32_t core = low; core <= high; ++core)
      if (!cores.insert(core).second) return refuse(fmt::format("core {} is named twice", core));
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  return CoreList(cores.begin(), cores.end());
}

std::string to_string(const CoreList& cores) {
  std::string out;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += last == i ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace infos
