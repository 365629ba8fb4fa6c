// SPDX-License-Identifier: Apache-2.0
// The gateway's metrics: `infos_*` in seconds and bytes, and the four `vllm:*` names that
// dashboards and routers read. Owns the registry and the handles into it; workers' loads are turned
// into metrics when somebody asks. Updated on the gateway's thread; the registry itself is
// thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "daemon/gateway/gateway.h"

namespace infos {

enum class Outcome : std::uint8_t { ok, rejected, error, cancelled };

/// Handles of one model; they live as long as the registry.
struct ModelMetrics {
  std::array<prometheus::Counter*, 4> requests;  ///< by Outcome
  prometheus::Histogram* ttft;
  prometheus::Histogram* inter_token;
  prometheus::Histogram* e2e;
  prometheus::Counter* prompt_tokens;
  prometheus::Counter* cached_tokens;
  prometheus::Counter* generated_tokens;
};

class GatewayMetrics {
 public:
  GatewayMetrics();

  /// Of a listed model; others share the empty name, so that clients cannot make labels.
  ModelMetrics& model(const std::string& name);
  void response(int status);
  void connections(std::size_t open) { connections_->Set(static_cast<double>(open)); }

  struct Snapshot {
    std::size_t live_requests = 0;
    std::span<const Gateway::WorkerView> workers;
    std::vector<std::string> models;
  };
  /// The text that /metrics answers.
  std::string text(const Snapshot& snapshot) const;
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  std::shared_ptr<prometheus::Registry> registry_;  // shared with whoever registered metrics in it
  prometheus::Family<prometheus::Counter>* requests_;
  prometheus::Family<prometheus::Histogram>* ttft_;
  prometheus::Family<prometheus::Histogram>* inter_token_;
  prometheus::Family<prometheus::Histogram>* e2e_;
  prometheus::Family<prometheus::Counter>* prompt_tokens_;
  prometheus::Family<prometheus::Counter>* cached_tokens_;
  prometheus::Family<prometheus::Counter>* generated_tokens_;
  prometheus::Family<prometheus::Counter>* responses_;
  prometheus::Gauge* connections_;
  std::map<std::string, ModelMetrics> models_;
  std::map<int, prometheus::Counter*> responses_by_status_;
};

}  // namespace infos
