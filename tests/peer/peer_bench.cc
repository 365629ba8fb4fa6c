// SPDX-License-Identifier: Apache-2.0
// What a remote hop costs: the round trip of a token-sized frame over a peer link (TLS 1.3,
// loopback), beside a plain TCP round trip through the same event loops; then frames a second one
// way. Prints one line each; asserts nothing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/certificate.h"
#include "daemon/runtime/peer/peer_net.h"

namespace infos {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::uint16_t kKind = 100;
constexpr std::size_t kPayload = 96;  ///< a StepReport with one token
constexpr int kRounds = 20000;

void print(const char* what, std::vector<std::int64_t> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-28s p50 %6.1f us   p99 %6.1f us   p99.9 %6.1f us\n", what,
              static_cast<double>(ns[ns.size() / 2]) / 1e3,
              static_cast<double>(ns[ns.size() * 99 / 100]) / 1e3,
              static_cast<double>(ns[ns.size() * 999 / 1000]) / 1e3);
}

class Listener final : public PeerListener {
 public:
  std::function<void()> up;
  std::function<void(std::string_view)> said;
  void peer_up(const PeerInfo&) override {
    if (up) up();
  }
  void peer_down(NodeId, const std::string& why) override {
    std::fprintf(stderr, "link lost: %s\n", why.c_str());
  }
  void peer_said(NodeId, std::uint16_t, std::string_view payload) override { said(payload); }
};

PeerNetOptions options(const Credential& authority, std::uint32_t node) {
  PeerNetOptions out;
  out.authority = authority.certificate;
  out.node.key = make_key().value();
  out.node.certificate =
      sign_request(authority, make_request(out.node.key).value(),
                   {"bench", "n" + std::to_string(node), NodeId{node}, {Role::worker}},
                   node_validity(unix_now()))
          .value();
  out.may_say = {{kKind, RoleSet::all()}};
  return out;
}

void peer_link() {
  const Credential authority = make_authority("bench", unix_now()).value();
  asio::io_context near(1), far(1);
  Listener here, there;
  auto one = PeerNet::make(near, options(authority, 1), here).value();
  auto two = PeerNet::make(far, options(authority, 2), there).value();
  const std::string address = "127.0.0.1:" + std::to_string(two->listen("127.0.0.1", 0).value());
  const std::string payload(kPayload, 'x');
  std::vector<std::int64_t> ns;
  Time begun;
  std::uint64_t streamed = 0;
  constexpr std::uint64_t kStream = 200000;
  there.said = [&](std::string_view said) {
    if (ns.size() < kRounds) return static_cast<void>(two->send(NodeId{1}, kKind, said));
    if (++streamed == kStream) static_cast<void>(two->send(NodeId{1}, kKind, "end"));
  };
  const auto ask = [&] {
    begun = monotonic_now();
    static_cast<void>(one->send(NodeId{2}, kKind, payload));
  };
  here.up = ask;
  Duration stream_time;
  here.said = [&](std::string_view) {
    if (ns.size() < kRounds) {
      ns.push_back((monotonic_now() - begun).ns);
      if (ns.size() < kRounds) return ask();
      begun = monotonic_now();
      for (std::uint64_t i = 0; i < kStream; ++i)
        static_cast<void>(one->send(NodeId{2}, kKind, payload));
      return;
    }
    stream_time = monotonic_now() - begun;
    near.stop();
    far.stop();
  };
  std::thread other([&] { far.run(); });
  one->set_peers({{NodeId{2}, address}});
  near.run();
  other.join();
  print("peer link, TLS round trip", ns);
  std::printf("%-28s %.0f frames/s\n", "peer link, one way",
              static_cast<double>(kStream) / stream_time.seconds());
}

void plain_tcp() {
  asio::io_context near(1), far(1);
  tcp::acceptor acceptor(far, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  tcp::socket client(near), server(far);
  client.connect(acceptor.local_endpoint());
  acceptor.accept(server);
  client.set_option(tcp::no_delay(true));
  server.set_option(tcp::no_delay(true));
  std::array<char, kPayload> out{}, in{}, echo{};
  std::vector<std::int64_t> ns;
  std::function<void()> serve = [&] {
    asio::async_read(server, asio::buffer(echo), [&](boost::system::error_code error, std::size_t) {
      if (error) return;
      asio::async_write(server, asio::buffer(echo), [&](auto, std::size_t) { serve(); });
    });
  };
  std::function<void()> ask = [&] {
    const Time begun = monotonic_now();
    asio::async_write(client, asio::buffer(out), [](auto, std::size_t) {});
    asio::async_read(client, asio::buffer(in), [&, begun](auto, std::size_t) {
      ns.push_back((monotonic_now() - begun).ns);
      if (ns.size() < kRounds) return ask();
      client.close();
    });
  };
  serve();
  ask();
  std::thread other([&] { far.run(); });
  near.run();
  other.join();
  print("plain TCP round trip", ns);
}

}  // namespace
}  // namespace infos

int main() {
  infos::plain_tcp();
  infos::peer_link();
  return 0;
}
