// SPDX-License-Identifier: Apache-2.0
// Goal: the folder of an identity is private, whole or not there, used by one process, and never
// taken from somebody else.
// Method: folders in a temporary place, with one thing wrong each.
#include "daemon/runtime/peer/identity_dir.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/runtime/folder.h"

namespace infos {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using testing::HasSubstr;

unsigned mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}
NewIdentity first_node() {
  return make_first_node({"lab", "n1", "10.0.0.1:7400", "n1.lab:7400"}, unix_now()).value();
}

TEST(IdentityDir, FirstNode_IsReadBackWithPrivateFiles) {
  const Folder folder;
  const std::string dir = folder / "var/lib/node";
  const NewIdentity made = first_node();
  ASSERT_TRUE(IdentityDir::create(dir, made).ok());
  EXPECT_EQ(mode_of(dir), 0700u);
  for (const auto& entry : fs::directory_iterator(dir))
    EXPECT_EQ(mode_of(entry.path().string()), 0600u) << entry.path();
  const auto opened = IdentityDir::open(dir);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(
      opened->who(),
      (NodeIdentity{"lab", "n1", NodeId{1}, {Role::controller, Role::gateway, Role::worker}}));
  EXPECT_EQ(opened->cluster(), made.cluster);
  ASSERT_TRUE(opened->signer());
  EXPECT_TRUE(check_pair(*opened->signer()).ok());
}

TEST(IdentityDir, Incarnation_GrowsWithEachStart) {
  const Folder folder;
  const std::string dir = folder / "node";
  ASSERT_TRUE(IdentityDir::create(dir, first_node()).ok());
  for (std::uint32_t want = 1; want <= 3; ++want)
    EXPECT_EQ(IdentityDir::open(dir)->next_incarnation().value(), want);
  std::ofstream(dir + "/incarnation") << "three\n";
  EXPECT_EQ(IdentityDir::open(dir)->next_incarnation().error().code, ErrorCode::corrupt);
  std::ofstream(dir + "/incarnation") << "65535\n";
  EXPECT_EQ(IdentityDir::open(dir)->next_incarnation().error().code, ErrorCode::resource_exhausted);
}

TEST(IdentityDir, RenewedCertificate_TakesThePlaceOfTheOld) {
  const Folder folder;
  const std::string dir = folder / "node";
  NewIdentity made = first_node();
  ASSERT_TRUE(IdentityDir::create(dir, made).ok());
  Credential renewed;
  renewed.key = make_key().value();
  renewed.certificate =
      sign_request({made.authority_key, made.authority}, make_request(renewed.key).value(),
                   {"lab", "n1", NodeId{1}, {Role::worker}}, node_validity(unix_now()))
          .value();
  ASSERT_TRUE(IdentityDir::open(dir)->keep(renewed).ok());
  EXPECT_EQ(mode_of(dir + "/node.pem"), 0600u);
  const auto opened = IdentityDir::open(dir);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->who().roles, RoleSet{Role::worker});
}

TEST(IdentityDir, Taken_IsNotTakenAgain) {
  const Folder folder;
  const std::string dir = folder / "node";
  ASSERT_TRUE(IdentityDir::check_free(dir).ok());
  ASSERT_TRUE(IdentityDir::create(dir, first_node()).ok());
  EXPECT_EQ(IdentityDir::create(dir, first_node()).error().code, ErrorCode::already_exists);
  EXPECT_EQ(IdentityDir::check_free(dir).error().code, ErrorCode::already_exists);
  const auto opened = IdentityDir::open(dir);
  ASSERT_TRUE(opened.ok());
  const auto second = IdentityDir::open(dir);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("is in use by another process"));
}

TEST(IdentityDir, FolderOfOthers_KeepsItsMode) {
  const Folder folder;
  const std::string dir = folder / "shared";
  fs::create_directory(dir);
  ::chmod(dir.c_str(), 0755);
  std::ofstream(dir + "/notes.txt") << "mine\n";
  const Status made = IdentityDir::create(dir, first_node());
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("want a folder for this identity alone"));
  EXPECT_EQ(mode_of(dir), 0755u);
  EXPECT_FALSE(fs::exists(dir + "/node.pem"));
}

TEST(IdentityDir, KeyThatOthersCanRead_IsRefused) {
  const Folder folder;
  const std::string dir = folder / "node";
  ASSERT_TRUE(IdentityDir::create(dir, first_node()).ok());
  ::chmod((dir + "/ca.key").c_str(), 0644);
  const auto opened = IdentityDir::open(dir);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("/ca.key has mode 0644, so others may read it"));
}

TEST(IdentityDir, DamagedOrMissingFiles_AreNamed) {
  const Folder folder;
  const auto why = [&](const char* file, const char* content) {
    const std::string dir = folder / file;
    EXPECT_TRUE(IdentityDir::create(dir, first_node()).ok());
    const std::string path = dir + "/" + file;
    if (content)
      std::ofstream(path) << content;
    else
      fs::remove(path);
    const auto opened = IdentityDir::open(dir);
    return opened.ok() ? "opened" : opened.error().message;
  };
  EXPECT_THAT(why("node.pem", "x"), HasSubstr("not a PEM certificate"));
  EXPECT_THAT(why("ca.pem", nullptr), HasSubstr("ca.pem is not there"));
  EXPECT_THAT(why("cluster.json", "{}"), HasSubstr("cluster.json: 'cluster': want a text"));
  EXPECT_THAT(IdentityDir::open(folder / "none").error().message, HasSubstr("infos init"));
}

TEST(ClusterFile, HostileJson_IsRefused) {
  for (const char* text :
       {"", "[]", "{", R"({"cluster": 1})", R"({"cluster":"a","listen":"b","address":"c"})",
        R"({"cluster":"a","listen":"b","address":"c","controllers":[1]})",
        R"({"cluster":"a","listen":"b","address":"c","controllers":[{"node":0,"address":"d"}]})",
        R"({"cluster":"a","listen":"b","address":"c","controllers":[{"node":1}]})"})
    EXPECT_FALSE(parse_cluster_file(text).ok()) << text;
}

}  // namespace
}  // namespace infos
