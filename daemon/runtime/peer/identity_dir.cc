// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/peer/identity_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>

#include <boost/json.hpp>

namespace infos {
namespace {

namespace json = boost::json;

constexpr std::size_t kFileBytesMax = 64u << 10;
/// Fits into 16 bits of a request's id and, shifted by 14, into a generation.
constexpr std::uint32_t kIncarnationMax = 0xffff;

Error system_error(const std::string& what) {
  return {ErrorCode::io, fmt::format("{}: {}", what, std::strerror(errno))};
}

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// A crash leaves the old file or the new one.
Status replace_file(const std::string& dir, const std::string& name, std::string_view bytes) {
  const std::string path = dir + "/" + name, temporary = path + ".new";
  ::unlink(temporary.c_str());
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return system_error("cannot create " + temporary);
  INFOS_TRY(write_all(file.get(), bytes, temporary));
  if (::fchmod(file.get(), 0600) != 0 || ::fsync(file.get()) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0)
    return system_error("cannot keep " + path);
  const UniqueFd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return system_error("cannot sync " + dir);
  return {};
}

/// Errors: not_found, corrupt, io.
Result<std::string> read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT)
    return Error{ErrorCode::not_found, fmt::format("{} is not there", path)};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) return system_error("cannot open " + path);
  if ((info.st_mode & 077) != 0)
    return Error{ErrorCode::corrupt, fmt::format("{} has mode {:04o}, so others may read it: want "
                                                 "0600, and keys that were never shown to others",
                                                 path, info.st_mode & 07777)};
  std::string out(kFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < out.size()) {
    const ssize_t got = ::read(file.get(), out.data() + size, out.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read " + path);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kFileBytesMax)
    return Error{ErrorCode::corrupt,
                 fmt::format("{} is longer than {} bytes", path, kFileBytesMax)};
  out.resize(size);
  return out;
}

Result<UniqueFd> lock_folder(const std::string& path) {
  UniqueFd lock(::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return system_error(fmt::format("cannot open {}/lock", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return system_error(fmt::format("cannot lock {}/lock", path));
  return Error{ErrorCode::unavailable,
               fmt::format("{} is in use by another process; one node has one daemon", path)};
}

/// A folder that is there already must be a private one or empty: the mode of any other is not ours
/// to change.
Status make_folder(const std::string& path) {
  std::error_code failed;
  const auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, failed);
  if (failed)
    return Error{ErrorCode::io,
                 fmt::format("cannot create {}: {}", parent.string(), failed.message())};
  if (::mkdir(path.c_str(), 0700) == 0) return {};
  struct stat info {};
  if (errno != EEXIST || ::stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return system_error("cannot create the folder " + path);
  if ((info.st_mode & 077) == 0) return {};
  if (!std::filesystem::is_empty(path, failed) || failed)
    return Error{
        ErrorCode::already_exists,
        fmt::format("{} is there, is not empty and has mode {:04o}: want a folder for this "
                    "identity alone",
                    path, info.st_mode & 07777)};
  if (::chmod(path.c_str(), 0700) != 0) return system_error("cannot set the mode of " + path);
  return {};
}

Result<std::string> text_member(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (!value || !value->is_string())
    return Error{ErrorCode::corrupt, fmt::format("cluster.json: '{}': want a text", name)};
  return std::string(value->as_string());
}

Result<ControllerAddress> controller_of(const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* node = object ? object->if_contains("node") : nullptr;
  const bool whole = node && node->is_int64() && node->as_int64() >= 1 &&
                     node->as_int64() <= static_cast<std::int64_t>(kNodeIdMax);
  if (!whole)
    return Error{ErrorCode::corrupt,
                 fmt::format("cluster.json: 'controllers': want objects with a 'node' from 1 to {}",
                             kNodeIdMax)};
  ControllerAddress out;
  out.node = NodeId{static_cast<std::uint32_t>(node->as_int64())};
  out.address = INFOS_TRY(text_member(*object, "address"));
  return out;
}

}  // namespace

std::string to_json(const ClusterFile& file) {
  json::array controllers;
  for (const ControllerAddress& controller : file.controllers)
    controllers.push_back(
        json::object{{"node", controller.node.value}, {"address", controller.address}});
  return json::serialize(json::object{{"cluster", file.cluster},
                                      {"listen", file.listen},
                                      {"address", file.address},
                                      {"controllers", std::move(controllers)}}) +
         "\n";
}

Result<ClusterFile> parse_cluster_file(std::string_view text) {
  json::error_code failed;
  const json::value value = json::parse(text, failed);
  if (failed || !value.is_object())
    return Error{ErrorCode::corrupt, "cluster.json: want a JSON object"};
  const json::object& object = value.as_object();
  ClusterFile out;
  out.cluster = INFOS_TRY(text_member(object, "cluster"));
  out.listen = INFOS_TRY(text_member(object, "listen"));
  out.address = INFOS_TRY(text_member(object, "address"));
  const json::value* controllers = object.if_contains("controllers");
  if (!controllers || !controllers->is_array())
    return Error{ErrorCode::corrupt, "cluster.json: 'controllers': want a list"};
  for (const json::value& controller : controllers->as_array())
    out.controllers.push_back(INFOS_TRY(controller_of(controller)));
  return out;
}

Result<NewIdentity> make_first_node(const FirstNode& wish, UnixSeconds now) {
  const NodeIdentity who{
      wish.cluster, wish.name, NodeId{1}, {Role::controller, Role::gateway, Role::worker}};
  INFOS_TRY(check_name("node name", wish.name));
  NewIdentity out;
  const Credential authority = INFOS_TRY(make_authority(wish.cluster, now));
  out.authority = authority.certificate;
  out.authority_key = authority.key;
  out.node.key = INFOS_TRY(make_key());
  const std::string request = INFOS_TRY(make_request(out.node.key));
  out.node.certificate = INFOS_TRY(sign_request(authority, request, who, node_validity(now)));
  out.cluster = {wish.cluster, wish.listen, wish.address, {{NodeId{1}, wish.address}}};
  return out;
}

namespace {

Status refuse_taken(const std::string& path) {
  if (!std::filesystem::exists(path + "/node.pem")) return {};
  return Error{ErrorCode::already_exists,
               fmt::format("{} holds a node's identity already: choose another folder, or remove "
                           "it if that node is gone for good",
                           path)};
}

}  // namespace

Status IdentityDir::check_free(const std::string& path) {
  INFOS_TRY(make_folder(path));
  const UniqueFd lock = INFOS_TRY(lock_folder(path));
  return refuse_taken(path);
}

Status IdentityDir::create(const std::string& path, const NewIdentity& identity) {
  INFOS_TRY(check_pair(identity.node));
  INFOS_TRY(make_folder(path));
  const UniqueFd lock = INFOS_TRY(lock_folder(path));
  INFOS_TRY(refuse_taken(path));
  INFOS_TRY(replace_file(path, "ca.pem", identity.authority));
  if (!identity.authority_key.empty())
    INFOS_TRY(replace_file(path, "ca.key", identity.authority_key));
  INFOS_TRY(replace_file(path, "cluster.json", to_json(identity.cluster)));
  return replace_file(path, "node.pem", identity.node.key + identity.node.certificate);
}

Result<IdentityDir> IdentityDir::open(const std::string& path) {
  if (!std::filesystem::exists(path + "/node.pem"))
    return Error{ErrorCode::not_found,
                 fmt::format("{} holds no node's identity: make a cluster with `infos init` or let "
                             "this machine join one with `infos join`",
                             path)};
  IdentityDir out;
  out.path_ = path;
  out.lock_ = INFOS_TRY(lock_folder(path));
  out.identity_.authority = INFOS_TRY(read_file(path + "/ca.pem"));
  Result<std::string> key = read_file(path + "/ca.key");
  if (!key.ok() && key.error().code != ErrorCode::not_found) return key.error();
  if (key.ok()) out.identity_.authority_key = *std::move(key);
  // Both readers look for their own kind of block.
  const std::string node = INFOS_TRY(read_file(path + "/node.pem"));
  out.identity_.node = {node, node};
  INFOS_TRY(check_pair(out.identity_.node));
  const std::string cluster = INFOS_TRY(read_file(path + "/cluster.json"));
  out.identity_.cluster = INFOS_TRY(parse_cluster_file(cluster));
  const CertificateFacts facts = INFOS_TRY(read_node_certificate(node));
  out.who_ = facts.identity;
  if (out.who_.cluster != out.identity_.cluster.cluster)
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: cluster.json says cluster '{}', the certificate says '{}'", path,
                             out.identity_.cluster.cluster, out.who_.cluster)};
  return out;
}

std::optional<Credential> IdentityDir::signer() const {
  if (identity_.authority_key.empty()) return std::nullopt;
  return Credential{identity_.authority_key, identity_.authority};
}

Result<std::uint32_t> IdentityDir::next_incarnation() {
  const Result<std::string> last = read_file(path_ + "/incarnation");
  if (!last.ok() && last.error().code != ErrorCode::not_found) return last.error();
  std::uint32_t count = 0;
  if (last.ok()) {
    const auto [end, code] = std::from_chars(last->data(), last->data() + last->size(), count);
    if (code != std::errc() || std::string_view(end) != "\n")
      return Error{ErrorCode::corrupt,
                   fmt::format("{}/incarnation: want a whole number and a line break", path_)};
  }
  if (count >= kIncarnationMax)
    return Error{
        ErrorCode::resource_exhausted,
        fmt::format("{}/incarnation: this node has been started {} times: let it join anew", path_,
                    count)};
  INFOS_TRY(replace_file(path_, "incarnation", fmt::format("{}\n", count + 1)));
  return count + 1;
}

Status IdentityDir::keep(const Credential& renewed) {
  INFOS_TRY(replace_file(path_, "node.pem", renewed.key + renewed.certificate));
  identity_.node = renewed;
  return {};
}

std::string default_identity_dir() {
  if (::geteuid() == 0) return "/var/lib/infos/cluster";
  const char* state = ::getenv("XDG_STATE_HOME");
  if (state && *state) return std::string(state) + "/infos/cluster";
  const char* home = ::getenv("HOME");
  return std::string(home ? home : ".") + "/.local/state/infos/cluster";
}

}  // namespace infos
