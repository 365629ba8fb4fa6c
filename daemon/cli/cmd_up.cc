// SPDX-License-Identifier: Apache-2.0
// `infos up`: one node in the foreground. Starts infosd beside this program, waits until a model is
// routable, says how to use it, and ends with it.
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "daemon/cli/admin.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/daemon_child.h"
#include "daemon/cli/http_client.h"
#include "daemon/cli/openai.h"
#include "daemon/cli/places.h"
#include "daemon/cli/table.h"
#include "topology/base/units.h"

namespace infos::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kRestartsMax = 3;

/// The socket to give to infosd: the one asked for, the user's own, or, where another infosd
/// answers there, one more.
Result<std::string> admin_socket_for_up(const Invocation& given) {
  std::string path = given.has("admin-socket") ? given.text("admin-socket") : user_admin_socket();
  if (!given.has("admin-socket")) {
    Endpoint taken;
    taken.unix_path = path;
    HttpCall call;
    call.target = "/admin/v1/status";
    call.silence_timeout = seconds(2);
    if (http_call(taken, call).ok()) path = fmt::format("{}.{}", path, ::getpid());
  }
  const fs::path folder = fs::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty() && !fs::exists(folder, failed)) {
    fs::create_directories(folder, failed);
    if (failed)
      return Error{ErrorCode::io,
                   fmt::format("cannot make {}: {}", folder.string(), failed.message())};
    fs::permissions(folder, fs::perms::owner_all, failed);
  }
  struct stat status {};
  if (!folder.empty() && ::stat(folder.c_str(), &status) == 0 && status.st_uid != ::getuid() &&
      ::getuid() != 0)
    return Error{ErrorCode::io,
                 fmt::format("{} belongs to another user; name a socket with --admin-socket",
                             folder.string())};
  return path;
}

/// infosd's arguments. Errors: not_found when there is no model to serve.
Result<std::vector<std::string>> arguments_of(const Invocation& given, const std::string& socket) {
  const std::string port = given.text("port");
  std::vector<std::string> out{"--listen", fmt::format("{}:{}", given.text("host"), port),
                               "--admin-socket", socket};
  for (const char* name :
       {"state", "config", "threads", "cores", "kv-memory", "max-running", "record", "api-keys"}) {
    if (!given.has(name)) continue;
    out.push_back(fmt::format("--{}", name));
    out.push_back(given.text(name));
  }
  if (given.has("insecure")) out.emplace_back("--insecure");
  out.insert(out.end(), {"--log-level", given.text("log-level")});
  std::vector<std::string> models;
  if (given.has("model")) models = given.options["model"].as<std::vector<std::string>>();
  std::error_code ignored;
  const bool has_state = given.has("state") && fs::exists(given.text("state"), ignored);
  if (models.empty() && !given.has("config") && !has_state) {
    const std::string demo = find_demo_model();
    if (demo.empty()) {
      std::string places;
      for (const std::string& place : demo_model_places()) places += "\n  " + place;
      return Error{
          ErrorCode::not_found,
          "the demo model is not there; name one with --model NAME=PATH. Looked for:" + places};
    }
    models.push_back("infos-demo=" + demo);
  }
  for (const std::string& model : models) {
    out.emplace_back("--model");
    out.push_back(model);
  }
  return out;
}

/// One line that is overwritten, on a terminal only.
class ProgressLine {
 public:
  void show(const std::string& text) {
    if (!stderr_is_terminal()) return;
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    shown_ = true;
  }
  void clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

 private:
  bool shown_ = false;
};

/// What infosd's workers do before a model is routable.
struct Progress {
  std::string text = "starting infosd ...";  ///< "infos-demo: starting 45 %"
  std::string failure;                       ///< not empty: every worker has failed for good
};

