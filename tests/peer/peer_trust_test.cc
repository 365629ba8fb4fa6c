// SPDX-License-Identifier: Apache-2.0
// Goal: nobody gets a link who cannot prove to be a node of this cluster, of a version that is
// spoken here; certificates are renewed while links run; hostile bytes cost nothing but the
// connection.
// Method: nets with certificates that have one fault each, and a raw TLS client that says anything.
#include <gmock/gmock.h>

#include <array>
#include <atomic>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "tests/peer/peer_support.h"
#include "tests/peer/raw_client.h"

namespace infos {
namespace {

using test::Authority;
using test::hello_of;
using test::kAnyoneSays;
using test::RawClient;
using test::TestNode;
using testing::HasSubstr;
using testing::StartsWith;

/// A member's own credential, for a client that says what it wants.
Credential member(const Authority& lab, std::uint32_t node, RoleSet roles = {Role::worker}) {
  return lab.issue(lab.identity(node, roles), node_validity(unix_now()));
}
bool counted(TestNode& node, std::uint64_t PeerTotals::*counter) {
  return node.until([&](PeerNet& net) { return net.totals().*counter >= 1; });
}

TEST(PeerTrust, NoCertificate_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1));
  RawClient client(one.port());
  EXPECT_EQ(client.refusal(), "it shows no certificate");
  EXPECT_EQ(one.totals().refused, 1u);
}

TEST(PeerTrust, ForeignAuthority_IsRefusedByEitherSide) {
  const Authority lab, foreign;
  TestNode one(lab.options(1)), two(foreign.options(2));
  RawClient client(one.port(), member(foreign, 2));
  EXPECT_EQ(client.read(), std::nullopt);
  ASSERT_TRUE(counted(one, &PeerTotals::tls_failures));
  two.dial(1, one.port());  // refuses the server's certificate
  ASSERT_TRUE(counted(two, &PeerTotals::tls_failures));
  EXPECT_TRUE(one.events().empty());
}

TEST(PeerTrust, ExpiredCertificate_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1));
  const UnixSeconds now = unix_now();
  RawClient client(one.port(), lab.issue(lab.identity(2, {Role::worker}), {now - 100, now - 1}));
  EXPECT_EQ(client.read(), std::nullopt);
  ASSERT_TRUE(counted(one, &PeerTotals::tls_failures));

  PeerNetOptions options = lab.options(2);
  options.node = lab.issue(lab.identity(2, {Role::worker}), {now - 100, now - 1});
  boost::asio::io_context io;
  struct Nobody final : PeerListener {
    void peer_up(const PeerInfo&) override {}
    void peer_down(NodeId, const std::string&) override {}
    void peer_said(NodeId, std::uint16_t, std::string_view) override {}
  } nobody;
  const auto made = PeerNet::make(io, options, nobody);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, StartsWith("the certificate of node n2 expired 1 s ago"));
}

TEST(PeerTrust, TheAuthoritysOwnCertificate_IsNoNode) {
  const Authority lab;
  TestNode one(lab.options(1));
  RawClient client(one.port(), lab.credential());
  const auto last = client.read();
  EXPECT_TRUE(!last || last->kind == PeerFrameKind::refusal);
  EXPECT_TRUE(one.events().empty());
}

TEST(PeerTrust, AnotherIdThanTheCertificates_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1));
  RawClient client(one.port(), member(lab, 2));
  client.send(PeerFrameKind::hello, encode(hello_of(3)));
  EXPECT_EQ(client.refusal(),
            "it says that it is node 3 of cluster 'lab'; its certificate says node 2 of cluster "
            "'lab'");
  RawClient other(one.port(), member(lab, 2));
  Hello hello = hello_of(2);
  hello.cluster = "plant";
  other.send(PeerFrameKind::hello, encode(hello));
  EXPECT_THAT(other.refusal(), HasSubstr("of cluster 'plant'"));
  RawClient own(one.port(), member(lab, 1));
  EXPECT_EQ(own.refusal(), "it has the id of this node, 1");
}

TEST(PeerTrust, AnotherNodeThanWasDialled_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1)), two(lab.options(2));
  one.dial(3, two.port());
  ASSERT_TRUE(counted(one, &PeerTotals::refused));
  EXPECT_TRUE(one.events().empty());
}

