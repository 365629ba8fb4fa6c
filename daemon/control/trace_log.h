// SPDX-License-Identifier: Apache-2.0
// TraceLog says where the time of each request went: it watches what a GatewayCore is told and
// wishes, live or from a recording, and keeps the spans of the last requests. Bounded; decides
// nothing. Pure: the owner's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/gateway_core.h"

namespace infos {

/// A stretch of a request's time.
struct TraceSpan {
  enum class Kind : std::uint8_t {
    queue,    ///< waiting for a worker
    prefill,  ///< from submission to the first token, or to the end of a split request's first half
    kv,       ///< KV coming from another worker; `layers` says when each of them had landed
    decode,   ///< from the first token of an attempt to its last
  };
  Kind kind = Kind::queue;
  std::uint32_t attempt = 0;     ///< 0: before the first
  Time begin, end;               ///< end < begin: not over
  WorkerRef worker;              ///< who did it; none for the queue
  WorkerRef source;              ///< kv: from whom
  std::uint64_t bytes = 0;       ///< kv
  std::uint32_t tokens = 0;      ///< kv: fetched; decode: drawn
  Duration waited;               ///< kv: of that, with nothing ready to move
  std::vector<Duration> layers;  ///< kv: since begin
  bool over() const { return end >= begin; }
};
const char* to_string(TraceSpan::Kind kind);

struct RequestTrace {
  RequestId request;
  std::string model;
  std::string request_id, answer_id, traceparent;  ///< as the client knows it
  Time begin, end;                                 ///< end < begin: it runs
  std::string outcome;                             ///< empty: it runs; stop, length, 429, ...
  std::uint32_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, attempts = 0;
  std::vector<TraceSpan> spans;  ///< by begin
};

/// What a client calls its request.
struct RequestNames {
  std::string request_id;   ///< x-request-id
  std::string answer_id;    ///< "chatcmpl-..."
  std::string traceparent;  ///< W3C, empty: none
};

class TraceLog {
 public:
  /// Keeps that many requests that have ended.
  explicit TraceLog(std::size_t ended_max = 1024) : ended_max_(ended_max) {}

  /// After each step of the core, with its event and effects.
  void observe(Time now, const GatewayEvent& event, const GatewayEffects& effects);
  /// Before the request arrives.
  void name(RequestId request, RequestNames names);

  /// Newest first, running ones before ended ones; at most `limit`.
  std::vector<const RequestTrace*> latest(std::size_t limit) const;
  /// By what a client calls it; a request of several choices has several traces.
  std::vector<const RequestTrace*> find(std::string_view name) const;
  /// Ended since the last call and still kept, oldest first: for exporters.
  std::vector<RequestTrace> take_ended();

 private:
  struct Live {
    RequestTrace trace;
    std::uint32_t attempt = 0;
    std::size_t prefill = SIZE_MAX;  ///< index of the open span; none
    std::size_t decode = SIZE_MAX;
    std::size_t queue = SIZE_MAX;
    WorkerRef decoder;  ///< who answers in this attempt
  };
  void on(Time now, const Arrive& event);
  void on(Time now, const WorkerSaid& event);
  void on(Time now, const SendWorker& effect);
  void on(Time now, const Deliver& effect);
  void end(Time now, RequestId request, std::string outcome, const Finish* finish);
  static void close(Time now, Live& live);
  static std::size_t open(Time now, Live& live, TraceSpan::Kind kind, WorkerRef worker);

  std::size_t ended_max_;
  std::map<RequestId, RequestNames> names_;
  std::map<RequestId, Live> live_;
  std::deque<RequestTrace> ended_;
  std::size_t untaken_ = 0;  ///< of ended_, at its back
};

}  // namespace infos
