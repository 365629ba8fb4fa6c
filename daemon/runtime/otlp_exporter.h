// SPDX-License-Identifier: Apache-2.0
// Sends texts to an OpenTelemetry collector (POST URL/v1/traces), on a thread of its own, with a
// bounded queue: a collector that is slow or gone costs traces, never requests. Counts what it
// drops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "topology/base/result.h"

namespace infos {

class OtlpExporter {
 public:
  struct Counts {
    std::uint64_t sent = 0, dropped = 0;  ///< texts
    std::string last_error;
  };
  /// `url`: http:// or https://, without path as collectors are named (":4318"), or with one.
  /// Errors: invalid_argument.
  static Result<std::unique_ptr<OtlpExporter>> create(const std::string& url);
  /// Gives up what is not sent yet.
  ~OtlpExporter();
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  /// Any thread; never blocks on the network.
  void send(std::string text);
  Counts counts() const;

 private:
  struct State;
  explicit OtlpExporter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace infos
