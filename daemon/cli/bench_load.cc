// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/bench_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <optional>

#include "daemon/cli/http_parse.h"
#include "daemon/cli/openai.h"

namespace infos::cli {
namespace {

namespace asio = boost::asio;
using Failure = boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;
using Peer = asio::generic::stream_protocol::endpoint;

constexpr std::size_t kGapsMax = 20'000'000;

Result<Peer> find_peer(asio::io_context& io, const Endpoint& endpoint) {
  if (endpoint.host.empty()) {
    if (endpoint.unix_path.size() > 107)
      return Error{ErrorCode::invalid_argument, "the socket's path is too long"};
    return Peer(asio::local::stream_protocol::endpoint(endpoint.unix_path));
  }
  Failure failed;
  asio::ip::tcp::resolver resolver(io);
  const auto found = resolver.resolve(endpoint.host, std::to_string(endpoint.port), failed);
  if (failed || found.empty())
    return Error{ErrorCode::unavailable,
                 fmt::format("cannot find host '{}': {}", endpoint.host, failed.message())};
  return Peer(found.begin()->endpoint());
}

class Load;

/// One connection: sends one request after another.
class Client {
 public:
  explicit Client(Load& load);
  void send(std::uint64_t index, Duration start, std::string body);
  /// Ends the request that is under way with an error.
  void give_up(const std::string& why) { finish(why); }
  bool busy() const { return busy_; }
  Duration started() const { return sample_.start; }

 private:
  void connect();
  void write();
  void read();
  void on_bytes(std::size_t n);
  void on_data(std::string_view data);
  void lost(const std::string& why);
  void finish(const std::string& error);
  void close();

  Load& load_;
  Socket socket_;
  HttpAnswerParser parser_;
  EventParser events_;
  std::array<char, 16384> buffer_;
  std::string request_;
  std::string plain_body_;  ///< of an answer that is no stream
  std::string problem_;
  Sample sample_;
  std::uint64_t index_ = 0;
  Duration now_;  ///< of the bytes being read
  bool busy_ = false;
  bool reused_ = false;  ///< the connection has served a request before
  bool got_bytes_ = false;
  std::uint32_t life_ = 0;  ///< counts sockets: completions of an old one are ignored
};

class Load {
 public:
  Load(const LoadOptions& options, std::uint64_t count,
       const std::function<LoadRequest(std::uint64_t)>& make,
       const std::function<void(const LoadProgress&)>& progress)
      : options_(options),
        count_(count),
        make_(make),
        progress_(progress),
        arrivals_(io_),
        sweep_(io_) {}

  Result<LoadResult> run() {
    peer_ = INFOS_TRY(find_peer(io_, options_.endpoint));
    start_ = std::chrono::steady_clock::now();
    result_.samples.reserve(count_);
    if (options_.concurrency > 0) {
      for (std::uint32_t i = 0; i < options_.concurrency; ++i) send_next(new_client());
    } else {
      plan_arrival();
    }
    sweep();
    io_.run();
    report_progress();
    return std::move(result_);
  }

  Duration now() const {
    return Duration{std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::steady_clock::now() - start_)
                        .count()};
  }
  asio::io_context& io() { return io_; }
  const Peer& peer() const { return peer_; }
  const LoadOptions& options() const { return options_; }
  std::string request_text(std::string body) const {
    HttpCall call;
    call.method = "POST";
    call.target = options_.target;
    call.api_key = options_.api_key;
    call.body = std::move(body);
    return http_request_text(options_.endpoint, call, KeepAlive::yes);
  }
  /// `n` chunks of an answer came together, `gap` after the ones before.
  void chunks(const Sample& sample, std::uint64_t n, Duration gap) {
    chunks_ += n;
    if (sample.warm_up || result_.gaps_ms.size() + n > kGapsMax) return;
    result_.gaps_ms.insert(result_.gaps_ms.end(), n,
                           static_cast<double>(gap.ns) * 1e-6 / static_cast<double>(n));
  }
  void ended(Client& client, Sample sample) {
    result_.samples.push_back(std::move(sample));
    ++ended_;
    if (options_.concurrency > 0) {
      // Not from inside the old request's handler: a server that refuses at once would recurse.
      asio::post(io_, [this, &client] { send_next(client); });
    } else {
      idle_.push_back(&client);
      if (all_ended()) sweep_.cancel();
    }
  }

