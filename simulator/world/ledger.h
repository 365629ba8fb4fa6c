// SPDX-License-Identifier: Apache-2.0
// Ledger: what each client asked and was told. Holds every delivered token against the modelled
// model, and every last word against what may end a request; knows nothing of how the cores work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/control/gateway_core.h"
#include "simulator/world/histogram.h"

namespace infos {

class Ledger {
 public:
  Ledger(const GatewayConfig& gateway, std::uint32_t max_context)
      : gateway_(gateway), max_context_(max_context) {}

  void asked(Time now, const Arrive& arrive);
  void gone(RequestId request) { at(request).gone = true; }
  void stopped(RequestId request) { at(request).stopped = true; }

  /// Each returns what is wrong with the effect, empty if nothing.
  std::string told(Time now, const Deliver& effect);
  std::string told(Time now, const Finish& effect);
  std::string told(Time now, const Reject& effect);

  bool is_open(RequestId request) const { return !entries_[request.value - 1].ended; }
  std::uint64_t open() const { return open_; }
  std::string first_open() const;

  std::map<std::string, std::uint64_t> outcomes;
  std::uint64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, retries = 0, hash = 0;
  Histogram first_token, inter_token, whole_answer;

 private:
  struct Entry {
    Time asked;
    Time last_token;
    Time deadline = kNever;
    std::uint64_t chain = 0;
    std::uint64_t seed = 0;
    std::uint32_t prompt_tokens = 0;
    std::uint32_t max_new_tokens = 0;
    std::uint32_t delivered = 0;
    std::uint32_t stop_token_at = 0;  ///< into stop_tokens_, 1-based; 0: none
    bool gone = false, stopped = false, ended = false;
  };
  Entry& at(RequestId request) { return entries_[request.value - 1]; }
  bool is_stop(const Entry& entry, TokenId token) const;
  std::string end(Entry& entry, const std::string& outcome);

  GatewayConfig gateway_;
  std::uint32_t max_context_;
  std::vector<Entry> entries_;  ///< request n is entry n - 1
  std::vector<std::vector<TokenId>> stop_tokens_;
  std::uint64_t open_ = 0;
};

}  // namespace infos
