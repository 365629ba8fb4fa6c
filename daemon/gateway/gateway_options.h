// SPDX-License-Identifier: Apache-2.0
// Every bound and choice of the gateway in one place, with safe defaults. Plain values; decides
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/control/gateway_core.h"
#include "topology/base/units.h"

namespace infos {

/// Bounds on what one HTTP client may ask of the gateway.
struct HttpLimits {
  std::uint32_t header_bytes = 16u << 10;       ///< request line and headers; beyond: 431
  std::uint64_t body_bytes = 16u << 20;         ///< beyond: 413
  std::uint64_t body_bytes_total = 512u << 20;  ///< of all bodies being read; beyond: 503
  std::uint32_t connections = 4096;             ///< open at once; beyond: 503 and close
  std::uint32_t connections_per_address =
      1024;  ///< of one peer address (not Unix); beyond: 503 and close
  std::uint32_t requests_per_connection = 100'000;  ///< then `Connection: close`
  std::size_t pipelined_bytes = 64u << 10;          ///< read ahead while an answer is under way
  std::size_t output_bytes =
      1u << 20;  ///< of a stream, not yet taken by the kernel; beyond: dropped
  std::uint32_t send_buffer_bytes = 0;  ///< SO_SNDBUF of a connection; 0: the kernel's choice
  Duration header_timeout =
      seconds(10);  ///< from the first byte of a request to the end of its headers
  Duration body_timeout = seconds(60);   ///< ... to the end of its body
  Duration idle_timeout = seconds(120);  ///< between requests
  Duration write_timeout = seconds(30);  ///< without the client taking a byte that waits for it
  Duration linger =
      seconds(2);  ///< for a client to read the answer to a request that was cut short
};

/// Bounds on what one OpenAI request may contain.
struct RequestLimits {
  std::uint32_t json_depth = 32;
  std::size_t json_bytes =
      128u << 20;  ///< of memory for one body's document, which can take 20 times its text
  std::uint32_t messages = 4096;
  std::uint32_t choices = 128;  ///< n, and n times the number of prompts
  std::uint32_t stop_strings = 4;
  std::uint32_t stop_string_bytes = 1024;
  std::uint32_t stop_token_ids = 64;
  std::uint32_t logit_bias = 1024;
  std::uint32_t top_logprobs = 20;
};

enum class Insecure { refused, allowed };

struct GatewayOptions {
  GatewayConfig core;
  HttpLimits http;
  RequestLimits request;
  RequestId first_request{1};  ///< the next ones count up from it
  std::string api_keys_file;   ///< empty: no keys are asked for. Lines `key [tenant]`, # comments
  Insecure insecure =
      Insecure::refused;   ///< whether TCP off loopback may be listened on without TLS
  std::uint64_t seed = 0;  ///< of default seeds and ids; 0: from the system's entropy
  std::size_t tokenize_aside_bytes = 16u
                                     << 10;  ///< longer prompts are tokenized on the helper thread
  std::string system_fingerprint = "fp_infos";
  std::string server = "infos";  ///< the Server header
};

}  // namespace infos