 private:
  bool time_is_up() const { return options_.time_limit.ns > 0 && now() >= options_.time_limit; }
  bool all_ended() const { return ended_ == sent_ && (next_ == count_ || stopped_); }

  Client& new_client() {
    clients_.push_back(std::make_unique<Client>(*this));
    return *clients_.back();
  }
  void send_next(Client& client) {
    if (next_ == count_ || time_is_up()) {
      stopped_ = true;
      if (all_ended()) sweep_.cancel();
      return;
    }
    const std::uint64_t index = next_++;
    ++sent_;
    LoadRequest request = make_(index);
    client.send(index, now(), std::move(request.body));
  }
  void plan_arrival() {
    if (next_ == count_ || time_is_up()) {
      stopped_ = true;
      if (all_ended()) sweep_.cancel();
      return;
    }
    waiting_ = make_(next_);
    arrivals_.expires_at(start_ + std::chrono::nanoseconds(waiting_.at.ns));
    arrivals_.async_wait([this](Failure failed) {
      if (!failed) arrive();
    });
  }
  void arrive() {
    const std::uint64_t index = next_++;
    ++sent_;
    // Lateness of this client counts against the server: the request was due at `at`.
    if (idle_.empty() && clients_.size() >= options_.in_flight_max) {
      Sample sample;
      sample.error = "not sent: too many requests in flight";
      sample.start = waiting_.at;
      sample.warm_up = index < options_.warm_up;
      result_.samples.push_back(std::move(sample));
      ++ended_;
    } else {
      Client& client = idle_.empty() ? new_client() : *idle_.back();
      if (!idle_.empty()) idle_.pop_back();
      client.send(index, waiting_.at, std::move(waiting_.body));
    }
    plan_arrival();
  }
  /// Twice a second: progress, and requests that take too long.
  void sweep() {
    if (all_ended()) return;
    sweep_.expires_after(std::chrono::milliseconds(500));
    sweep_.async_wait([this](Failure failed) {
      if (failed) return;
      for (const auto& client : clients_)
        if (client->busy() && now() - client->started() > options_.request_timeout)
          client->give_up(
              fmt::format("no whole answer within {}", to_string(options_.request_timeout)));
      if (time_is_up() && options_.concurrency == 0) stopped_ = true, arrivals_.cancel();
      report_progress();
      sweep();
    });
  }
  void report_progress() {
    if (progress_) progress_({sent_, ended_, count_, chunks_, now()});
  }

