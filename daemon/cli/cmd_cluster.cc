// SPDX-License-Identifier: Apache-2.0
// `infos init` and `infos join`: give this machine the identity of a node, as the first of a new
// cluster or with a token of one that runs. Neither needs an infosd here.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include <boost/json.hpp>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/table.h"
#include "daemon/runtime/peer/address.h"
#include "daemon/runtime/peer/identity_dir.h"
#include "daemon/runtime/peer/join_client.h"

namespace infos::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kDefaultListen = "127.0.0.1:7400";

/// This machine's name as a node name; "" when nothing of it can be used.
std::string host_name() {
  std::array<char, 256> buffer{};
  if (::gethostname(buffer.data(), buffer.size() - 1) != 0) return "";
  std::string name(buffer.data());
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  name = name.substr(0, 63);
  return check_name("node name", name).ok() ? name : "";
}

/// Where this node listens, and what others dial. Both empty: nothing was said.
struct Addresses {
  std::string listen;
  std::string address;
};
Result<Addresses> addresses_of(const Invocation& given) {
  Addresses out;
  out.listen = given.text("listen");
  if (out.listen.empty() && given.has("advertise"))
    return bad_option("advertise", given.text("advertise"), "--listen beside it");
  if (out.listen.empty()) return out;
  const Result<HostPort> listen = split_address(out.listen);
  if (!listen.ok() || listen->port == 0)
    return bad_option("listen", out.listen, "IP:PORT or [IPV6]:PORT, port from 1 to 65535");
  out.address = given.has("advertise") ? given.text("advertise") : out.listen;
  const Result<HostPort> address = split_address(out.address);
  if (!address.ok() || address->port == 0)
    return bad_option("advertise", out.address, "HOST:PORT, port from 1 to 65535");
  if (address->host == "0.0.0.0" || address->host == "::")
    return bad_option(given.has("advertise") ? "advertise" : "listen", out.address,
                      "--advertise with an address that other nodes can dial");
  return out;
}

Result<std::string> node_name(const Invocation& given) {
  const std::string name = given.has("node-name") ? given.text("node-name") : host_name();
  if (name.empty())
    return Error{ErrorCode::invalid_argument,
                 "the host name of this machine is no node name: choose one with --node-name"};
  const Status checked = check_name("--node-name", name);
  if (!checked.ok()) return checked.error();
  return name;
}

/// `fallback`: of --listen; nullptr: the command finds one itself.
void describe_node(po::options_description_easy_init& add, const char* fallback) {
  add("node-name", po::value<std::string>()->value_name("NAME"),
      "name of this node (default: the host name)");
  auto* listen = po::value<std::string>()->value_name("IP:PORT");
  if (fallback) listen->default_value(fallback);
  add("listen", listen,
      fallback ? "where infosd will listen for other nodes; always TLS"
               : "where infosd will listen for other nodes; always TLS (default: the address from "
                 "which this machine reaches the controller, port 7400)");
  add("advertise", po::value<std::string>()->value_name("HOST:PORT"),
      "what other nodes dial (default: --listen)");
  add("dir", po::value<std::string>()->value_name("DIR"),
      "folder for keys and certificates (default: /var/lib/infos/cluster, or "
      "~/.local/state/infos/cluster when not root)");
}

std::string folder_of(const Invocation& given) {
  return given.has("dir") ? given.text("dir") : default_identity_dir();
}

/// What was made, for people or as JSON.
int say(Output output, const std::string& headline, const std::string& dir,
        const NewIdentity& made) {
  const Result<CertificateFacts> facts = read_node_certificate(made.node.certificate);
  const Result<std::string> hash = key_hash(made.authority);
  if (!facts.ok() || !hash.ok())
    return complain(kFailed, facts.ok() ? hash.error() : facts.error());
  const NodeIdentity& who = facts->identity;
  if (output == Output::json) {
    boost::json::object out;
    out["cluster"] = who.cluster;
    out["node"] = who.node.value;
    out["name"] = who.name;
    out["roles"] = to_string(who.roles);
    out["listen"] = made.cluster.listen;
    out["address"] = made.cluster.address;
    out["certificate_expires"] = facts->validity.until;
    out["ca_hash"] = *hash;
    out["dir"] = dir;
    std::fputs(pretty(out).c_str(), stdout);
    return kDone;
  }
  std::printf("%s\n  node      %u, %s, roles %s\n  listens   %s\n  authority %s\n  folder    %s\n",
              headline.c_str(), who.node.value, who.name.c_str(), to_string(who.roles).c_str(),
              made.cluster.listen.c_str(), hash->c_str(), dir.c_str());
  std::printf("next: infosd --cluster-dir %s\n", dir.c_str());
  return kDone;
}

}  // namespace

void describe_init(po::options_description_easy_init add) {
  add("name", po::value<std::string>()->value_name("NAME"), "name of the new cluster");
  describe_node(add, kDefaultListen);
  describe_output(add);
}

int run_init(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  if (!given.has("name"))
    return complain(kUsage, "init: want --name, as in: infos init --name lab");
  const Addresses addresses = INFOS_CLI_TRY(addresses_of(given));
  const std::string name = INFOS_CLI_TRY(node_name(given));
  const std::string cluster = given.text("name"), dir = folder_of(given);
  INFOS_CLI_TRY(check_name("--name", cluster));
  const auto made =
      make_first_node({cluster, name, addresses.listen, addresses.address}, unix_now());
  if (!made.ok()) return complain(kFailed, made.error());
  const Status kept = IdentityDir::create(dir, *made);
  if (!kept.ok()) return complain(kFailed, kept.error());
  return say(output, fmt::format("cluster '{}' has its first node", cluster), dir, *made);
}

void describe_join(po::options_description_easy_init add) {
  add("token", po::value<std::string>()->value_name("TOKEN"), "what `infos token create` printed");
  add("ca-hash", po::value<std::string>()->value_name("sha256:HEX"),
      "hash of the key that the cluster's authority must have");
  describe_node(add, nullptr);
  describe_output(add);
}

int run_join(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  for (const char* name : {"token", "ca-hash"})
    if (!given.has(name))
      return complain(kUsage, fmt::format("join: want --{}; `infos token create` on the controller "
                                          "prints the whole command",
                                          name));
  const Addresses addresses = INFOS_CLI_TRY(addresses_of(given));
  JoinWish wish;
  wish.server = given.words[0];
  wish.token = given.text("token");
  wish.authority_hash = given.text("ca-hash");
  wish.name = INFOS_CLI_TRY(node_name(given));
  wish.listen = addresses.listen;
  wish.address = addresses.address;
  // Before the token is spent.
  const std::string dir = folder_of(given);
  const Status free = IdentityDir::check_free(dir);
  if (!free.ok()) return complain(kFailed, free.error());
  const auto made = join_cluster(wish);
  if (!made.ok())
    return complain(kFailed, "cannot join: " + safe_for_terminal(made.error().message));
  const Status kept = IdentityDir::create(dir, *made);
  if (!kept.ok()) return complain(kFailed, kept.error());
  return say(output, fmt::format("this machine joined cluster '{}'", made->cluster.cluster), dir,
             *made);
}

}  // namespace infos::cli
