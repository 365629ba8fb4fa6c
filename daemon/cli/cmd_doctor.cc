// SPDX-License-Identifier: Apache-2.0
// `infos doctor`: what is wrong with this machine, line by line, and what to do. Changes nothing
// that it does not undo.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/diagnosis.h"
#include "daemon/cli/places.h"
#include "daemon/cli/table.h"
#include "devices/engine/checkpoint.h"
#include "devices/host/plugin.h"

namespace infos::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

Finding judge_port(std::uint16_t port) {
  Finding out{"port", Health::ok, fmt::format("{} is free", port), ""};
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return {"port", Health::fail, fmt::format("no TCP socket: {}", std::strerror(errno)),
            "is IPv4 switched off?"};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    out.health = Health::warn;
    out.seen = fmt::format("127.0.0.1:{}: {}", port, std::strerror(errno));
    out.advice = fmt::format(
        "an infosd that runs already, or another program (ss -ltnp 'sport = :{}'); or start with "
        "--port",
        port);
  }
  ::close(fd);
  return out;
}

Finding judge_state(const std::string& folder) {
  const std::string probe = fmt::format("{}/.infos-doctor-{}", folder, ::getpid());
  std::FILE* file = std::fopen(probe.c_str(), "wx");
  if (!file)
    return {"state folder", Health::fail, fmt::format("{}: {}", folder, std::strerror(errno)),
            "make it writable, or name another with --state-dir"};
  std::fclose(file);
  ::unlink(probe.c_str());
  std::error_code failed;
  const fs::space_info space = fs::space(folder, failed);
  Finding out{"state folder", Health::ok,
              fmt::format("{} is writable, {} free", folder, to_human(Bytes{space.available})), ""};
  if (!failed && space.available < (64u << 20)) {
    out.health = Health::warn;
    out.advice = "nearly full";
  }
  return out;
}

/// Runs `infosd --version`.
Finding judge_daemon() {
  const std::string path = infosd_path();
  if (::access(path.c_str(), X_OK) != 0)
    return {"infosd", Health::fail, path + " is not there", "build or install it beside infos"};
  std::FILE* out = ::popen(("'" + path + "' --version 2>&1").c_str(), "r");
  std::array<char, 256> text{};
  const std::size_t n = out ? std::fread(text.data(), 1, text.size() - 1, out) : 0;
  const int status = out ? ::pclose(out) : -1;
  std::string line(text.data(), n);
  line.resize(std::min(line.size(), line.find('\n')));
  if (status != 0)
    return {"infosd", Health::fail, fmt::format("{} does not run: {}", path, line),
            "build it anew"};
  if (line.find(INFOS_VERSION) == std::string::npos)
    return {"infosd", Health::warn, line,
            fmt::format("infos is {}: install both from one build", INFOS_VERSION)};
  return {"infosd", Health::ok, line, ""};
}

Finding judge_plugin(const std::string& name) {
  const auto plugin = find_plugin(name);
  if (!plugin.ok())
    return {"backend " + name, Health::fail, plugin.error().message,
            "build or install lib/infos, or set INFOS_PLUGIN_DIR"};
  const infos_plugin_api& api = (*plugin)->api();
  std::uint32_t devices = 0;
  infos_error error{};
  if (api.enumerate(&devices, &error) != INFOS_OK || devices == 0)
    return {"backend " + name, Health::fail, fmt::format("no device: {}", error.message), ""};
  infos_device_info info{};
  info.struct_size = sizeof info;
  if (api.describe(0, &info, &error) != INFOS_OK)
    return {"backend " + name, Health::fail, error.message, ""};
  return {"backend " + name, Health::ok,
          fmt::format("{} {}: {}", (*plugin)->name(), (*plugin)->build(), info.name), ""};
}

Finding judge_demo_model() {
  const std::string path = find_demo_model();
  if (path.empty())
    return {"demo model", Health::warn, "not there",
            "infos up then needs --model NAME=PATH; or set INFOS_DEMO_MODEL"};
  const auto checkpoint = open_checkpoint(path);
  if (!checkpoint.ok())
    return {"demo model", Health::fail, checkpoint.error().message, "install it anew"};
  return {"demo model", Health::ok, path, ""};
}

json::value findings_json(const std::vector<Finding>& findings) {
  json::array rows;
  for (const Finding& f : findings)
    rows.push_back({{"what", f.what},
                    {"health", to_string(f.health)},
                    {"seen", f.seen},
                    {"advice", f.advice}});
  return {{"findings", std::move(rows)}};
}

}  // namespace

void describe_doctor(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  add("port", po::value<std::string>()->value_name("N")->default_value("8080"),
      "the port that infosd shall listen on");
  add("state-dir", po::value<std::string>()->value_name("PATH")->default_value("."),
      "the folder of infosd's --state file");
  describe_output(add);
}

int run_doctor(const Invocation& given) {
  const Output output = INFOS_CLI_TRY(output_option(given));
  const auto port =
      static_cast<std::uint16_t>(INFOS_CLI_TRY(count_option(given, "port", 1, 65535)));
  std::vector<Finding> findings = judge_machine(read_machine());
  findings.push_back(judge_port(port));
  findings.push_back(judge_state(given.text("state-dir")));
  findings.push_back(judge_daemon());
  findings.push_back(judge_plugin("cpu"));
  findings.push_back(judge_demo_model());
  std::size_t fails = 0, warns = 0;
  std::vector<std::vector<std::string>> rows;
  for (const Finding& f : findings) {
    fails += f.health == Health::fail ? 1 : 0;
    warns += f.health == Health::warn ? 1 : 0;
    rows.push_back({to_string(f.health), f.what, f.seen});
    if (!f.advice.empty()) rows.push_back({"", "", "-> " + f.advice});
  }
  const std::string text = output == Output::json
                               ? pretty(findings_json(findings))
                               : print_table({"", "WHAT", "SEEN"}, rows) +
                                     fmt::format("\n{} to mend, {} to know\n", fails, warns);
  std::fputs(text.c_str(), stdout);
  return fails == 0 ? kDone : kFailed;
}

}  // namespace infos::cli
