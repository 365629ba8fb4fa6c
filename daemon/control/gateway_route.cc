// SPDX-License-Identifier: Apache-2.0
// Where GatewayCore sends a request: to the worker, or the two workers, that are predicted to
// complete it first.
#include <algorithm>

#include "daemon/control/gateway_state.h"
#include "daemon/control/mutant.h"

namespace infos {
namespace {

constexpr double kAvoided = 1e6;      // s: only if there is nobody else
constexpr std::size_t kBestKept = 8;  // of each side of a pair; beyond, pairs are not compared

bool decodes(const GatewayWorker& worker) { return worker.ready.role != WorkerRole::prefill; }

}  // namespace

bool GatewayCore::State::has_room(const GatewayWorker& worker) const {
  return worker.up && !worker.load.draining &&
         worker.attached.size() + worker.helped.size() < config.max_running_per_worker;
}

std::uint32_t GatewayCore::State::longest_context(const GatewayModel& model) const {
  std::uint32_t longest = 0;
  for (const auto& [id, worker] : model.workers)
    longest = std::max(longest, worker->ready.max_context);
  return longest;
}

/// The names of the request's full blocks of this size.
const std::vector<BlockHash>& GatewayCore::State::chain(const GatewayRequest& request,
                                                        std::uint32_t block_tokens) {
  const auto [at, is_new] = chains.try_emplace(block_tokens);
  if (!is_new || block_tokens == 0) return at->second;
  // The emitted tokens go on where the prompt ends, in the middle of a block maybe.
  std::vector<TokenId> seam;
  const std::vector<TokenId>& prompt = request.arrive.prompt;
  BlockHash hash = block_hash_root(block_tokens);
  at->second.reserve(request.length() / block_tokens);
  for (std::size_t i = 0; i + block_tokens <= request.length(); i += block_tokens) {
    std::span<const TokenId> tokens;
    if (i + block_tokens <= prompt.size()) {
      tokens = std::span(prompt).subspan(i, block_tokens);
    } else {
      seam.clear();
      for (std::size_t t = i; t < i + block_tokens; ++t)
        seam.push_back(t < prompt.size() ? prompt[t] : request.emitted[t - prompt.size()]);
      tokens = seam;
    }
    at->second.push_back(hash = block_hash(hash, tokens));
  }
  return at->second;
}

/// Everybody who has room and a context that is long enough.
std::vector<GatewayCore::State::Candidate> GatewayCore::State::candidates(
    const GatewayRequest& request, const GatewayModel& model) {
  std::vector<Candidate> all;
  all.reserve(model.workers.size());
  chains.clear();
  depths.assign(prefixes.holders(), 0);
  for (const auto& [id, worker] : model.workers) {
    if (request.length() >= worker->ready.max_context || !has_room(*worker)) continue;
    if (!chains.contains(worker->ready.block_tokens))
      prefixes.longest(chain(request, worker->ready.block_tokens), depths);
    all.push_back({id, worker});
  }
  for (Candidate& c : all) {
    const std::size_t cached = std::size_t{depths[c.worker->holder]} * c.worker->ready.block_tokens;
    c.missing = static_cast<std::uint32_t>(request.length() -
                                           std::min<std::size_t>(cached, request.length() - 1));
    predict(c, request);
  }
  return all;
}

/// A prefill worker decodes only if no other worker can, now or later.
GatewayCore::State::Choice GatewayCore::State::best_alone(const std::vector<Candidate>& all,
                                                          const GatewayModel& model,
                                                          const GatewayRequest& request) const {
  const bool others = std::ranges::any_of(model.workers, [&](const auto& of) {
    return decodes(*of.second) && !of.second->load.draining && of.first != request.avoid &&
           request.length() < of.second->ready.max_context;
  });
  Choice best;
  for (const Candidate& c : all) {
    if (others && !decodes(*c.worker)) continue;
    const double seconds = c.queue_seconds + c.prefill_seconds + c.decode_seconds +
                           (c.id == request.avoid ? kAvoided : 0);
    if (!best.decode || seconds < best.seconds) best = {nullptr, &c, seconds};
  }
  return best;
}

/// The best of the pairs of those that are best by themselves.
GatewayCore::State::Choice GatewayCore::State::best_pair(const std::vector<Candidate>& all,
                                                         const GatewayRequest& request) {
  if (request.never_split || request.emitted.size() + 2 > request.arrive.max_new_tokens) return {};
  if (std::ranges::all_of(all, [](const Candidate& c) { return decodes(*c.worker); })) return {};
  std::vector<const Candidate*> sides[2];
  for (const Candidate& c : all) sides[decodes(*c.worker) ? 1 : 0].push_back(&c);
  const auto keep = [](std::vector<const Candidate*>& side, auto score) {
    const auto kept = side.begin() + static_cast<std::ptrdiff_t>(std::min(side.size(), kBestKept));
    std::ranges::partial_sort(side, kept, {}, score);
    side.erase(kept, side.end());
  };
  keep(sides[0],
       [](const Candidate* c) { return std::pair(c->queue_seconds + c->prefill_seconds, c->id); });
  // What is missing counts little: it moves while it is computed.
  keep(sides[1],
       [](const Candidate* c) { return std::pair(c->decode_seconds + 1e-6 * c->missing, c->id); });
  Choice best;
  for (const Candidate* d : sides[1]) {
    if (d->missing <= d->worker->ready.block_tokens) continue;  // too little to fetch
    for (const Candidate* p : sides[0]) {
      const double seconds = pair_seconds(*p, *d) + (d->id == request.avoid ? kAvoided : 0);
      if (!best.decode || seconds < best.seconds) best = {p, d, seconds};
    }
  }
  return best;
}

void GatewayCore::State::submit(GatewayRequest& request, const Choice& choice,
                                GatewayEffects& out) {
  const Candidate& main = *choice.decode;
  const Candidate& first = choice.prefill ? *choice.prefill : main;
  const RequestId id = request.arrive.request;
  ++request.attempts;
  ++(choice.prefill ? counters.split : counters.alone);
  request.worker = main.id;
  request.drawn = false;
  request.cached_tokens = 0;
  request.prefilling = first.id;
  request.prefill_pending = first.missing;
  first.worker->prefill_pending += first.missing;
  main.worker->attached.insert(id);
  arm(request, request.arrive.deadline);
  Submit submit;
  submit.request = id;
  submit.attempt = request.attempt();
  submit.tokens.reserve(request.length());
  submit.tokens = request.arrive.prompt;
  submit.tokens.insert(submit.tokens.end(), request.emitted.begin(), request.emitted.end());
  submit.prompt_tokens = static_cast<std::uint32_t>(request.arrive.prompt.size());
  if (planted(Mutant::emitted_counted_as_prompt))
    submit.prompt_tokens = static_cast<std::uint32_t>(request.length());
  submit.max_new_tokens = request.arrive.max_new_tokens;
  submit.stop_tokens = request.arrive.stop_tokens;
  submit.sampling = request.arrive.sampling;
  if (planted(Mutant::draws_prompt_seed)) submit.sampling.seed += request.attempts - 1;
  for (const Candidate* c : {&main, &first})
    prefixes.hold(c->worker->holder, chain(request, c->worker->ready.block_tokens));
  if (choice.prefill) {
    const auto tokens = static_cast<std::uint32_t>(request.length() - 1);
    request.helper = {first.id, first.worker->generation};
    request.helping = true;
    first.worker->helped.insert(id);
    Submit half = submit;
    half.max_new_tokens = static_cast<std::uint32_t>(request.emitted.size() + 1);
    half.kv_for = {{main.id, main.worker->generation}, tokens};
    submit.kv_from = {request.helper, tokens};
    out.push_back(SendWorker{first.id, first.worker->generation, std::move(half)});
  }
  out.push_back(SendWorker{main.id, main.worker->generation, std::move(submit)});
}

GatewayCore::State::Placement GatewayCore::State::place(GatewayRequest& request,
                                                        const GatewayModel& model,
                                                        GatewayEffects& out) {
  const std::vector<Candidate> all = candidates(request, model);
  Choice choice = best_alone(all, model, request);
  const Choice pair = best_pair(all, request);
  if (pair.decode && (!choice.decode || pair.seconds < choice.seconds)) choice = pair;
  if (choice.decode) {
    submit(request, choice, out);
    return Placement::placed;
  }
  const bool fits_somewhere = std::ranges::any_of(model.workers, [&](const auto& of) {
    return request.length() < of.second->ready.max_context;
  });
  return fits_somewhere || model.workers.empty() ? Placement::no_room : Placement::fits_nowhere;
}

void GatewayCore::State::pump(const std::string& name, GatewayEffects& out) {
  const auto found = models.find(name);
  if (found == models.end()) return;
  GatewayModel& model = found->second;
  for (auto at = model.queue.begin(); at != model.queue.end();) {
    GatewayRequest& request = requests.at(at->second);
    const Placement placement = place(request, model, out);
    if (placement == Placement::no_room) return;
    if (placement == Placement::placed) {
      at = model.queue.erase(at);
      continue;
    }
    ++at;
    // A full context ends an answer; a prompt that fits nowhere waits for a larger worker until its
    // time is over.
    if (!request.emitted.empty()) finish(request, FinishReason::length, "", out);
  }
}

}  // namespace infos