Progress read_progress(const std::string& socket) {
  Endpoint endpoint;
  endpoint.unix_path = socket;
  HttpCall call;
  call.target = "/admin/v1/workers";
  call.silence_timeout = seconds(2);
  Progress out;
  const auto answer = http_call(endpoint, call);
  if (!answer.ok() || answer->status != 200) return out;
  boost::json::error_code failed;
  const boost::json::value value = boost::json::parse(answer->body, failed);
  const boost::json::array workers = failed ? boost::json::array() : list_of(value, "workers");
  if (workers.empty()) return out;
  out.text.clear();
  std::size_t failures = 0;
  for (const boost::json::value& worker : workers) {
    const std::string model = safe_for_terminal(word_of(worker, "model"));
    const std::string phase = word_of(worker, "phase");
    const double done = std::atof(word_of(worker, "loaded_bytes").c_str());
    const double total = std::atof(word_of(worker, "total_bytes").c_str());
    out.text += fmt::format("{}{}: {}", out.text.empty() ? "" : ", ", model, phase);
    if (total > 0 && done < total) out.text += fmt::format(" {:.0f} %", 100 * done / total);
    // One that never served and keeps ending will not serve: people wait here for an answer.
    if (phase != "failed" && std::atoi(word_of(worker, "restarts").c_str()) < kRestartsMax)
      continue;
    ++failures;
    out.failure += fmt::format("{}model {}: {}", out.failure.empty() ? "" : "; ", model,
                               safe_for_terminal(word_of(worker, "last_exit")));
  }
  if (failures < workers.size()) out.failure.clear();
  return out;
}

void print_banner(const std::string& url, const std::string& socket) {
  Endpoint admin;
  admin.unix_path = socket;
  const auto models = list_models(admin, "");  // there no key is asked for
  const bool locked = !list_models(parse_endpoint(url).value(), "").ok();
  const std::string model = models.ok() && !models->empty() ? models->front() : "MODEL";
  const std::string socket_hint = socket == default_admin_socket() ? "" : " --socket " + socket;
  const std::string url_hint = url == "http://127.0.0.1:8080" ? "" : " --url " + url;
  std::printf("infos is ready: %s\n\n", url.c_str());
  std::printf("  models    %s/v1/models\n  health    %s/ready\n  metrics   %s/metrics\n\n",
              url.c_str(), url.c_str(), url.c_str());
  std::printf(
      "ask it:\n  curl %s/v1/chat/completions -H 'content-type: application/json' %s\\\n"
      "    -d '{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello!\"}]}'\n"
      "  infos chat%s%s %s \"Hello!\"\n",
      url.c_str(), locked ? "-H 'authorization: Bearer KEY' " : "", model.c_str(), url_hint.c_str(),
      locked ? " --api-key KEY" : "", model.c_str());
  std::printf("look:\n  infos get workers%s\n\nCtrl-C ends it.\n", socket_hint.c_str());
  std::fflush(stdout);
}

bool is_ready(const std::string& url) {
  const auto endpoint = parse_endpoint(url);
  if (!endpoint.ok()) return false;
  HttpCall call;
  call.target = "/ready";
  call.silence_timeout = seconds(2);
  const auto answer = http_call(*endpoint, call);
  return answer.ok() && answer->status == 200;
}

/// Follows infosd from its first line to its end.
class UpSession {
 public:
  UpSession(DaemonChild child, int signals, std::string socket)
      : child_(std::move(child)), signals_(signals), socket_(std::move(socket)) {}

  int run() {
    while (true) {
      if (const auto ending = child_.ending()) return finish(*ending);
      while (const auto line = child_.next_line()) take_line(*line);
      if (!url_.empty() && !ready_ && asked_to_stop_ == 0) look_for_readiness();
      wait();
    }
  }

