// SPDX-License-Identifier: Apache-2.0
// What the peer tests share: an authority, and a node with its own loop, whose events are kept and
// waited for.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/peer_net.h"

namespace infos::test {

constexpr std::uint16_t kAnyoneSays = 100;
constexpr std::uint16_t kControllerSays = 101;

class Authority {
 public:
  explicit Authority(std::string cluster = "lab") : cluster_(std::move(cluster)) {
    own_ = make_authority(cluster_, unix_now()).value();
  }
  const Credential& credential() const { return own_; }
  const std::string& certificate() const { return own_.certificate; }
  NodeIdentity identity(std::uint32_t node, RoleSet roles) const {
    return {cluster_, "n" + std::to_string(node), NodeId{node}, roles};
  }
  Credential issue(const NodeIdentity& identity, Validity validity) const {
    Credential out;
    out.key = make_key().value();
    out.certificate = sign_request(own_, make_request(out.key).value(), identity, validity).value();
    return out;
  }
  PeerNetOptions options(std::uint32_t node, RoleSet roles = RoleSet::all()) const {
    PeerNetOptions out;
    out.authority = own_.certificate;
    out.node = issue(identity(node, roles), node_validity(unix_now()));
    out.seed = node;
    // So long that a slow machine is not a silent peer.
    out.liveness = {milliseconds(20), seconds(30), seconds(60)};
    out.may_say = {{kAnyoneSays, RoleSet::all()}, {kControllerSays, {Role::controller}}};
    return out;
  }

 private:
  std::string cluster_;
  Credential own_;
};

/// One daemon's net on its own thread. What it hears is kept as text: "up 2/1" (node, incarnation),
/// "down 2: why", "said 2/100: payload", "suspect 2", "trusts 2".
class TestNode final : private PeerListener {
 public:
  explicit TestNode(PeerNetOptions options) {
    auto made = PeerNet::make(io_, std::move(options), *this);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    net_ = std::move(made).value();
    port_ = net_->listen("127.0.0.1", 0).value();
    resume();
  }
  ~TestNode() override {
    pause();
    net_.reset();
  }

  /// Its loop stands still, as if the process were stopped.
  void pause() {
    if (!thread_.joinable()) return;
    io_.stop();
    thread_.join();
  }
  void resume() {
    io_.restart();
    thread_ = std::thread([this] { io_.run(); });
  }

  /// Runs `what` on the node's thread.
  template <typename F>
  auto with(F what) {
    std::packaged_task<decltype(what(*net_))()> task([&] { return what(*net_); });
    auto result = task.get_future();
    boost::asio::post(io_, [&task] { task(); });
    return result.get();
  }
  void dial(std::uint32_t node, std::uint16_t port) {
    with([&](PeerNet& net) {
      net.set_peers({{NodeId{node}, "127.0.0.1:" + std::to_string(port)}});
    });
  }
  Status send(std::uint32_t to, std::uint16_t kind, const std::string& payload) {
    return with([&](PeerNet& net) { return net.send(NodeId{to}, kind, payload); });
  }
  PeerTotals totals() {
    return with([](PeerNet& net) { return net.totals(); });
  }
  PeerRow row(std::uint32_t node) {
    for (const PeerRow& row : with([](PeerNet& net) { return net.peers(); }))
      if (row.node.value == node) return row;
    return {};
  }
  std::uint16_t port() const { return port_; }
  /// While paused only.
  PeerNet& net() { return *net_; }
  boost::asio::io_context& io() { return io_; }

  /// Waits until an event that begins with `text` has come, the `count`th of its kind.
  bool saw(const std::string& text, std::size_t count = 1) {
    return wait([&] {
      std::size_t seen = 0;
      for (const std::string& event : events_) seen += event.starts_with(text) ? 1 : 0;
      return seen >= count;
    });
  }
  /// Waits until `holds(net)`, asked again after each millisecond of the node's own time.
  template <typename F>
  bool until(F holds) {
    for (int i = 0; i < 20000; ++i) {
      if (with([&](PeerNet& net) { return static_cast<bool>(holds(net)); })) return true;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    return false;
  }
  std::vector<std::string> events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  void peer_up(const PeerInfo& peer) override {
    note("up " + std::to_string(peer.identity.node.value) + "/" + std::to_string(peer.incarnation));
  }
  void peer_suspect(NodeId peer, Suspicion suspicion) override {
    note((suspicion == Suspicion::raised ? "suspect " : "trusts ") + std::to_string(peer.value));
  }
  void peer_down(NodeId peer, const std::string& why) override {
    note("down " + std::to_string(peer.value) + ": " + why);
  }
  void peer_said(NodeId peer, std::uint16_t kind, std::string_view payload) override {
    note("said " + std::to_string(peer.value) + "/" + std::to_string(kind) + ": " +
         std::string(payload.substr(0, 100)));
  }
  void note(std::string event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  /// A long limit, so that a failure is a failure and not a hang.
  template <typename F>
  bool wait(F holds) {
    std::unique_lock lock(mutex_);
    const bool held = changed_.wait_for(lock, std::chrono::seconds(30), holds);
    if (!held)
      for (const std::string& event : events_) ADD_FAILURE() << "event: " << event;
    return held;
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::unique_ptr<PeerNet> net_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
};

}  // namespace infos::test
