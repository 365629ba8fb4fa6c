// SPDX-License-Identifier: Apache-2.0
// The tcp transport keeps the contract of transports. Method: the conformance suite, plain.
#include "tests/transports/conformance.h"
#include "transports/tcp/tcp_transport.h"

namespace infos::test {
namespace {

INFOS_TRANSPORT_CONFORMANCE(tcp, [] { return make_tcp_transport({}); });

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
