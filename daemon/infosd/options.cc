// SPDX-License-Identifier: Apache-2.0
#include "daemon/infosd/options.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>

#include <boost/program_options.hpp>

#include "daemon/runtime/worker_args.h"

namespace infos {
namespace {

namespace po = boost::program_options;

Error refuse(std::string_view option, std::string_view value, std::string_view wanted) {
  return Error{ErrorCode::invalid_argument,
               fmt::format("--{} '{}': want {}", option, value.substr(0, 200), wanted)};
}

/// An option with one value; an empty default means that it may be left out.
struct TextOption {
  const char* name;
  const char* fallback;
  const char* help;
};
constexpr TextOption kTextOptions[] = {
    {"listen", "127.0.0.1:8080", "address:port of the HTTP API; port 0: any free one, printed"},
    {"config", "", "YAML file with the spec to serve"},
    {"state", "", "SQLite file that keeps the desired state over restarts"},
    {"cluster-dir", "",
     "folder that `infos init` or `infos join` made: this is a node of a cluster"},
    {"peer-listen", "", "address:port for the other nodes (default: as the folder says)"},
    {"decode-prefill-cost", "1.5",
     "how much dearer a prompt counts on a decode worker; 1e9: never where another can compute it"},
    {"kv-transports", "",
     "how workers here may move keys and values, the best first: some of shm, tcp, ucx, verbs with "
     "commas between, or none (default: shm,tcp)"},
    {"threads", "", "compute threads of each --model (default: all cores)"},
    {"cores", "", "cores to pin each --model to, e.g. 0-3,8"},
    {"kv-memory", "", "memory of the KV pool of each --model, e.g. 2GiB"},
    {"block-tokens", "16", "tokens in one KV block of each --model"},
    {"max-running", "64", "sequences in one batch of each --model"},
    {"otlp", "", "OpenTelemetry collector that request traces go to, e.g. http://127.0.0.1:4318"},
    {"api-keys", "", "file with one API key a line; without it none is asked for"},
    {"admin-socket", "", "path of the Unix socket of the admin API (mode 0600)"},
    {"record", "", "write every event to this file, for `infos simulate --replay`"},
    {"drain-timeout", "15s", "how long running requests may take to end after SIGTERM"},
    {"silence-limit", "30s", "a worker without progress for so long is killed"},
    {"log-level", "info", "debug, info, warn, error or off"},
    {"log-format", "text", "text or json"},
};

po::options_description describe() {
  po::options_description all("usage: infosd [options]\n\noptions");
  auto add = all.add_options();
  add("model", po::value<std::vector<std::string>>()->composing(),
      "name=PATH (or PATH): serve this model; may be repeated");
  for (const TextOption& option : kTextOptions) {
    auto* value = po::value<std::string>();
    if (*option.fallback) value->default_value(option.fallback);
    add(option.name, value, option.help);
  }
  add("insecure", "allow --listen off loopback without TLS");
  add("version", "print the version");
  add("help,h", "print this");
  return all;
}

Status parse_listen(std::string_view text, InfosdOptions& options) {
  const std::size_t colon = text.rfind(':');
  constexpr std::string_view kWanted =
      "ADDRESS:PORT, e.g. 127.0.0.1:8080 or [::1]:8080, port from 0 to 65535";
  if (colon == std::string_view::npos || colon == 0) return refuse("listen", text, kWanted);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, code] =
      std::from_chars(port.data(), port.data() + port.size(), options.listen_port);
  if (code != std::errc() || end != port.data() + port.size())
    return refuse("listen", text, kWanted);
  std::string_view address = text.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  options.listen_address = address;
  return {};
}

Result<std::uint32_t> parse_count(std::string_view option, std::string_view text, std::uint32_t low,
                                  std::uint32_t high) {
  std::uint32_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < low || value > high)
    return refuse(option, text, fmt::format("a whole number from {} to {}", low, high));
  return value;
}

Status parse_models(const std::vector<std::string>& texts, InfosdOptions& options) {
  std::set<std::string> names;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    QuickModel model;
    if (equals == std::string::npos)
      model = {std::filesystem::path(text).stem().string(), text};
    else
      model = {text.substr(0, equals), text.substr(equals + 1)};
    if (model.name.empty() || model.source.empty()) return refuse("model", text, "NAME=PATH");
    // A stored spec must mean the same after a restart from another folder.
    std::error_code failed;
    const std::filesystem::path absolute = std::filesystem::absolute(model.source, failed);
    if (!failed) model.source = absolute.string();
    if (!names.insert(model.name).second) return refuse("model", text, "each name once");
    options.models.push_back(std::move(model));
  }
  return {};
}

