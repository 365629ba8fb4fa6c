// SPDX-License-Identifier: Apache-2.0
// A whole gateway on an ephemeral loopback port with a scripted worker in place of a real one, and
// a blocking HTTP client that says bytes exactly as a test wants them. The gateway runs on its own
// thread; waits end at a generous bound.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "daemon/gateway/gateway.h"
#include "tests/gateway/byte_tokenizer.h"

namespace infos::test {

/// Bound on every wait: reached only by a defect.
constexpr std::chrono::seconds kWaitMax{30};

/// Renders "role:content\n" for each message and "assistant:".
class PlainTemplate final : public ChatTemplate {
 public:
  Result<std::string> render(const Input& input) const override;
};

/// A parsed HTTP response.
struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< chunks joined
  bool complete = false;                       ///< framed to its end
};

/// One connection.
class Client {
 public:
  /// `receive_buffer`: SO_RCVBUF, 0: the kernel's choice.
  explicit Client(std::uint16_t port, int receive_buffer = 0);
  explicit Client(const std::string& unix_path);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes);
  /// Reads the next response, with its body.
  Response read(bool head_only = false);
  /// Reads until `text` has been seen in what came since the last call that took something, and
  /// takes all up to it.
  std::string read_until(std::string_view text);
  /// True when the peer closes (or resets) the connection, all else it sends being dropped.
  bool closed_by_peer();
  void close();
  /// Closes with a reset instead of an orderly end.
  void reset();
  int fd() const { return fd_; }

 private:
  bool more();
  int fd_ = -1;
  std::string in_;
};

std::string post(const std::string& path, const std::string& body, const std::string& headers = "");
std::string get(const std::string& path, const std::string& headers = "",
                const std::string& method = "GET");

class Harness {
 public:
  explicit Harness(GatewayOptions options = {});
  ~Harness();

  /// Runs `action` on the gateway's thread and waits for it.
  void on_gateway(const std::function<void(Gateway&)>& action);
  std::uint16_t port() const { return port_; }

  /// What the worker answers to a Submit: all tokens of this text, one report for each, then the
  /// end. Empty: nothing by itself; the test speaks through say() and end(). Called on the
  /// gateway's thread.
  std::function<std::string(const Submit&)> script;
  /// The next message to the worker of the given kind.
  Submit next_submit();
  Cancel next_cancel();
  void say(const Submit& submit, std::string_view text, std::uint32_t index);
  void end(const Submit& submit, FinishReason reason, std::uint32_t answer_tokens,
           const std::string& message = "");
  void worker_down();
  void worker_up();
  std::size_t live_requests();

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::uint16_t port_ = 0;
};

}  // namespace infos::test