TEST(PeerTrust, NodeThatIsNoMemberAnyMore_IsRefused) {
  const Authority lab;
  PeerNetOptions options = lab.options(1);
  options.admits = [](const NodeIdentity& peer) -> Status {
    if (peer.node != NodeId{2}) return {};
    return Error{ErrorCode::not_found, "node 2 was removed from the cluster"};
  };
  TestNode one(options);
  RawClient client(one.port(), member(lab, 2));
  EXPECT_EQ(client.refusal(), "node 2 was removed from the cluster");
  TestNode three(lab.options(3));
  three.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 3/1"));
}

TEST(PeerTrust, Tls12_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1));
  RawClient client(one.port(), member(lab, 2), TLS1_2_VERSION);
  EXPECT_FALSE(client.secured());
  ASSERT_TRUE(counted(one, &PeerTotals::tls_failures));
  EXPECT_TRUE(RawClient(one.port(), member(lab, 2)).secured());
}

TEST(PeerTrust, Plaintext_GetsNoAnswerButTheEnd) {
  const Authority lab;
  TestNode one(lab.options(1));
  boost::asio::io_context io;
  boost::asio::ip::tcp::socket socket(io);
  socket.connect({boost::asio::ip::address_v4::loopback(), one.port()});
  std::string said;
  append_peer_frame(said, PeerFrameKind::hello, encode(hello_of(2)));
  boost::asio::write(socket, boost::asio::buffer(said));
  std::array<char, 256> answer{};
  boost::system::error_code ended;
  const std::size_t got = boost::asio::read(socket, boost::asio::buffer(answer), ended);
  EXPECT_TRUE(ended);
  EXPECT_LE(got, 7u);  // one TLS alert
  EXPECT_TRUE(counted(one, &PeerTotals::tls_failures));
}

TEST(PeerTrust, VersionBefore_IsSpokenAndFeaturesAreShared) {
  const Authority lab;
  PeerNetOptions newer = lab.options(1), older = lab.options(2);
  newer.version = 7;
  newer.version_min = 6;
  newer.features = 0b1110;
  older.version = 6;
  older.version_min = 5;
  older.features = 0b0111;
  TestNode one(newer), two(older);
  two.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1") && two.saw("up 1/1"));
  for (const PeerInfo& info : {one.row(2).info, two.row(1).info}) {
    EXPECT_EQ(info.version, 6u);
    EXPECT_EQ(info.features, 0b0110u);
  }
}

TEST(PeerTrust, VersionBeforeThat_IsRefusedWithBothRanges) {
  const Authority lab;
  PeerNetOptions newer = lab.options(1);
  newer.version = 7;
  newer.version_min = 6;
  TestNode one(newer);
  RawClient client(one.port(), member(lab, 2));
  Hello hello = hello_of(2);
  hello.version = 5;
  hello.version_min = 4;
  client.send(PeerFrameKind::hello, encode(hello));
  EXPECT_EQ(client.refusal(), "peer versions: this node speaks 6 to 7, node 2 speaks 4 to 5");
}

TEST(PeerTrust, FieldOfALaterVersion_IsPassedOver) {
  const Authority lab;
  TestNode one(lab.options(1));
  RawClient client(one.port(), member(lab, 2));
  std::string hello = encode(hello_of(2));
  hello += "\xfa\x01\x03new";  // field 31, text
  client.send(PeerFrameKind::hello, hello);
  ASSERT_TRUE(client.read(PeerFrameKind::welcome));
  ASSERT_TRUE(one.saw("up 2/1"));
}

TEST(PeerTrust, OldIncarnation_IsRefused) {
  const Authority lab;
  TestNode one(lab.options(1));
  Hello hello = hello_of(2);
  hello.incarnation = 5;
  RawClient fresh(one.port(), member(lab, 2));
  fresh.send(PeerFrameKind::hello, encode(hello));
  ASSERT_TRUE(one.saw("up 2/5"));
  hello.incarnation = 4;
  RawClient old(one.port(), member(lab, 2));
  old.send(PeerFrameKind::hello, encode(hello));
  EXPECT_EQ(old.refusal(), "incarnation 4 of node 2 is over: 5 was seen");
  hello.incarnation = 5;
  RawClient twin(one.port(), member(lab, 2));
  twin.send(PeerFrameKind::hello, encode(hello));
  EXPECT_EQ(twin.refusal(), "there is a link already");
  EXPECT_EQ(one.events().size(), 1u);
}

