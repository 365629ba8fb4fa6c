// SPDX-License-Identifier: Apache-2.0
// TraceService gives the gateway's request traces away: to `infos trace` through the admin API, and
// to an OpenTelemetry collector once a second. Runs on the node's thread.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <string>

#include "daemon/gateway/gateway.h"
#include "daemon/runtime/otlp_exporter.h"

namespace infos {

class TraceService {
 public:
  /// `otlp_url` empty: no collector. The gateway must outlive it. Errors: invalid_argument.
  static Result<std::unique_ptr<TraceService>> create(boost::asio::io_context& io, Gateway& gateway,
                                                      const std::string& otlp_url,
                                                      std::string node);

 private:
  TraceService(boost::asio::io_context& io, Gateway& gateway, std::string node);
  void tick();

  Gateway& gateway_;
  const std::string node_;
  std::unique_ptr<OtlpExporter> exporter_;
  boost::asio::steady_timer timer_;
};

}  // namespace infos
