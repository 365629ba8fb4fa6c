// SPDX-License-Identifier: Apache-2.0
// Goal: `infos init` and `infos join` make a node, or say in one sentence why not.
// Method: runs the program, against a controller of this process.
#include <gmock/gmock.h>

#include <boost/json.hpp>

#include "daemon/runtime/peer/identity_dir.h"
#include "tests/cli/program.h"
#include "tests/peer/join_support.h"
#include "tests/runtime/folder.h"

namespace infos {
namespace {

using test::Authority;
using test::Controller;
using test::Folder;
using test::run_infos;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ClusterCli, Init_MakesTheFirstNode) {
  const Folder folder;
  const std::string dir = folder / "one";
  const auto made = run_infos({"init", "--name", "lab", "--node-name", "n1", "--listen",
                               "10.0.0.1:7400", "--dir", dir, "-o", "json"});
  ASSERT_EQ(made.code, 0) << made.output;
  const auto said = boost::json::parse(made.output).as_object();
  EXPECT_EQ(said.at("cluster").as_string(), "lab");
  EXPECT_EQ(said.at("roles").as_string(), "controller,gateway,worker");
  const auto opened = IdentityDir::open(dir);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->who().node, NodeId{1});
  EXPECT_EQ(opened->cluster().address, "10.0.0.1:7400");
  EXPECT_EQ(std::string(said.at("ca_hash").as_string()), key_hash(opened->authority()).value());
}

TEST(ClusterCli, Init_SaysWhatIsWrong) {
  const Folder folder;
  const std::string dir = folder / "one";
  const auto why = [&](std::vector<std::string> words, int code) {
    words.insert(words.begin(), "init");
    words.insert(words.end(), {"--dir", dir});
    const auto ran = run_infos(words);
    EXPECT_EQ(ran.code, code) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(why({}, 2), HasSubstr("want --name"));
  EXPECT_THAT(why({"--name", "Lab"}, 2), HasSubstr("--name 'Lab': want 1 to 63"));
  EXPECT_THAT(why({"--name", "lab", "--node-name", "a b"}, 2), HasSubstr("--node-name 'a b'"));
  EXPECT_THAT(why({"--name", "lab", "--listen", "7400"}, 2), HasSubstr("--listen '7400': want"));
  EXPECT_THAT(why({"--name", "lab", "--listen", "0.0.0.0:7400"}, 2),
              HasSubstr("--advertise with an address that other nodes can dial"));
  EXPECT_FALSE(std::filesystem::exists(dir));
  EXPECT_THAT(why({"--name", "lab", "--node-name", "n1"}, 0), HasSubstr("cluster 'lab'"));
  EXPECT_THAT(why({"--name", "lab", "--node-name", "n1"}, 1), HasSubstr("identity already"));
}

TEST(ClusterCli, Join_MakesANodeOnce) {
  const Folder folder;
  const Authority lab;
  Controller controller(lab);
  const std::string token = controller.token().text;
  const JoinWish wish = controller.wish(token);
  const auto join = [&](const std::string& dir) {
    return run_infos({"join", wish.server, "--token", token, "--ca-hash", wish.authority_hash,
                      "--node-name", "n2", "--dir", folder / dir});
  };
  const auto joined = join("two");
  ASSERT_EQ(joined.code, 0) << joined.output;
  EXPECT_THAT(joined.output, StartsWith("this machine joined cluster 'lab'"));
  EXPECT_EQ(IdentityDir::open(folder / "two")->who(),
            (NodeIdentity{"lab", "n2", NodeId{2}, {Role::decode}}));
  EXPECT_THAT(join("three").output, HasSubstr("the token is not good"));
  EXPECT_EQ(join("three").code, 1);
  // A folder that is taken costs no token: it is looked at first.
  EXPECT_THAT(join("two").output, HasSubstr("identity already"));
}

TEST(ClusterCli, Join_SaysWhatIsWrong) {
  EXPECT_THAT(run_infos({"join", "127.0.0.1:1", "--token", "t"}).output,
              HasSubstr("join: want --ca-hash"));
  EXPECT_EQ(run_infos({"join"}).code, 2);
  EXPECT_THAT(run_infos({"token", "create", "--roles", "king"}).output,
              HasSubstr("role 'king': want each of"));
  EXPECT_THAT(run_infos({"token", "list", "--socket", "/nowhere"}).output,
              HasSubstr("is infosd running?"));
}

}  // namespace
}  // namespace infos