/// Options that are only copied or parsed on their own.
Status take_words(const po::variables_map& given, InfosdOptions& options) {
  const auto word = [&](const char* name) {
    return given.count(name) ? given[name].as<std::string>() : std::string();
  };
  options.config_file = word("config");
  options.state_file = word("state");
  options.cores = word("cores");
  options.kv_memory = word("kv-memory");
  options.cluster_dir = word("cluster-dir");
  options.peer_listen = word("peer-listen");
  const std::string cost = word("decode-prefill-cost");
  const auto [end, code] =
      std::from_chars(cost.data(), cost.data() + cost.size(), options.decode_prefill_cost);
  if (code != std::errc() || end != cost.data() + cost.size() ||
      !(options.decode_prefill_cost >= 1 && options.decode_prefill_cost <= 1e9))
    return refuse("decode-prefill-cost", cost, "a number from 1 to 1e9");
  options.kv_transports = word("kv-transports");
  if (!options.kv_transports.empty() &&
      !parse_worker_options({{"kv_transports", options.kv_transports}}).ok())
    return refuse("kv-transports", options.kv_transports,
                  "none, or some of shm, tcp, ucx, verbs with commas between");
  if (!options.peer_listen.empty() && options.cluster_dir.empty())
    return refuse("peer-listen", options.peer_listen, "--cluster-dir DIR beside it");
  if (!options.cluster_dir.empty() && options.state_file.empty())
    options.state_file = options.cluster_dir + "/state.db";
  options.api_keys_file = word("api-keys");
  options.otlp_url = word("otlp");
  options.admin_socket = word("admin-socket");
  options.record_file = word("record");
  options.insecure = given.count("insecure") > 0;
  options.log_level_word = word("log-level");
  options.log_level = INFOS_TRY(parse_log_level(options.log_level_word));
  const std::string format = word("log-format");
  if (format != "text" && format != "json") return refuse("log-format", format, "text or json");
  options.log_format = format == "json" ? LogFormat::json : LogFormat::text;
  options.drain_limit = INFOS_TRY(parse_duration(word("drain-timeout")));
  options.silence_limit = INFOS_TRY(parse_duration(word("silence-limit")));
  if (options.silence_limit < milliseconds(20))
    return refuse("silence-limit", word("silence-limit"), "20ms or more");
  return parse_listen(word("listen"), options);
}

Status take_counts(const po::variables_map& given, InfosdOptions& options) {
  if (given.count("threads"))
    options.threads =
        INFOS_TRY(parse_count("threads", given["threads"].as<std::string>(), 1, 4096));
  options.block_tokens =
      INFOS_TRY(parse_count("block-tokens", given["block-tokens"].as<std::string>(), 1, 1024));
  options.max_running =
      INFOS_TRY(parse_count("max-running", given["max-running"].as<std::string>(), 1, 4096));
  return {};
}

/// As a YAML double-quoted scalar.
std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

}  // namespace

Result<InfosdOptions> parse_infosd_options(int argc, const char* const* argv) {
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv).options(describe()).positional({}).run(), given);
    po::notify(given);
  } catch (const po::error& e) {
    return Error{ErrorCode::invalid_argument, fmt::format("{}; see infosd --help", e.what())};
  }
  InfosdOptions options;
  if (given.count("help")) return options.ask = InfosdOptions::Ask::help, options;
  if (given.count("version")) return options.ask = InfosdOptions::Ask::version, options;
  Status status = take_words(given, options);
  if (status.ok()) status = take_counts(given, options);
  if (status.ok() && given.count("model"))
    status = parse_models(given["model"].as<std::vector<std::string>>(), options);
  if (!status.ok()) return status.error();
  if (!options.models.empty() && !options.config_file.empty())
    return Error{ErrorCode::invalid_argument, "--model and --config: want one of them"};
  if (options.models.empty() && options.config_file.empty() && options.state_file.empty() &&
      options.admin_socket.empty() && options.cluster_dir.empty())
    return Error{ErrorCode::invalid_argument,
                 "nothing to serve: give --model NAME=PATH, --config FILE, --state FILE, "
                 "--cluster-dir DIR or --admin-socket PATH"};
  return options;
}

std::string infosd_help() {
  std::ostringstream out;
  out << describe();
  return out.str();
}

std::string quick_spec(const InfosdOptions& options) {
  INFOS_CHECK(!options.models.empty());
  std::string yaml;
  for (const QuickModel& model : options.models) {
    if (!yaml.empty()) yaml += "---\n";
    yaml += fmt::format(
        "apiVersion: infos/v1\nkind: Model\nmetadata: {{name: {}}}\nspec:\n  source: {}\n  "
        "engine:\n",
        yaml_quoted(model.name), yaml_quoted(model.source));
    yaml += fmt::format("    block_tokens: {}\n    max_running: {}\n", options.block_tokens,
                        options.max_running);
    if (options.threads != 0) yaml += fmt::format("    threads: {}\n", options.threads);
    if (!options.cores.empty()) yaml += fmt::format("    cores: {}\n", yaml_quoted(options.cores));
    if (!options.kv_memory.empty())
      yaml += fmt::format("    kv_memory: {}\n", yaml_quoted(options.kv_memory));
  }
  return yaml;
}

}  // namespace infos