TEST(PeerTrust, HostileFrames_EndTheConnectionOnly) {
  const Authority lab;
  TestNode one(lab.options(1));
  const auto after = [&](const std::function<void(RawClient&)>& say) {
    RawClient client(one.port(), member(lab, 2));
    say(client);
    return client.refusal();
  };
  // A length that nobody will send: refused by its header, which is all that ever comes.
  EXPECT_EQ(after([](RawClient& client) {
              client.send_bytes(std::string("\xff\xff\xff\xff\x01\0", 6) + "abc");
            }),
            "");
  EXPECT_EQ(after([](RawClient& client) {
              client.send(PeerFrameKind::hello, std::string(kGreetingBytesMax + 1, 'x'));
            }),
            "");
  EXPECT_THAT(after([](RawClient& client) { client.send(PeerFrameKind::hello, "\x0a\xff"); }),
              StartsWith("message of a peer: cluster"));
  EXPECT_EQ(after([](RawClient& client) { client.send(kAnyoneSays, "too early"); }),
            "frame of kind 100 before the link is made");
  EXPECT_EQ(after([](RawClient& client) { client.send(PeerFrameKind::welcome, ""); }),
            "frame of kind 2 before the link is made");
  EXPECT_TRUE(one.events().empty());
  EXPECT_EQ(after([](RawClient& client) {
              client.send(PeerFrameKind::hello, encode(hello_of(2)));
              client.read(PeerFrameKind::welcome);
              client.send(PeerFrameKind::hello, encode(hello_of(2)));
            }),
            "frame of kind 1 is not known here");
  ASSERT_TRUE(one.saw("down 2: frame of kind 1 is not known here"));
}

PeerNetOptions open_to_joins(const Authority& lab) {
  PeerNetOptions options = lab.options(1);
  options.join = [](const JoinRequest&, const std::string&, const PeerNetOptions::JoinDone&) {};
  return options;
}

TEST(PeerTrust, StrangersThatSayNothing_AreFew) {
  const Authority lab;
  PeerNetOptions options = open_to_joins(lab);
  options.strangers_max = 4;
  options.greeting_limit = seconds(60);
  TestNode one(options);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(std::make_unique<RawClient>(one.port()));
  RawClient fifth(one.port(), member(lab, 2));
  EXPECT_FALSE(fifth.secured());
  EXPECT_GE(one.totals().strangers_refused, 1u);
  silent.clear();
  TestNode two(lab.options(2));
  two.dial(1, one.port());
  ASSERT_TRUE(one.saw("up 2/1"));
}

TEST(PeerTrust, StrangerThatSaysNothing_IsCutWhenItsTimeIsOver) {
  const Authority lab;
  PeerNetOptions options = open_to_joins(lab);
  options.greeting_limit = milliseconds(100);
  TestNode one(options);
  RawClient silent(one.port());
  EXPECT_EQ(silent.read(), std::nullopt);
}

TEST(PeerTrust, StrangerMayOnlyAskToJoin) {
  const Authority lab;
  PeerNetOptions options = lab.options(1);
  options.join = [](const JoinRequest& request, const std::string&,
                    const PeerNetOptions::JoinDone& done) {
    JoinAnswer answer;
    answer.error = "no room for " + request.name;
    done(answer);
    done(answer);  // the second is nothing
  };
  TestNode one(options);
  RawClient talker(one.port());
  talker.send(PeerFrameKind::hello, encode(hello_of(2)));
  EXPECT_EQ(talker.refusal(), "without a certificate only one request to join is heard");
  RawClient joiner(one.port());
  joiner.send(PeerFrameKind::join_request, encode(JoinRequest{"t", "n2", "", ""}));
  const auto answer = joiner.read();
  ASSERT_TRUE(answer && answer->kind == PeerFrameKind::join_answer);
  EXPECT_EQ(decode_peer<JoinAnswer>(answer->payload)->error, "no room for n2");
  EXPECT_FALSE(joiner.read());
}

// ---- renewal ----

/// A controller and a worker that share a clock which the test moves.
class Renewal : public testing::Test {
 protected:
  Renewal() {
    PeerNetOptions first = lab_.options(1, {Role::controller}), second = options(2);
    first.wall_clock = second.wall_clock;
    first.sign = [this](const NodeIdentity& peer,
                        const std::string& request) -> Result<std::string> {
      ++signed_;
      if (refuses_) return Error{ErrorCode::unavailable, "not now"};
      return sign_request(lab_.credential(), request, peer, node_validity(now_));
    };
    second.keep = [this](const Credential& renewed) -> Status {
      EXPECT_TRUE(check_pair(renewed).ok());
      ++kept_;
      return {};
    };
    one_ = std::make_unique<TestNode>(first);
    two_ = std::make_unique<TestNode>(second);
    two_->dial(1, one_->port());
    EXPECT_TRUE(one_->saw("up 2/1"));
    EXPECT_TRUE(two_->saw("up 1/1"));
  }
  PeerNetOptions options(std::uint32_t node) {
    PeerNetOptions out = lab_.options(node, {Role::worker});
    out.wall_clock = [this] { return now_.load(); };
    return out;
  }
  void pass_hours(double hours) { now_ += static_cast<UnixSeconds>(hours * 3600); }
  bool renewed(TestNode& node, std::uint64_t times) {
    return node.until([&](PeerNet& net) { return net.totals().renewals >= times; });
  }