  const LoadOptions& options_;
  const std::uint64_t count_;
  const std::function<LoadRequest(std::uint64_t)>& make_;
  const std::function<void(const LoadProgress&)>& progress_;
  asio::io_context io_{1};
  Peer peer_;
  std::chrono::steady_clock::time_point start_;
  asio::steady_timer arrivals_, sweep_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> idle_;
  LoadRequest waiting_;
  LoadResult result_;
  std::uint64_t next_ = 0, sent_ = 0, ended_ = 0, chunks_ = 0;
  bool stopped_ = false;
};

Client::Client(Load& load)
    : load_(load),
      socket_(load.io()),
      parser_([this](std::string_view piece) {
        if (parser_.status() != 200) {
          plain_body_ += piece.substr(0, 4096 - std::min<std::size_t>(4096, plain_body_.size()));
          return;
        }
        const Status status = events_.feed(piece);
        if (!status.ok()) problem_ = status.error().message;
      }),
      events_([this](std::string_view data) { on_data(data); }) {}

void Client::send(std::uint64_t index, Duration start, std::string body) {
  busy_ = true;
  index_ = index;
  got_bytes_ = false;
  sample_ = Sample{};
  sample_.start = start;
  sample_.warm_up = index < load_.options().warm_up;
  plain_body_.clear();
  problem_.clear();
  parser_.reset();
  events_.reset();
  request_ = load_.request_text(std::move(body));
  reused_ = socket_.is_open();
  if (reused_) {
    write();
  } else {
    connect();
  }
}

void Client::connect() {
  const std::uint32_t life = life_;
  socket_.async_connect(load_.peer(), [this, life](Failure failed) {
    if (life != life_) return;
    if (failed) return finish(fmt::format("cannot connect: {}", failed.message()));
    if (!load_.options().endpoint.host.empty()) {
      Failure ignored;
      socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    }
    write();
  });
}

void Client::write() {
  const std::uint32_t life = life_;
  asio::async_write(socket_, asio::buffer(request_), [this, life](Failure failed, std::size_t) {
    if (life != life_) return;
    if (failed) return lost(failed.message());
    read();
  });
}

void Client::read() {
  const std::uint32_t life = life_;
  socket_.async_read_some(asio::buffer(buffer_), [this, life](Failure failed, std::size_t n) {
    if (life != life_) return;
    if (failed == asio::error::eof) {
      const Status status = parser_.end();
      return status.ok() ? finish("") : lost(status.error().message);
    }
    if (failed) return lost(failed.message());
    on_bytes(n);
  });
}

void Client::on_bytes(std::size_t n) {
  got_bytes_ = true;
  now_ = load_.now() - Duration{sample_.start.ns};
  const std::uint64_t before = sample_.chunks;
  const Result<std::size_t> used = parser_.feed({buffer_.data(), n});
  // The first chunk of an answer ends no gap.
  const std::uint64_t gaps = sample_.chunks - before - (before == 0 && sample_.chunks > 0 ? 1 : 0);
  if (gaps > 0) load_.chunks(sample_, gaps, now_ - sample_.last);
  if (sample_.chunks > before) sample_.last = now_;
  if (!used.ok()) return finish(used.error().message);
  if (!problem_.empty()) return finish(problem_);
  if (!parser_.done()) return read();
  if (parser_.status() == 200) return finish("");
  finish(fmt::format("{}: {}", parser_.status(), error_message({parser_.status(), plain_body_})));
}

void Client::on_data(std::string_view data) {
  if (event_has_text(data)) {
    ++sample_.chunks;
    if (sample_.chunks == 1) sample_.ttft = sample_.last = now_;
  }
  // Only the last events are worth reading as JSON.
  if (data.find("\"usage\":{") == std::string_view::npos &&
      data.find("\"usage\": {") == std::string_view::npos && !data.starts_with("{\"error\""))
    return;
  const Result<StreamEvent> event = read_stream_event(data);
  if (!event.ok()) {
    problem_ = event.error().message;
    return;
  }
  if (!event->error.empty()) problem_ = event->error;
  sample_.prompt_tokens = event->prompt_tokens.value_or(sample_.prompt_tokens);
  sample_.cached_tokens = event->cached_tokens.value_or(sample_.cached_tokens);
  sample_.output_tokens = event->completion_tokens.value_or(sample_.output_tokens);
}

void Client::lost(const std::string& why) {
  // A kept connection may have been closed by the server before it saw the request: once more, on a
  // new one.
  if (reused_ && !got_bytes_) {
    close();
    reused_ = false;
    return connect();
  }
  finish(why);
}

void Client::finish(const std::string& error) {
  if (!busy_) return;
  busy_ = false;
  sample_.error = error;
  sample_.total = load_.now() - Duration{sample_.start.ns};
  if (sample_.output_tokens == 0) sample_.output_tokens = sample_.chunks;
  if (sample_.error.empty() && sample_.chunks == 0) sample_.ttft = sample_.last = sample_.total;
  if (!sample_.error.empty() || !parser_.done() || !parser_.keeps_alive()) close();
  load_.ended(*this, std::move(sample_));
}

void Client::close() {
  ++life_;
  Failure ignored;
  socket_.close(ignored);
}

/// True when `key` (with quotes) is followed by a text that is not empty.
bool has_value(std::string_view data, std::string_view key) {
  std::size_t at = data.find(key);
  if (at == std::string_view::npos) return false;
  at += key.size();
  if (at < data.size() && data[at] == ' ') ++at;
  return at + 1 < data.size() && data[at] == '"' && data[at + 1] != '"';
}

}  // namespace

bool event_has_text(std::string_view data) {
  return has_value(data, "\"content\":") || has_value(data, "\"text\":");
}

Result<LoadResult> run_load(const LoadOptions& options, std::uint64_t count,
                            const std::function<LoadRequest(std::uint64_t)>& make,
                            const std::function<void(const LoadProgress&)>& progress) {
  try {
    return Load(options, count, make, progress).run();
  } catch (const std::exception& error) {
    return Error{ErrorCode::io, fmt::format("bench: {}", error.what())};
  }
}

}  // namespace infos::cli
