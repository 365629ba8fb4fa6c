// SPDX-License-Identifier: Apache-2.0
// Liveness: decides from pings, pongs and bytes whether the other end of one link is alive, suspect
// or down, in both directions: silence means that its bytes do not reach us, unanswered pings mean
// that ours do not reach it. Does not blame the peer while its own loop stood still. Pure; time
// comes in.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "topology/base/units.h"

namespace infos {

struct LivenessLimits {
  Duration interval = milliseconds(100);  ///< between pings, and between calls of tick()
  Duration suspect = milliseconds(300);
  Duration down = seconds(1);
};

class Liveness {
 public:
  enum class Verdict : std::uint8_t { alive, suspect, down };

  Liveness(LivenessLimits limits, Time now) : limits_(limits), heard_(now), ticked_(now) {}

  /// Bytes came from the peer.
  void heard(Time now) { heard_ = now; }
  /// The next ping is handed to the socket; returns its number, from 1.
  std::uint64_t ping(Time now);
  /// Returns: the round trip; nothing for a number that was not asked or was answered before.
  std::optional<Duration> pong(std::uint64_t sequence, Time now);
  /// The peer's system took bytes although many wait before the pings.
  void taken(Time now);
  /// Once an interval; afterwards verdict() and why() hold.
  Verdict tick(Time now);
  Verdict verdict() const { return verdict_; }
  /// Why it is suspect or down.
  std::string why() const;

 private:
  struct Sent {
    std::uint64_t sequence = 0;
    Time at;
  };
  LivenessLimits limits_;
  Time heard_;
  Time ticked_;
  std::deque<Sent> unanswered_;  ///< at most kUnansweredMax: the oldest stays
  std::uint64_t sequence_ = 0;
  Verdict verdict_ = Verdict::alive;
  Duration silent_;
  Duration unanswered_for_;
};

/// Waits between attempts: doubles from `first` to `last`, each with a jitter of +- a half. Pure.
class Backoff {
 public:
  Backoff(Duration first, Duration last, std::uint64_t seed)
      : first_(first), last_(last), wait_(first), state_(seed) {}
  Duration next();
  void reset() { wait_ = first_; }

 private:
  Duration first_, last_, wait_;
  std::uint64_t state_;
};

}  // namespace infos
