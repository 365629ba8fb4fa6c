// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <algorithm>
#include <vector>

#include "transports/bench/kv_bench.h"

namespace infos::bench {
namespace {

constexpr int kTries = 3;
constexpr std::uint64_t kBytes = 16u << 20;

/// Until the peer is lost and the operation that is under way has its verdict.
Result<double> detect_once(const Subject& subject, int signal) {
  const auto peer = INFOS_TRY(BenchPeer::start(subject.make, kBytes));
  const auto transport = INFOS_TRY(subject.make());
  std::span<std::byte> memory;
  const RegionId region = INFOS_TRY(transport->allocate(kBytes, memory));
  const PeerId id = INFOS_TRY(transport->connect(peer->address()));
  const RemoteId remote = INFOS_TRY(transport->open_remote(id, peer->write_key()));
  std::size_t given = 0, ended = 0;
  const Piece all{0, 0, kBytes};
  const auto put = [&] {
    ++given;
    transport->put(remote, region, {&all, 1}, [&](OpId, Verdict) { ++ended; });
  };
  put();
  if (!wait_until(*transport, Spin::none, [&] { return ended == given; }))
    return Error{ErrorCode::deadline_exceeded, subject.name + ": the peer does not answer"};
  put();
  transport->progress();
  const double begin = seconds_now();
  kill(peer->pid(), signal);
  const bool noticed = wait_until(*transport, Spin::none, [&] {
    return transport->peer_state(id) == PeerState::lost && ended == given;
  });
  if (!noticed)
    return Error{ErrorCode::deadline_exceeded, subject.name + ": the loss is not noticed"};
  return seconds_now() - begin;
}

}  // namespace

Status measure_detection(const Subject& subject, KvReport& report) {
  for (const auto& [signal, what] : {std::pair{SIGKILL, "SIGKILL"}, {SIGSTOP, "SIGSTOP"}}) {
    double worst = 0;
    for (int i = 0; i < kTries; ++i)
      worst = std::max(worst, INFOS_TRY(detect_once(subject, signal)));
    report.detections.push_back({subject.name, what, worst});
  }
  return {};
}

}  // namespace infos::bench
