// SPDX-License-Identifier: Apache-2.0
// infosd's command line as plain values. Decides what is allowed to be written there; never reads a
// file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/log.h"
#include "topology/base/result.h"
#include "topology/base/units.h"

namespace infos {

/// `--model NAME=PATH`.
struct QuickModel {
  std::string name;
  std::string source;
};

struct InfosdOptions {
  enum class Ask { serve, help, version };
  Ask ask = Ask::serve;
  std::string listen_address = "127.0.0.1";
  std::uint16_t listen_port = 8080;
  std::string state_file;  ///< empty: nothing outlives the process
  std::string config_file;
  std::vector<QuickModel> models;
  std::uint32_t threads = 0;  ///< these five: of every --model
  std::string cores;
  std::string kv_memory;
  std::uint32_t block_tokens = 16;
  std::uint32_t max_running = 64;
  std::string record_file;
  std::string api_keys_file;
  std::string otlp_url;      ///< OpenTelemetry collector for traces; empty: none
  std::string cluster_dir;   ///< empty: the only node
  std::string peer_listen;   ///< HOST:PORT; empty: as the cluster's folder says
  double decode_prefill_cost = 1.5;
  std::string kv_transports;  ///< of every worker here that moves KV; empty: its own choice
  std::string admin_socket;  ///< empty: no admin API
  bool insecure = false;
  Duration drain_limit = seconds(15);
  Duration silence_limit = seconds(30);
  LogLevel log_level = LogLevel::info;
  std::string log_level_word = "info";
  LogFormat log_format = LogFormat::text;
};

/// Errors: invalid_argument, naming the option, the value and the values allowed.
Result<InfosdOptions> parse_infosd_options(int argc, const char* const* argv);
std::string infosd_help();

/// The spec that `--model` and its options stand for, as YAML. Requires: models is not empty.
std::string quick_spec(const InfosdOptions& options);

}  // namespace infos
