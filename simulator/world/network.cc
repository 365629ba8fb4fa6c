// SPDX-License-Identifier: Apache-2.0
#include "simulator/world/network.h"

#include <algorithm>
#include <cmath>

namespace infos {

Network::Network(std::uint32_t nodes, Bandwidth link, Bandwidth memory) {
  for (std::uint32_t i = 0; i < nodes; ++i) {
    capacity_.insert(capacity_.end(),
                     {link.bytes_per_second, link.bytes_per_second, memory.bytes_per_second});
  }
}

void Network::advance(Time now) {
  const double seconds = (now - now_).seconds();
  now_ = now;
  if (seconds <= 0) return;
  for (auto& [id, flow] : flows_) flow.left = std::max(flow.left - flow.rate * seconds, 0.0);
}

/// Progressive filling: the resource that gives its flows least fixes their rate, and so on.
void Network::share() {
  std::vector<double> room = capacity_;
  std::vector<std::uint32_t> users(capacity_.size());
  std::vector<Flow*> open;
  for (auto& [id, flow] : flows_) {
    open.push_back(&flow);
    ++users[flow.resources[0]];
    if (flow.resources[1] != flow.resources[0]) ++users[flow.resources[1]];
  }
  while (!open.empty()) {
    std::size_t tightest = 0;
    double least = -1;
    for (std::size_t r = 0; r < room.size(); ++r) {
      if (users[r] == 0) continue;
      const double each = std::max(room[r], 0.0) / users[r];
      if (least < 0 || each < least) least = each, tightest = r;
    }
    std::erase_if(open, [&](Flow* flow) {
      if (flow->resources[0] != tightest && flow->resources[1] != tightest) return false;
      flow->rate = least;
      for (const std::uint32_t r : {flow->resources[0], flow->resources[1]}) {
        room[r] -= least;
        --users[r];
        if (flow->resources[0] == flow->resources[1]) break;
      }
      return true;
    });
  }
  next_ = kNever;
  for (const auto& [id, flow] : flows_) {
    const double ns = std::ceil(flow.left / std::max(flow.rate, 1e-3) * 1e9);
    next_ = std::min(next_, now_ + Duration{static_cast<std::int64_t>(std::min(ns, 1e17))});
  }
}

void Network::start(Time now, std::uint64_t flow, std::uint32_t from, std::uint32_t to,
                    std::uint64_t bytes) {
  advance(now);
  Flow& added = flows_[flow];
  added.resources[0] = from == to ? 3 * from + 2 : 3 * from;
  added.resources[1] = from == to ? 3 * from + 2 : 3 * to + 1;
  added.left = static_cast<double>(bytes);
  share();
}

void Network::stop(Time now, std::uint64_t flow) {
  advance(now);
  if (flows_.erase(flow) > 0) share();
}

std::uint64_t Network::take_ended(Time now) {
  advance(now);
  for (const auto& [id, flow] : flows_) {
    if (flow.left > flow.rate * 1e-9) continue;
    const std::uint64_t ended = id;
    flows_.erase(ended);
    share();
    return ended;
  }
  share();
  return 0;
}

}  // namespace infos