  Authority lab_;
  std::atomic<UnixSeconds> now_{unix_now()};
  std::atomic<int> signed_{0}, kept_{0};
  std::atomic<bool> refuses_{false};
  std::unique_ptr<TestNode> one_, two_;
};

TEST_F(Renewal, AtTwoThirds_WithANewKeyAndTheSameLink) {
  const UnixSeconds until = two_->with([](PeerNet& net) { return net.validity().until; });
  pass_hours(15.5);
  ASSERT_TRUE(two_->send(1, kAnyoneSays, "before").ok());
  ASSERT_TRUE(one_->saw("said 2/100: before"));
  EXPECT_EQ(two_->totals().renewals, 0u);
  pass_hours(1);  // past two thirds of 24 h and 10 min
  ASSERT_TRUE(renewed(*two_, 1));
  ASSERT_TRUE(renewed(*one_, 1));  // the controller signs for itself
  EXPECT_EQ(kept_, 1);
  EXPECT_GT(two_->with([](PeerNet& net) { return net.validity().until; }), until);
  // The old certificates end; the link lives on with the new ones.
  pass_hours(10);
  ASSERT_TRUE(two_->until([&](PeerNet&) { return true; }));
  ASSERT_TRUE(two_->send(1, kAnyoneSays, "after").ok());
  ASSERT_TRUE(one_->saw("said 2/100: after"));
  EXPECT_EQ(one_->events().at(1), "said 2/100: before");
  EXPECT_EQ(one_->events().at(2), "said 2/100: after");
  // New links are made with them too.
  one_->with([](PeerNet& net) { net.cut(NodeId{2}, "test"); });
  ASSERT_TRUE(one_->saw("up 2/1", 2));
}

TEST_F(Renewal, Refused_EndsTheLinkWithTheCertificate) {
  refuses_ = true;
  pass_hours(17);
  ASSERT_TRUE(two_->until([&](PeerNet&) { return signed_ >= 2; }));
  pass_hours(8);
  // Both certificates end; whoever looks first cuts.
  ASSERT_TRUE(one_->saw("down 2: ") && two_->saw("down 1: "));
  std::vector<std::string> events = one_->events();
  for (std::string& event : two_->events()) events.push_back(std::move(event));
  EXPECT_THAT(events, testing::Contains(HasSubstr("its certificate has expired")));
  EXPECT_EQ(kept_, 0);
}

TEST_F(Renewal, ForgedAnnouncements_CutTheLink) {
  PeerNetOptions options = lab_.options(3);
  options.wall_clock = [this] { return now_.load(); };
  TestNode three(options);
  const auto announce = [&](const Renewed& said) {
    RawClient client(three.port(), member(lab_, 4));
    client.send(PeerFrameKind::hello, encode(hello_of(4)));
    // Node 3 has the smaller id.
    if (!client.read(PeerFrameKind::welcome)) return std::string("no link");
    client.send(PeerFrameKind::renewed, encode(said));
    return client.refusal();
  };
  const Credential other = member(lab_, 5);
  EXPECT_THAT(announce({other.certificate, "x"}), HasSubstr("a renewed certificate for infos://"));
}

TEST_F(Renewal, StolenCertificate_IsNoProof) {
  PeerNetOptions options = lab_.options(3);
  TestNode three(options);
  RawClient client(three.port(), member(lab_, 4));
  client.send(PeerFrameKind::hello, encode(hello_of(4)));
  ASSERT_TRUE(client.read(PeerFrameKind::welcome));
  // Its own id, but a key that this side does not have: certificates are public.
  const Credential newer = member(lab_, 4, {Role::controller});
  client.send(PeerFrameKind::renewed, encode(Renewed{newer.certificate, "no proof"}));
  EXPECT_EQ(client.refusal(), "signature: not made with the certificate's key");
  ASSERT_TRUE(three.saw("down 4: signature"));
}

}  // namespace
}  // namespace infos
