// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/liveness.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/base/rng.h"

namespace infos {
namespace {

constexpr std::size_t kUnansweredMax = 64;

std::int64_t milliseconds_of(Duration duration) { return duration.ns / 1'000'000; }

}  // namespace

std::uint64_t Liveness::ping(Time now) {
  ++sequence_;
  if (unanswered_.size() < kUnansweredMax) unanswered_.push_back({sequence_, now});
  return sequence_;
}

std::optional<Duration> Liveness::pong(std::uint64_t sequence, Time now) {
  std::optional<Duration> round_trip;
  while (!unanswered_.empty() && unanswered_.front().sequence <= sequence) {
    if (unanswered_.front().sequence == sequence) round_trip = now - unanswered_.front().at;
    unanswered_.pop_front();
  }
  return round_trip;
}

void Liveness::taken(Time now) {
  for (Sent& sent : unanswered_) sent.at = std::max(sent.at, now);
}

Liveness::Verdict Liveness::tick(Time now) {
  // Late: this process stood still, and what came meanwhile may wait in the socket.
  const Duration late = now - ticked_ - limits_.interval;
  ticked_ = now;
  if (late > limits_.interval) {
    heard_ = std::min(now, heard_ + late);
    for (Sent& sent : unanswered_) sent.at = std::min(now, sent.at + late);
  }
  silent_ = now - heard_;
  unanswered_for_ = unanswered_.empty() ? Duration{} : now - unanswered_.front().at;
  const Duration worst = std::max(silent_, unanswered_for_);
  if (worst >= limits_.down)
    verdict_ = Verdict::down;
  else
    verdict_ = worst >= limits_.suspect ? Verdict::suspect : Verdict::alive;
  return verdict_;
}

std::string Liveness::why() const {
  if (silent_ >= unanswered_for_)
    return fmt::format("nothing was heard for {} ms", milliseconds_of(silent_));
  return fmt::format("a ping has had no answer for {} ms", milliseconds_of(unanswered_for_));
}

Duration Backoff::next() {
  Rng rng(state_);
  state_ = rng.next();
  const Duration half{wait_.ns / 2};
  const Duration out =
      half + Duration{static_cast<std::int64_t>(
                 rng.below(static_cast<std::uint64_t>(std::max<std::int64_t>(wait_.ns, 1))))};
  wait_ = std::min(last_, wait_ * 2);
  return out;
}

}  // namespace infos
