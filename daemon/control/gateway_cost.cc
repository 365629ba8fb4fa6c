// SPDX-License-Identifier: Apache-2.0
// What GatewayCore predicts: seconds until a request would be complete on a worker, or on two, from
// what workers and links have measured of themselves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "daemon/control/gateway_state.h"

namespace infos {
namespace {

// Until a worker has measured itself. Any positive figures do: they only rank workers that know
// nothing.
constexpr double kPrefillRateGuess = 1000;  // tokens/s
constexpr double kDecodeStepGuess = 0.02;   // s
constexpr double kAnswerTokensGuess = 128;  // answers mostly end long before their limit
constexpr double kCrowding =
    1.0 / 32;  // how much one more sequence lengthens a decode step, as a share of it
// Prefill beside running answers gets half of the time (WorkerConfig.prefill_share 1), and holds
// each of them up a little; the latter counts a tenth of what it costs them.
constexpr double kSharedPrefill = 2;
constexpr double kDisturbance = 0.1;
// Links that nothing is known of: 10 GbE.
constexpr double kLinkBytesGuess = 1e9;  // bytes/s
constexpr double kLinkSecondsGuess = 1e-3;
constexpr std::uint64_t kTokenBytesGuess = 65536;
constexpr double kWeight = 0.25;  // of the newest fetch

double blend(double estimate, double sample) { return estimate + kWeight * (sample - estimate); }

}  // namespace

/// Fills in the times. Requires: worker and missing are set.
void GatewayCore::State::predict(Candidate& c, const GatewayRequest& request) const {
  const GatewayWorker& worker = *c.worker;
  const WorkerLoad& load = worker.load;
  const double rate =
      load.prefill_tokens_per_second > 0 ? load.prefill_tokens_per_second : kPrefillRateGuess;
  const double step = load.decode_step_seconds > 0 ? load.decode_step_seconds : kDecodeStepGuess;
  const double company = static_cast<double>(worker.attached.size());
  const double left = static_cast<double>(request.arrive.max_new_tokens) -
                      static_cast<double>(request.emitted.size());
  const double answer = std::clamp(left, 0.0, kAnswerTokensGuess);
  const double ahead = load.running > 0 ? static_cast<double>(load.waiting) / load.running : 0;
  const double shared = company > 0 ? kSharedPrefill : 1;
  c.queue_seconds = static_cast<double>(worker.prefill_pending) / rate;
  const double role = worker.ready.role == WorkerRole::decode ? config.decode_prefill_cost : 1;
  c.prefill_seconds =
      static_cast<double>(c.missing) / rate * (shared + kDisturbance * company) * role;
  c.decode_seconds = answer * step * (1 + kCrowding * company + ahead);
}

/// Layers move while the next ones are computed: the longer of the two counts.
double GatewayCore::State::pair_seconds(const Candidate& p, const Candidate& d) const {
  const auto known = links.find({p.id, d.id});
  const double rate = known == links.end() ? kLinkBytesGuess : known->second.bytes_per_second;
  const double latency = known == links.end() ? kLinkSecondsGuess : known->second.seconds;
  const std::uint64_t each = p.worker->ready.kv_bytes_per_token > 0
                                 ? p.worker->ready.kv_bytes_per_token
                                 : kTokenBytesGuess;
  const double move = static_cast<double>(d.missing) * static_cast<double>(each) / rate;
  return p.queue_seconds + std::max(p.prefill_seconds, move) + latency + d.decode_seconds;
}

/// A fetch has gone over a link: what is mostly bytes tells its rate, what is mostly waiting its
/// latency.
void GatewayCore::State::learn(WorkerId to, const FetchStat& stat) {
  const double took = (stat.took - stat.waited).seconds();
  if (stat.bytes == 0 || took <= 0 || !stat.source.worker) return;
  const auto from = workers.find(stat.source.worker);
  if (from == workers.end() || from->second.generation != stat.source.generation) return;
  const auto [at, is_new] =
      links.try_emplace({stat.source.worker, to}, GatewayLink{kLinkBytesGuess, kLinkSecondsGuess});
  GatewayLink& link = at->second;
  const double bytes = static_cast<double>(stat.bytes);
  const double moving = bytes / link.bytes_per_second;
  if (is_new || moving > link.seconds) {
    const double sample = bytes / std::max(took - link.seconds, took / 4);
    link.bytes_per_second = is_new ? sample : 1 / blend(1 / link.bytes_per_second, 1 / sample);
  } else {
    link.seconds = std::max(blend(link.seconds, took - moving), 1e-6);
  }
}

/// A guess for Retry-After, whole seconds.
Duration GatewayCore::State::predicted_wait(const GatewayModel& model) const {
  double soonest = std::numeric_limits<double>::infinity();
  GatewayRequest usual;
  usual.arrive.max_new_tokens = static_cast<std::uint32_t>(kAnswerTokensGuess);
  for (const auto& [id, worker] : model.workers) {
    Candidate c{id, worker};
    predict(c, usual);
    soonest = std::min(soonest, c.queue_seconds + c.decode_seconds);
  }
  if (!std::isfinite(soonest)) return seconds(5);
  const double queued =
      static_cast<double>(model.queue.size()) / static_cast<double>(model.workers.size());
  const double wait = std::ceil(soonest * (1 + queued / 16));
  return seconds(static_cast<std::int64_t>(std::clamp(wait, 1.0, 30.0)));
}

}  // namespace infos