 private:
  void take_line(const std::string& line) {
    const std::size_t at = line.find("url=");
    if (line.starts_with("infosd ready") && at != std::string::npos) {
      url_ = line.substr(at + 4, line.find(' ', at) == std::string::npos
                                     ? std::string::npos
                                     : line.find(' ', at) - at - 4);
    } else if (!line.empty()) {
      std::printf("%s\n", safe_for_terminal(line).c_str());
    }
  }
  void look_for_readiness() {
    ready_ = is_ready(url_);
    if (ready_) {
      progress_.clear();
      return print_banner(url_, socket_);
    }
    const Progress progress = read_progress(socket_);
    progress_.show(progress.text);
    if (progress.failure.empty()) return;
    progress_.clear();
    failure_ = progress.failure;
    ++asked_to_stop_;
    child_.signal(SIGTERM);
  }
  /// Until a signal, output, or the next look.
  void wait() {
    pollfd waiting[2] = {{signals_, POLLIN, 0},
                         {child_.output_ended() ? -1 : child_.output_fd(), POLLIN, 0}};
    const int limit = ready_ && asked_to_stop_ == 0 ? 1000 : 100;
    if (::poll(waiting, 2, limit) <= 0 || (waiting[0].revents & POLLIN) == 0) return;
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD) return;
    progress_.clear();
    // infosd lets requests end after the first, ends at once after the second; the third is not
    // left to it.
    child_.signal(++asked_to_stop_ > 2 ? SIGKILL : SIGTERM);
    std::fputs(
        asked_to_stop_ == 1 ? "\nstopping; once more to stop at once\n" : "\nstopping at once\n",
        stderr);
  }
  int finish(const DaemonChild::Ending& ending) {
    while (const auto line = child_.next_line()) take_line(*line);
    progress_.clear();
    if (!failure_.empty()) return complain(kFailed, failure_);
    if (asked_to_stop_ > 0) return ending.status == 0 || ending.status >= 128 ? kDone : kFailed;
    if (ending.status == kUsage) return kUsage;  // infosd said what was asked wrongly
    if (ending.status == 0) return kDone;
    return complain(kFailed, fmt::format("infosd ended: {}", ending.how));
  }

  DaemonChild child_;
  int signals_;
  std::string socket_;
  std::string url_;
  bool ready_ = false;
  std::string failure_;
  int asked_to_stop_ = 0;
  ProgressLine progress_;
};

}  // namespace

void describe_up(boost::program_options::options_description_easy_init add) {
  namespace po = boost::program_options;
  const auto text = [](const char* word) { return po::value<std::string>()->value_name(word); };
  add("model", po::value<std::vector<std::string>>()->value_name("[NAME=]PATH"),
      "serve this GGUF file or Hugging Face directory; may be repeated; default: the demo model");
  add("config", text("FILE"), "serve what this spec says, in place of --model");
  add("port", text("N")->default_value("8080"), "0: any free one");
  add("host", text("ADDRESS")->default_value("127.0.0.1"),
      "address to listen on; off loopback needs --insecure");
  add("insecure", "allow --host off loopback, without TLS");
  add("state", text("FILE"), "database that keeps what was applied over restarts");
  add("threads", text("N"), "compute threads of each model; default: all cores");
  add("cores", text("LIST"), "pin the threads to these cores, as in 0-3");
  add("kv-memory", text("SIZE"), "memory of each model's KV pool, as in 2GiB");
  add("max-running", text("N"), "sequences that run at once, of each model");
  add("api-keys", text("FILE"), "a line is KEY or KEY TENANT; clients must send a KEY");
  add("record", text("FILE"), "write every event, for `infos simulate --replay`");
  add("admin-socket", text("PATH"), "socket for `infos get`, `infos apply`");
  add("log-level", text("LEVEL")->default_value("warn"), "debug, info, warn, error or off");
}

int run_up(const Invocation& given) {
  INFOS_CLI_TRY(count_option(given, "port", 0, 65535));
  const Result<std::string> socket = admin_socket_for_up(given);
  if (!socket.ok()) return complain(kFailed, socket.error());
  const auto arguments = arguments_of(given, *socket);
  if (!arguments.ok()) return complain(kFailed, arguments.error());
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&wanted, number);
  ::sigprocmask(SIG_BLOCK, &wanted, nullptr);
  const int signals = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) return complain(kFailed, fmt::format("signalfd: {}", std::strerror(errno)));
  Result<DaemonChild> child = DaemonChild::start(infosd_path(), *arguments);
  if (!child.ok()) return complain(kFailed, child.error());
  const int code = UpSession(std::move(child).value(), signals, *socket).run();
  ::close(signals);
  return code;
}

}  // namespace infos::cli
