// SPDX-License-Identifier: Apache-2.0
// Goal: exactly those join who hold a good token, once, and only at a controller of the cluster
// that they mean; whatever else comes to the listener gets nothing.
// Method: a controller's net with a store in memory; real joins over TLS; wrong ones of each kind.
#include "daemon/runtime/peer/join_client.h"

#include <gmock/gmock.h>

#include "daemon/runtime/clock.h"
#include "daemon/runtime/peer/token_admin.h"
#include "tests/peer/join_support.h"

namespace infos {
namespace {

using test::Authority;
using test::Controller;
using test::TestNode;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Join, GoodToken_GivesAnIdentityThatMakesALink) {
  const Authority lab;
  Controller controller(lab);
  const auto joined = join_cluster(controller.wish(controller.token().text));
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(joined->cluster.cluster, "lab");
  EXPECT_EQ(joined->cluster.listen, "127.0.0.1:7400");
  EXPECT_THAT(joined->authority_key, "");
  ASSERT_EQ(joined->cluster.controllers.size(), 1u);
  EXPECT_EQ(joined->cluster.controllers[0].node, NodeId{1});

  PeerNetOptions options;
  options.authority = joined->authority;
  options.node = joined->node;
  TestNode two(options);
  two.dial(1, controller.node().port());
  ASSERT_TRUE(controller.node().saw("up 2/1"));
  const PeerRow row = controller.node().row(2);
  EXPECT_EQ(row.info.identity, (NodeIdentity{"lab", "n2", NodeId{2}, {Role::decode}}));
}

TEST(Join, Token_IsGoodOnce) {
  const Authority lab;
  Controller controller(lab);
  const auto token = controller.token();
  ASSERT_TRUE(join_cluster(controller.wish(token.text)).ok());
  const auto again = join_cluster(controller.wish(token.text, "n3"));
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("the token is not good"));
  EXPECT_EQ(controller.members(), 1u);
  EXPECT_EQ(controller.records().at(0).used_by, "n2 (2)");
}

TEST(Join, TwoAtOnceWithOneToken_OneGetsIn) {
  const Authority lab;
  Controller controller(lab);
  const auto token = controller.token();
  std::vector<std::future<bool>> joins;
  for (int i = 0; i < 4; ++i)
    joins.push_back(std::async(std::launch::async, [&, i] {
      return join_cluster(controller.wish(token.text, "n" + std::to_string(i))).ok();
    }));
  int in = 0;
  for (auto& join : joins) in += join.get() ? 1 : 0;
  EXPECT_EQ(in, 1);
}

TEST(Join, RefusedName_LeavesTheTokenGood) {
  const Authority lab;
  Controller controller(lab);
  const auto token = controller.token();
  const auto taken = join_cluster(controller.wish(token.text, "taken"));
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message, HasSubstr("node name 'taken' is taken"));
  EXPECT_TRUE(join_cluster(controller.wish(token.text)).ok());
}

TEST(Join, TokenWithoutTimeLeft_IsRefused) {
  const Authority lab;
  Controller controller(lab);
  const auto token = controller.token();
  UnixSeconds now = unix_now();
  JoinTokens::Options options;
  options.clock = monotonic_now;
  options.wall_clock = [&] { return now; };
  options.post = [](const std::function<void()>& task) { task(); };
  JoinTokens tokens(controller.store(), options);
  std::promise<void> loaded;
  tokens.load([&](const Status& status) {
    EXPECT_TRUE(status.ok());
    loaded.set_value();
  });
  loaded.get_future().get();
  now = token.record.expires - 1;
  EXPECT_TRUE(tokens.take(token.text, "a").ok());
  tokens.give_back(token.record.id);
  now = token.record.expires;
  EXPECT_FALSE(tokens.take(token.text, "a").ok());
}

TEST(Join, OtherAuthority_IsNotToldTheToken) {
  const Authority lab, other;
  Controller controller(lab), foreign(other);
  JoinWish wish = controller.wish(controller.token().text);
  wish.server = foreign.wish("").server;
  const auto joined = join_cluster(wish);
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("does not prove that it belongs to the authority"));
  EXPECT_EQ(foreign.node().totals().joins_refused, 0u);
}

TEST(Join, MemberThatIsNoController_IsNotToldTheToken) {
  const Authority lab;
  Controller controller(lab), worker(lab, {Role::worker});
  JoinWish wish = controller.wish(controller.token().text);
  wish.server = worker.wish("").server;
  const auto joined = join_cluster(wish);
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("is no controller, its roles are worker"));
}

