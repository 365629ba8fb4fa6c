// SPDX-License-Identifier: Apache-2.0
// The tcp transport keeps the contract of transports, plain and over TLS; who has no certificate of
// the authority moves nothing; bytes that change on the way are noticed; no listener off loopback
// without TLS. Method: the conformance suite twice, and strangers on real sockets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/runtime/peer/certificate.h"
#include "tests/transports/conformance.h"
#include "transports/tcp/tcp_impl.h"
#include "transports/tcp/tcp_transport.h"

namespace infos::test {
namespace {

constexpr const char* kFolder = "INFOS_TCP_TEST_FOLDER";

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// A certificate of `authority` and its key, as files of this name.
void write_node(const std::string& path, const Credential& authority) {
  const std::string key = make_key().value();
  const NodeIdentity identity{"lab", "n1", NodeId{1}, RoleSet{Role::worker}};
  write_file(path + ".key", key);
  write_file(path + ".pem",
             sign_request(authority, make_request(key).value(), identity, node_validity(unix_now()))
                 .value());
}

/// The folder with certificates, made once and known to the peer processes too.
class Certificates : public ::testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv(kFolder) != nullptr) return;
    std::string folder = (std::filesystem::temp_directory_path() / "infos-tcp-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    made_ = folder;
    for (const std::string name : {"lab", "other"}) {
      const Credential authority = make_authority(name, unix_now()).value();
      write_file(folder + "/" + name + "-ca.pem", authority.certificate);
      write_node(folder + "/" + name, authority);
    }
    setenv(kFolder, folder.c_str(), 1);
  }
  void TearDown() override {
    if (!made_.empty()) std::filesystem::remove_all(made_);
  }

 private:
  std::string made_;
};
const auto* const kCertificates = ::testing::AddGlobalTestEnvironment(new Certificates);

/// The node's certificate is of `name`'s authority; it trusts that of `trusted`.
TcpOptions with_tls(const std::string& name, const std::string& trusted) {
  const std::string folder = std::getenv(kFolder);
  TcpOptions options;
  options.certificate_file = folder + "/" + name + ".pem";
  options.key_file = folder + "/" + name + ".key";
  options.authority_file = folder + "/" + trusted + "-ca.pem";
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Backend, TransportConformance,
    ::testing::Values(Backend{"tcp", [] { return make_tcp_transport({}); }},
                      Backend{"tcp_tls",
                              [] { return make_tcp_transport(with_tls("lab", "lab")); }}),
    [](const auto& info) { return info.param.name; });

/// What becomes of one get between two transports.
Verdict get_between(std::unique_ptr<Transport> a, std::unique_ptr<Transport> b) {
  Pair pair = make_pair(std::move(a), std::move(b), 4096);
  Verdict verdict = Verdict::ok;
  bool ended = false;
  const Piece piece{0, 0, 4096};
  pair.a->get(pair.readable, pair.of_a.region, {&piece, 1}, [&](OpId, Verdict v) {
    verdict = v;
    ended = true;
  });
  EXPECT_TRUE(pair.pump().until([&] { return ended; }));
  return verdict;
}

TEST(TcpTls, CertificateOfAnotherAuthority_MovesNothing) {
  const auto make = [](const char* name, const char* trusted) {
    return make_tcp_transport(with_tls(name, trusted)).value();
  };
  EXPECT_TRUE(make("lab", "lab")->info().encrypted);
  EXPECT_EQ(get_between(make("lab", "lab"), make("lab", "lab")), Verdict::ok);
  EXPECT_EQ(get_between(make("lab", "lab"), make("other", "other")), Verdict::peer_lost);
  EXPECT_EQ(get_between(make("other", "lab"), make("lab", "lab")), Verdict::peer_lost);
  EXPECT_EQ(get_between(make("lab", "other"), make("lab", "lab")), Verdict::peer_lost);
}

TEST(TcpTls, FilesThatAreWrong_AreNamed) {
  TcpOptions options = with_tls("lab", "lab");
  options.key_file = with_tls("other", "other").key_file;
  const auto made = make_tcp_transport(options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find(options.key_file), std::string::npos) << made.error().message;
  options = with_tls("lab", "lab");
  options.authority_file = "";
  EXPECT_FALSE(make_tcp_transport(options).ok()) << "all three or none";
}

