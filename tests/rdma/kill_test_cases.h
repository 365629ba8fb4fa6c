// SPDX-License-Identifier: Apache-2.0
// More of TransportConformance for transports over RDMA libraries, included by their programs: a
// peer is killed or stopped again and again at different moments of transfers in both directions.
// The verdicts are `ok` or `peer_lost`, this process lives on, and the times until the loss was
// known are printed.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/transports/conformance.h"

namespace infos::test {

/// Returns: milliseconds from the signal to the loss.
inline double lose_once(std::unique_ptr<Transport> transport, int number, int moment) {
  PeerProcess process;
  Transport& a = *transport;
  const Memory memory = make_memory(a, PeerProcess::kBytes);
  const Pump pump({&a});
  const PeerId peer = a.connect(process.address()).value();
  const RemoteId readable = a.open_remote(peer, process.read_key()).value();
  const RemoteId writable = a.open_remote(peer, process.write_key()).value();
  const Piece all{0, 0, PeerProcess::kBytes};
  Verdicts verdicts;
  std::size_t over = 0;
  const auto give = [&](RemoteId remote, int direction) {
    const auto count = [&, done = verdicts.done()](OpId op, Verdict verdict) {
      done(op, verdict);
      ++over;
    };
    if (direction % 2 == 0)
      a.get(remote, memory.region, {&all, 1}, count);
    else
      a.put(remote, memory.region, {&all, 1}, count);
  };
  for (int i = 0; i < 24; ++i) give(i % 2 == 0 ? readable : writable, i);
  EXPECT_TRUE(pump.until([&] { return over >= static_cast<std::size_t>(moment % 4 + 1); }));
  for (int i = 0; i < moment; ++i) a.progress();
  const auto began = std::chrono::steady_clock::now();
  process.signal(number);
  EXPECT_TRUE(pump.until([&] { return a.peer_state(peer) == PeerState::lost; }));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  EXPECT_TRUE(pump.until([&] { return verdicts.all_ended(); })) << verdicts.text();
  EXPECT_EQ(verdicts.of(Verdict::ok) + verdicts.of(Verdict::peer_lost), verdicts.given())
      << verdicts.text();
  bool fenced = false;
  a.fence(peer, [&] { fenced = true; });
  EXPECT_TRUE(pump.until([&] { return fenced; }));
  EXPECT_EQ(a.stats().ops_open, 0u);
  return took.count();
}

inline void print_times(const char* what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%s: %zu times, noticed after %.1f ms (median), %.1f ms (worst)\n", what,
              times.size(), times[times.size() / 2], times.back());
}

TEST_P(TransportConformance, KillAndStop_AgainAndAgainDuringTransfers) {
  // INFOS_KILLS=500: the long form.
  const char* given = std::getenv("INFOS_KILLS");
  const int kills = given != nullptr ? std::atoi(given) : 8;
  std::vector<double> killed, stopped;
  for (int moment = 0; moment < kills; ++moment)
    killed.push_back(lose_once(make(), SIGKILL, moment % 40));
  for (int moment = 0; moment < kills / 4; ++moment)
    stopped.push_back(lose_once(make(), SIGSTOP, 5 * moment % 40));
  print_times("SIGKILL", killed);
  print_times("SIGSTOP", stopped);
}

}  // namespace infos::test
