// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/cluster_relay.h"

#include <chrono>
#include <deque>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/runtime/clock.h"
#include "topology/base/log.h"

namespace infos {

struct ClusterRelay::State : std::enable_shared_from_this<ClusterRelay::State> {
  State(boost::asio::io_context& io, const RelayConfig& config, Ports given)
      : core(config), ports(std::move(given)), timer(io) {}

  void feed(RelayEvent event);
  void perform(RelayEffect& effect);
  void arm();

  PeerRelay core;
  Ports ports;
  boost::asio::steady_timer timer;
  Time armed = kNever;
  std::deque<RelayEvent> events;  ///< wait while effects are performed
  bool stepping = false;
  bool stopped = false;
};

void ClusterRelay::State::feed(RelayEvent event) {
  if (stopped) return;
  events.push_back(std::move(event));
  if (stepping) return;
  stepping = true;
  RelayEffects effects;
  while (!events.empty() && !stopped) {
    RelayEvent next = std::move(events.front());
    events.pop_front();
    effects.clear();
    core.step(monotonic_now(), std::move(next), effects);
    for (RelayEffect& effect : effects) perform(effect);
  }
  stepping = false;
  arm();
}

void ClusterRelay::State::perform(RelayEffect& effect) {
  if (stopped) return;
  if (auto* peer = std::get_if<SendPeer>(&effect)) {
    ports.to_peer(peer->node, std::move(peer->message));
  } else if (auto* local = std::get_if<SendLocal>(&effect)) {
    ports.to_local(local->message);
  } else if (auto* tell = std::get_if<TellGateway>(&effect)) {
    ports.to_gateway(std::move(tell->event));
  } else {
    const auto& refused = std::get<RelayRefused>(effect);
    log_warn("cluster", "a peer said what it must not say",
             {{"node", refused.node.value}, {"what", refused.why}});
  }
}

void ClusterRelay::State::arm() {
  const Time next = core.next_deadline();
  if (next >= armed || stopped) return;
  armed = next;
  timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next.ns)));
  timer.async_wait([weak = weak_from_this()](boost::system::error_code error) {
    const auto self = weak.lock();
    if (error || !self || self->stopped) return;
    self->armed = kNever;
    self->feed(RelayTick{});
  });
}

ClusterRelay::ClusterRelay(boost::asio::io_context& io, const RelayConfig& config, Ports ports)
    : state_(std::make_shared<State>(io, config, std::move(ports))) {}
ClusterRelay::~ClusterRelay() { stop(); }

void ClusterRelay::feed(RelayEvent event) { state_->feed(std::move(event)); }
const PeerRelay& ClusterRelay::core() const { return state_->core; }
void ClusterRelay::stop() {
  state_->stopped = true;
  state_->timer.cancel();
}

}  // namespace infos