/// A plain socket to the transport's listener.
int dial(const Transport& transport) {
  const TcpPlace place = parse_tcp_place(transport.address()).value();
  const SocketAddress address = parse_socket_address(place.host, place.port).value();
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size), 0);
  return fd;
}

/// Whether the transport closes the connection.
bool is_closed(Transport& transport, int fd) {
  return Pump({&transport}).until([&] {
    char byte = 0;
    const ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  });
}

TEST(Tcp, StrangerWhoSaysNonsenseOrNothing_IsClosed) {
  for (TcpOptions options : {TcpOptions{}, with_tls("lab", "lab")}) {
    options.connect_max = milliseconds(50);
    const auto transport = make_tcp_transport(options).value();
    std::vector<std::string> sayings{"", "GET / HTTP/1.1\r\n\r\n", std::string(100'000, 'x')};
    std::string wrong_secret(sizeof(FrameHead) + sizeof(Hello), '\0');
    const FrameHead head{magic_kind(FrameKind::hello), sizeof(Hello), 0, 0, 0};
    std::memcpy(wrong_secret.data(), &head, sizeof head);
    sayings.push_back(wrong_secret);
    for (const std::string& saying : sayings) {
      const int fd = dial(*transport);
      send(fd, saying.data(), saying.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      EXPECT_TRUE(is_closed(*transport, fd)) << saying.substr(0, 20);
      close(fd);
    }
  }
}

/// A wire between two sockets that turns one bit of what passes at a given place.
TEST(Tcp, BitTurnedOnTheWay_IsNoticed) {
  for (const std::size_t place : {std::size_t{40}, std::size_t{200}, std::size_t{5000}}) {
    auto a = make_tcp_transport({}).value(), b = make_tcp_transport({}).value();
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    TcpPlace through = parse_tcp_place(b->address()).value();
    through.port = ntohs(address.sin_port);
    const Memory of_a = make_memory(*a, 8192), of_b = make_memory(*b, 8192);
    const GrantId grant = b->grant(of_b.region, 0, 8192, Access::read).value();
    const PeerId peer = a->connect(to_text(through)).value();
    const int near = accept(listener, nullptr, nullptr), far = dial(*b);
    std::size_t passed = 0;
    const auto relay = [&](int from, int to, bool turns) {
      char bytes[4096];
      const ssize_t got = recv(from, bytes, sizeof bytes, MSG_DONTWAIT);
      if (got <= 0) return;
      const auto count = static_cast<std::size_t>(got);
      if (turns && place >= passed && place < passed + count) bytes[place - passed] ^= 4;
      if (turns) passed += count;
      send(to, bytes, count, MSG_NOSIGNAL);
    };
    Verdicts verdicts;
    const Piece piece{0, 0, 8192};
    a->get(a->open_remote(peer, b->key(grant)).value(), of_a.region, {&piece, 1}, verdicts.done());
    ASSERT_TRUE(Pump({a.get(), b.get()}).until([&] {
      relay(near, far, false);
      relay(far, near, true);
      return verdicts.all_ended();
    }));
    EXPECT_EQ(verdicts.of(Verdict::ok), 0u) << "bit at " << place << ": " << verdicts.text();
    EXPECT_EQ(a->peer_state(peer), PeerState::lost);
    for (const int fd : {near, far, listener}) close(fd);
  }
}

TEST(Tcp, OffLoopbackWithoutTls_CannotListen) {
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "128.0.0.1"}) {
    TcpOptions options;
    options.host = host;
    const auto made = make_tcp_transport(options);
    ASSERT_FALSE(made.ok()) << host;
    EXPECT_EQ(made.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(made.error().message.find(host), std::string::npos) << made.error().message;
  }
  TcpOptions options;
  options.host = "localhost";
  const auto made = make_tcp_transport(options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "'localhost': want a numeric IPv4 or IPv6 address");
  options.host = "0.0.0.0";
  options.insecure = TcpOptions::Insecure::yes;
  EXPECT_TRUE(make_tcp_transport(options).ok());
}

TEST(Tcp, PlainPeerOffLoopback_IsNotConnectedTo) {
  const auto transport = make_tcp_transport({}).value();
  std::string address = transport->address();
  address.replace(address.find("127.0.0.1"), 9, "192.0.2.1");
  const auto peer = transport->connect(address);
  ASSERT_FALSE(peer.ok());
  EXPECT_EQ(peer.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace infos::test