TEST(Join, NodeThatTakesNoJoins_SaysSo) {
  const Authority lab;
  TestNode worker(lab.options(2, {Role::controller}));
  JoinWish wish;
  wish.server = "127.0.0.1:" + std::to_string(worker.port());
  wish.token = "t";
  wish.authority_hash = key_hash(lab.certificate()).value();
  wish.name = "n3";
  const auto joined = join_cluster(wish);
  ASSERT_FALSE(joined.ok());
  EXPECT_THAT(joined.error().message, HasSubstr("it shows no certificate"));
}

TEST(Join, BadTokensOverTheWire_AdmitNobodyAndAreSlowedDown) {
  const Authority lab;
  Controller controller(lab);
  const auto token = controller.token();
  std::size_t slowed = 0;
  for (int i = 0; i < 40; ++i) {
    std::string guess = token.record.id + "." + to_hex(random_secret(32));
    if (i % 4 == 1) guess = to_hex(random_secret(8)) + guess.substr(16);
    if (i % 4 == 2) guess = token.text.substr(0, token.text.size() - 1);
    if (i % 4 == 3) guess = token.record.id;
    const auto joined = join_cluster(controller.wish(guess));
    ASSERT_FALSE(joined.ok());
    slowed += joined.error().message.find("too many wrong tokens") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(slowed, 30u);
  EXPECT_EQ(controller.members(), 0u);
  EXPECT_EQ(controller.node().totals().joins, 0u);
  EXPECT_EQ(controller.node().totals().joins_refused, 40u);
}

TEST(Join, MalformedWish_IsOneSentence) {
  const Authority lab;
  Controller controller(lab);
  JoinWish wish = controller.wish("t");
  wish.authority_hash = "sha256:12";
  EXPECT_THAT(join_cluster(wish).error().message, StartsWith("authority hash 'sha256:12': want"));
  wish = controller.wish("t", "No Name");
  EXPECT_THAT(join_cluster(wish).error().message, StartsWith("node name 'No Name': want"));
  wish = controller.wish("t");
  wish.server = "nowhere";
  EXPECT_THAT(join_cluster(wish).error().message, StartsWith("address 'nowhere': want"));
}

TEST(TokenAdmin, CreateListRevoke_SpeakJson) {
  const auto store = make_memory_store();
  JoinTokens::Options options;
  options.clock = monotonic_now;
  options.post = [](const std::function<void()>& task) { task(); };
  JoinTokens tokens(*store, options);
  TokenAdmin admin(tokens, {"lab", "10.0.0.1:7400", "sha256:ab"});
  const auto ask = [](const auto& call) {
    std::promise<Result<std::string>> answer;
    call([&](Result<std::string> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  };
  const auto made =
      ask([&](auto done) { admin.create(R"({"roles": "decode", "ttl": "10m"})", done); });
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(*made, HasSubstr("\"command\":\"infos join 10.0.0.1:7400 --token "));
  EXPECT_THAT(*made, HasSubstr(" --ca-hash sha256:ab\""));
  const std::string id = tokens.list().at(0).id;
  const auto listed = ask([&](auto done) { admin.list(done); });
  EXPECT_THAT(*listed, HasSubstr("\"state\":\"open\""));
  EXPECT_THAT(*listed, testing::Not(HasSubstr("hash")));
  EXPECT_TRUE(ask([&](auto done) { admin.revoke(R"({"id": ")" + id + "\"}", done); }).ok());
  EXPECT_TRUE(tokens.list().empty());

  const auto refused = [&](const std::string& body) {
    const auto answer = ask([&](auto done) { admin.create(body, done); });
    return answer.ok() ? "" : answer.error().message;
  };
  EXPECT_THAT(refused(R"({"roles": "king"})"), StartsWith("role 'king': want"));
  EXPECT_THAT(refused(R"({"roles": "controller"})"), StartsWith("roles 'controller': want"));
  EXPECT_THAT(refused(R"({"ttl": "8000h"})"), StartsWith("time to live"));
  EXPECT_THAT(refused(R"({"ttl": 5})"), StartsWith("body: 'ttl'"));
  EXPECT_THAT(refused("["), StartsWith("body: want a JSON object"));
}

}  // namespace
}  // namespace infos
