// SPDX-License-Identifier: Apache-2.0
// Goal: a certificate says who a node is in one spelling; one that is foreign, early, late or of
// another key is refused.
// Method: certificates made here with every kind of fault.
#include "daemon/runtime/peer/certificate.h"

#include <gmock/gmock.h>

#include "tests/peer/peer_support.h"

namespace infos {
namespace {

using test::Authority;
using testing::HasSubstr;

TEST(Identity, Uri_SurvivesARoundTrip) {
  const NodeIdentity identity{"lab.eu-1", "n2", NodeId{2}, {Role::worker, Role::controller}};
  EXPECT_EQ(to_uri(identity), "infos://lab.eu-1/node/n2/2?roles=controller,worker");
  EXPECT_EQ(parse_identity_uri(to_uri(identity)).value(), identity);
}

TEST(Identity, OtherSpellings_AreRefused) {
  for (const std::string uri : {
           "",
           "infos://",
           "http://lab/node/n2/2?roles=worker",
           "infos://lab/node/n2/2",
           "infos://lab/node/n2/2?roles=",
           "infos://lab/node/n2/2?roles=king",
           "infos://lab/node/n2/2?roles=worker,worker",
           "infos://lab/node/n2/2?roles=worker,gateway",  // not in order
           "infos://lab/node/n2/02?roles=worker",
           "infos://lab/node/n2/0?roles=worker",
           "infos://lab/node/n2/65536?roles=worker",
           "infos://lab/node/n2/-1?roles=worker",
           "infos://Lab/node/n2/2?roles=worker",
           "infos://lab/node/n2/2/3?roles=worker",
           "infos://lab/node//2?roles=worker",
           "infos://lab/node/n 2/2?roles=worker",
           "infos://lab/node/n2/2?roles=worker ",
           "infos://lab/node/-n/2?roles=worker",
           "infos:///node/n2/2?roles=worker",
       })
    EXPECT_FALSE(parse_identity_uri(uri).ok()) << uri;
  EXPECT_FALSE(
      parse_identity_uri("infos://" + std::string(64, 'a') + "/node/n2/2?roles=worker").ok());
}

TEST(Identity, Roles_AreASet) {
  const RoleSet set = parse_roles("decode,gateway").value();
  EXPECT_TRUE(set.has(Role::gateway));
  EXPECT_FALSE(set.has(Role::worker));
  EXPECT_TRUE(RoleSet::all().covers(set));
  EXPECT_FALSE(set.covers(RoleSet::all()));
  EXPECT_FALSE(set.meets({Role::controller}));
  EXPECT_THAT(parse_roles("decode,,gateway").error().message, HasSubstr("role '': want each of"));
}

TEST(Certificate, OfANode_SaysWhoItIsAndForHowLong) {
  const Authority lab;
  const NodeIdentity identity = lab.identity(3, {Role::decode});
  const Credential node = lab.issue(identity, {1000, 2000});
  const auto facts = verify_node_certificate(lab.certificate(), node.certificate, unix_now());
  EXPECT_FALSE(facts.ok());
  const auto read = read_node_certificate(node.certificate).value();
  EXPECT_EQ(read.identity, identity);
  EXPECT_EQ(read.validity.from, 1000);
  EXPECT_EQ(read.validity.until, 2000);
  EXPECT_TRUE(check_pair(node).ok());
}

TEST(Certificate, HundredsOfThem_AllRead) {
  // Serial numbers are random, and DER has one spelling for each number.
  const Authority lab;
  const std::string key = make_key().value();
  const std::string request = make_request(key).value();
  for (int i = 0; i < 300; ++i) {
    const auto made = sign_request(lab.credential(), request, lab.identity(2, {Role::worker}),
                                   node_validity(unix_now()));
    ASSERT_TRUE(read_node_certificate(made.value()).ok());
  }
}

TEST(Certificate, Verification_NamesTheFault) {
  const Authority lab, other;
  const UnixSeconds now = unix_now();
  const NodeIdentity identity = lab.identity(3, {Role::decode});
  const Credential good = lab.issue(identity, {now - 10, now + 10});
  EXPECT_EQ(verify_node_certificate(lab.certificate(), good.certificate, now)->identity, identity);
  const auto why = [&](const std::string& certificate, UnixSeconds at) {
    const auto facts = verify_node_certificate(lab.certificate(), certificate, at);
    return facts.ok() ? "verified" : facts.error().message;
  };
  EXPECT_THAT(why(good.certificate, now + 11), HasSubstr("expired"));
  EXPECT_THAT(why(good.certificate, now - 11), HasSubstr("not yet valid"));
  const Credential foreign = other.issue(identity, {now - 10, now + 10});
  EXPECT_NE(why(foreign.certificate, now), "verified");
  EXPECT_NE(why(lab.certificate(), now), "verified");  // the authority is no node
  EXPECT_THAT(why("nonsense", now), HasSubstr("not a PEM certificate"));
}

TEST(Certificate, RequestWithAForeignSignature_IsRefused) {
  const Authority lab;
  std::string request = make_request(make_key().value()).value();
  const NodeIdentity identity = lab.identity(3, {Role::decode});
  EXPECT_TRUE(sign_request(lab.credential(), request, identity, node_validity(unix_now())).ok());
  // The last letters of the body are the signature's.
  const std::size_t at = request.find("\n-----END") - 8;
  request[at] = request[at] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(sign_request(lab.credential(), request, identity, node_validity(unix_now())).ok());
  EXPECT_FALSE(sign_request(lab.credential(), "", identity, node_validity(unix_now())).ok());
}

TEST(Certificate, Proof_HoldsForItsKeyAndMessageOnly) {
  const Authority lab;
  const Credential one = lab.issue(lab.identity(1, {Role::worker}), node_validity(unix_now()));
  const Credential two = lab.issue(lab.identity(2, {Role::worker}), node_validity(unix_now()));
  const std::string proof = sign_message(one.key, "secret").value();
  EXPECT_TRUE(check_message(one.certificate, "secret", proof).ok());
  EXPECT_FALSE(check_message(one.certificate, "Secret", proof).ok());
  EXPECT_FALSE(check_message(two.certificate, "secret", proof).ok());
  EXPECT_FALSE(check_message(one.certificate, "secret", "").ok());
  EXPECT_FALSE(check_pair({one.key, two.certificate}).ok());
}

TEST(Certificate, KeyHash_IsOfTheAuthoritysKey) {
  const Authority lab, other;
  const std::string hash = key_hash(lab.certificate()).value();
  EXPECT_EQ(hash.size(), 7u + 64u);
  EXPECT_EQ(hash, key_hash(lab.certificate()).value());
  EXPECT_NE(hash, key_hash(other.certificate()).value());
}

}  // namespace
}  // namespace infos
