// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/worker_args.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "topology/spec/spec.h"

namespace infos {
namespace {

/// A whole number in [low, high], nothing else. Errors: invalid_argument, naming `what`.
Result<std::uint64_t> parse_number(std::string_view what, std::string_view text, std::uint64_t low,
                                   std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < low || value > high)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} '{}': want a whole number from {} to {}", what, text.substr(0, 64),
                             low, high)};
  return value;
}

Result<DType> parse_kv_dtype(std::string_view text) {
  if (text == "auto") return DType::none;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (text == to_string(dtype)) return dtype;
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("option kv_dtype '{}': want auto, f32, f16 or bf16", text.substr(0, 64))};
}

Result<WorkerRole> parse_role(std::string_view text) {
  if (text == "aggregated") return WorkerRole::aggregated;
  if (text == "prefill") return WorkerRole::prefill;
  if (text == "decode") return WorkerRole::decode;
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("option role '{}': want aggregated, prefill or decode", text.substr(0, 64))};
}

Result<KvPolicy> parse_numerics(std::string_view text) {
  for (const KvPolicy policy : {KvPolicy::exact, KvPolicy::bounded, KvPolicy::permissive})
    if (text == to_string(policy)) return policy;
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("option numerics '{}': want exact, bounded or permissive", text.substr(0, 64))};
}

/// "shm,tcp", in order of preference, or "none".
Result<std::vector<TransportKind>> parse_transports(std::string_view text) {
  std::vector<TransportKind> kinds;
  if (text == "none") return kinds;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    bool known = false;
    for (const TransportKind kind :
         {TransportKind::shm, TransportKind::tcp, TransportKind::ucx, TransportKind::verbs}) {
      if (word != to_string(kind)) continue;
      known = true;
      kinds.push_back(kind);
    }
    if (!known)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("option kv_transports: '{}', want none, or some of shm, tcp, ucx, "
                               "verbs with commas between",
                               word.substr(0, 64))};
    if (word.size() == text.size()) return kinds;
    text.remove_prefix(word.size() + 1);
  }
}

/// The options of a worker that others fetch KV from, or that fetches. False: not one of them.
Result<bool> apply_transfer_option(WorkerSettings& settings, const std::string& key,
                                   const std::string& text) {
  TransferLinkOptions& links = settings.links;
  if (key == "role") return settings.role = INFOS_TRY(parse_role(text)), true;
  if (key == "numerics") return settings.numerics = INFOS_TRY(parse_numerics(text)), true;
  if (key == "kv_transports") return links.kinds = INFOS_TRY(parse_transports(text)), true;
  if (key == "kv_listen") return links.listen = text, true;
  if (key == "kv_tls_certificate") return links.tls_certificate = text, true;
  if (key == "kv_tls_key") return links.tls_key = text, true;
  if (key == "kv_tls_authority") return links.tls_authority = text, true;
  if (key == "epoch")
    return settings.epoch.value = INFOS_TRY(parse_number("option epoch", text, 0, UINT64_MAX)),
           true;
  return false;
}

Status set_u32(std::string_view key, std::string_view text, std::uint32_t low, std::uint32_t high,
               std::initializer_list<std::uint32_t*> where) {
  const std::uint64_t value =
      INFOS_TRY(parse_number(fmt::format("option {}", key), text, low, high));
  for (std::uint32_t* field : where) *field = static_cast<std::uint32_t>(value);
  return {};
}

Status apply_option(WorkerSettings& settings, const std::string& key, const std::string& text) {
  if (INFOS_TRY(apply_transfer_option(settings, key, text))) return {};
  EngineOptions& engine = settings.engine;
  WorkerConfig& core = settings.core;
  if (key == "threads") return set_u32(key, text, 0, 4096, {&engine.threads});
  if (key == "tensor_parallel") return set_u32(key, text, 1, 64, {&engine.tensor_parallel});
  if (key == "block_tokens")
    return set_u32(key, text, 1, 1024, {&engine.block_tokens, &core.block_tokens});
  if (key == "max_running")
    return set_u32(key, text, 1, 4096, {&engine.max_sequences, &core.max_running});
  if (key == "max_waiting") return set_u32(key, text, 1, 1u << 20, {&core.max_waiting});
  if (key == "max_step_tokens")
    return set_u32(key, text, 1, 1u << 16, {&engine.max_step_tokens, &core.max_step_tokens});
  if (key == "max_context") return set_u32(key, text, 0, 1u << 24, {&engine.max_context});
  if (key == "device_options") return engine.device_options = text, Status();
  if (key == "cores") return engine.cores = INFOS_TRY(parse_cores(text)), Status();
  if (key == "kv_memory") return engine.kv_memory = INFOS_TRY(parse_bytes(text)), Status();
  if (key == "kv_dtype") return engine.kv_dtype = INFOS_TRY(parse_kv_dtype(text)), Status();
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("option '{}': want threads, cores, tensor_parallel, kv_memory, "
                  "kv_dtype, block_tokens, max_running, "
                  "max_waiting, max_step_tokens, max_context, device_options, role, numerics, "
                  "epoch, kv_transports, kv_listen, kv_tls_certificate, kv_tls_key or "
                  "kv_tls_authority",
                  key.substr(0, 64))};
}

/// Splits "key=value". Errors: invalid_argument.
Result<std::pair<std::string, std::string>> split_option(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("--option '{}': want key=value", text.substr(0, 64))};
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Status apply_argument(WorkerArgs& args, const std::string& name, const std::string& value) {
  constexpr auto kIntMax = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  if (name == "--socket-fd")
    return args.socket_fd = static_cast<int>(INFOS_TRY(parse_number(name, value, 0, kIntMax))),
           Status();
  if (name == "--status-fd")
    return args.status_fd = static_cast<int>(INFOS_TRY(parse_number(name, value, 0, kIntMax))),
           Status();
  if (name == "--parent")
    return args.parent =
               static_cast<std::int64_t>(INFOS_TRY(parse_number(name, value, 1, kIntMax))),
           Status();
  if (name == "--worker")
    return args.spec.worker.value = INFOS_TRY(parse_number(name, value, 1, UINT64_MAX)), Status();
  if (name == "--generation")
    return args.generation.value =
               static_cast<std::uint32_t>(INFOS_TRY(parse_number(name, value, 1, UINT32_MAX))),
           Status();
  if (name == "--model") return args.spec.model = value, Status();
  if (name == "--source") return args.spec.source = value, Status();
  if (name == "--device") return args.spec.device = value, Status();
  if (name == "--record") return args.record = value, Status();
  if (name == "--log-level") return args.log_level = value, Status();
  if (name == "--log-format") return args.log_format = value, Status();
  if (name == "--option") return args.spec.options.insert(INFOS_TRY(split_option(value))), Status();
  return Error{ErrorCode::invalid_argument,
               fmt::format("unknown argument '{}' of infosd worker", name.substr(0, 64))};
}

}  // namespace

std::vector<std::string> to_argv(const WorkerArgs& args) {
  std::vector<std::string> argv{"worker",
                                "--socket-fd",
                                std::to_string(args.socket_fd),
                                "--status-fd",
                                std::to_string(args.status_fd),
                                "--parent",
                                std::to_string(args.parent),
                                "--worker",
                                std::to_string(args.spec.worker.value),
                                "--generation",
                                std::to_string(args.generation.value),
                                "--model",
                                args.spec.model,
                                "--source",
                                args.spec.source,
                                "--device",
                                args.spec.device,
                                "--log-level",
                                args.log_level,
                                "--log-format",
                                args.log_format};
  if (!args.record.empty()) argv.insert(argv.end(), {"--record", args.record});
  for (const auto& [key, value] : args.spec.options)
    argv.insert(argv.end(), {"--option", key + "=" + value});
  return argv;
}

Result<WorkerArgs> parse_worker_args(const std::vector<std::string>& argv) {
  WorkerArgs args;
  if (argv.empty() || argv.front() != "worker" || argv.size() % 2 == 0)
    return Error{ErrorCode::invalid_argument,
                 "infosd worker: want pairs of --name value; infosd starts workers itself"};
  for (std::size_t i = 1; i < argv.size(); i += 2) {
    const Status applied = apply_argument(args, argv[i], argv[i + 1]);
    if (!applied.ok()) return applied.error();
  }
  if (args.socket_fd < 0 || args.status_fd < 0 || args.parent == 0 || !args.spec.worker ||
      !args.generation)
    return Error{ErrorCode::invalid_argument,
                 "infosd worker: --socket-fd, --status-fd, --parent, --worker and --generation are "
                 "needed; infosd starts "
                 "workers itself"};
  return args;
}

Result<WorkerSettings> parse_worker_options(const std::map<std::string, std::string>& options) {
  WorkerSettings settings;
  const auto role = options.find("role");
  if (role != options.end() && role->second != "aggregated")
    settings.links.kinds = {TransportKind::shm, TransportKind::tcp};
  for (const auto& [key, value] : options) {
    const Status applied = apply_option(settings, key, value);
    if (!applied.ok()) return applied.error();
  }
  return settings;
}

}  // namespace infos
