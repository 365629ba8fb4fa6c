// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/gateway_harness.h"

#include <boost/asio.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "topology/base/log.h"

namespace infos::test {

Result<std::string> PlainTemplate::render(const Input& input) const {
  std::string text;
  for (const ChatMessage& message : input.messages) {
    if (message.content == "raise") return Error{ErrorCode::invalid_argument, "raised"};
    text += message.role + ":" + message.content + "\n";
  }
  return input.add_generation_prompt ? text + "assistant:" : text;
}

// ---- client ----

Client::Client(std::uint16_t port, int receive_buffer) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0)
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect");
}

Client::Client(const std::string& unix_path) {
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect");
}

Client::~Client() { close(); }

void Client::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void Client::reset() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the peer closed: the test sees it when it reads
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Waits for bytes. Returns: false at the end of the stream.
bool Client::more() {
  pollfd p{fd_, POLLIN, 0};
  const int ready = ::poll(&p, 1, static_cast<int>(std::chrono::milliseconds(kWaitMax).count()));
  if (ready <= 0) throw std::runtime_error("nothing came; so far: " + in_.substr(0, 2000));
  char buffer[65536];
  const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  in_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

std::string Client::read_until(std::string_view text) {
  for (;;) {
    const std::size_t at = in_.find(text);
    if (at != std::string::npos) {
      std::string taken = in_.substr(0, at + text.size());
      in_.erase(0, at + text.size());
      return taken;
    }
    if (!more())
      throw std::runtime_error("closed before '" + std::string(text) +
                               "'; so far: " + in_.substr(0, 2000));
  }
}

bool Client::closed_by_peer() {
  while (more()) in_.clear();
  return true;
}

Response Client::read(bool head_only) {
  Response r;
  std::string head = read_until("\r\n\r\n");
  r.status = std::stoi(head.substr(9, 3));
  for (std::size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
    const std::size_t end = head.find("\r\n", at);
    const std::size_t colon = head.find(": ", at);
    if (colon < end) {
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      r.headers[name] = head.substr(colon + 2, end - colon - 2);
    }
    at = end + 2;
  }
  if (head_only || r.status == 204 || r.status == 100) {
    r.complete = true;
  } else if (r.headers.contains("content-length")) {
    const std::size_t length = std::stoul(r.headers["content-length"]);
    while (in_.size() < length && more()) {
    }
    r.body = in_.substr(0, length);
    in_.erase(0, r.body.size());
    r.complete = r.body.size() == length;
  } else if (r.headers.contains("transfer-encoding")) {
    for (;;) {
      const std::size_t size = std::stoul(read_until("\r\n"), nullptr, 16);
      while (in_.size() < size + 2 && more()) {
      }
      r.body += in_.substr(0, size);
      in_.erase(0, size + 2);
      if (size == 0) break;
    }
    r.complete = true;
  } else {
    while (more()) {
    }
    r.body = std::move(in_);
    r.complete = true;
  }
  return r;
}

std::string post(const std::string& path, const std::string& body, const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string get(const std::string& path, const std::string& headers, const std::string& method) {
  return method + " " + path + " HTTP/1.1\r\nHost: t\r\n" + headers + "\r\n";
}

// ---- gateway with a scripted worker ----

struct Harness::State {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard =
      boost::asio::make_work_guard(io);
  std::unique_ptr<Gateway> gateway;
  std::thread thread;
  Generation generation{1};

  std::mutex mutex;  // the test's thread waits for what the gateway's thread hears
  std::condition_variable heard;
  std::deque<Submit> submits;
  std::deque<Cancel> cancels;
  std::uint64_t generated = 0;

  template <typename T>
  T next(std::deque<T>& queue) {
    std::unique_lock lock(mutex);
    if (!heard.wait_for(lock, kWaitMax, [&] { return !queue.empty(); }))
      throw std::runtime_error("the worker heard nothing");
    T value = queue.front();
    queue.pop_front();
    return value;
  }
  WorkerReady ready() {
    WorkerReady r;
    r.model = "m";
    r.device = "cpu";
    r.max_context = 4096;
    r.block_tokens = 16;
    r.load.kv_blocks_total = 100;
    return r;
  }
  void report(StepReport r) {
    r.load.kv_blocks_total = 100;
    r.load.kv_blocks_used = 25;
    generated += r.tokens.size();
    r.load.generated_tokens = generated;
    gateway->worker_said(WorkerId{1}, generation, std::move(r));
  }
  StepReport tokens(const Submit& submit, std::string_view text, std::uint32_t index) {
    StepReport r;
    for (SampledToken& s : sampled(text)) {
      if (submit.sampling.top_logprobs > 0) s.top = {{s.token, s.logprob}, {'?', -3.0F}};
      r.tokens.push_back({submit.request, submit.attempt, index++, s});
    }
    return r;
  }
  StepReport ending(const Submit& submit, FinishReason reason, std::uint32_t count,
                    const std::string& message) {
    StepReport r;
    SequenceEnd e;
    e.request = submit.request;
    e.attempt = submit.attempt;
    e.reason = reason;
    e.cached_tokens = 2;
    e.answer_tokens = count;
    e.message = message;
    r.ended.push_back(e);
    return r;
  }
  // One report per token, each as an event of its own, as a worker's frames come.
  void play(const Submit& submit, const std::string& text, std::uint32_t index) {
    const auto limit = std::min<std::size_t>(text.size(), submit.max_new_tokens);
    if (index < limit) {
      report(tokens(submit, text.substr(index, 1), index));
      boost::asio::post(io, [this, submit, text, index] {
        if (gateway) play(submit, text, index + 1);
      });
      return;
    }
    report(ending(submit, text.size() > limit ? FinishReason::length : FinishReason::stop,
                  static_cast<std::uint32_t>(limit), ""));
  }
};

Harness::Harness(GatewayOptions options) : state_(std::make_unique<State>()) {
  log_configure(LogLevel::error, LogFormat::text);
  State& s = *state_;
  auto created = Gateway::create(s.io, std::move(options));
  if (!created.ok()) throw std::runtime_error(created.error().message);
  s.gateway = std::move(*created);
  s.gateway->on_send_worker([this, &s](const SendWorker& send) {
    if (const auto* submit = std::get_if<Submit>(&send.message)) {
      const std::string text = script ? script(*submit) : "";
      if (!text.empty())
        boost::asio::post(s.io, [&s, submit = *submit, text] {
          if (s.gateway)
            s.play(submit, text,
                   static_cast<std::uint32_t>(submit.tokens.size()) - submit.prompt_tokens);
        });
      const std::lock_guard lock(s.mutex);
      s.submits.push_back(*submit);
    } else if (const auto* cancel = std::get_if<Cancel>(&send.message)) {
      const std::lock_guard lock(s.mutex);
      s.cancels.push_back(*cancel);
    }
    s.heard.notify_all();
  });
  ServedModel model;
  model.name = "m";
  model.tokenizer = std::make_shared<ByteTokenizer>();
  model.chat_template = std::make_shared<PlainTemplate>();
  model.config.max_context = 4096;
  model.config.eos = {ByteTokenizer::kEos};
  if (!s.gateway->add_model(model).ok()) throw std::runtime_error("add_model");
  s.gateway->worker_up(WorkerId{1}, s.generation, s.ready());
  auto port = s.gateway->listen("127.0.0.1", 0);
  if (!port.ok()) throw std::runtime_error(port.error().message);
  port_ = *port;
  s.thread = std::thread([&s] { s.io.run(); });
}

Harness::~Harness() {
  on_gateway([this](Gateway& g) {
    g.stop();
    state_->gateway.reset();
  });
  state_->guard.reset();
  state_->io.stop();
  state_->thread.join();
}

void Harness::on_gateway(const std::function<void(Gateway&)>& action) {
  std::promise<void> done;
  boost::asio::post(state_->io, [&] {
    action(*state_->gateway);
    done.set_value();
  });
  done.get_future().wait();
}

Submit Harness::next_submit() { return state_->next(state_->submits); }
Cancel Harness::next_cancel() { return state_->next(state_->cancels); }

void Harness::say(const Submit& submit, std::string_view text, std::uint32_t index) {
  on_gateway([&](Gateway&) { state_->report(state_->tokens(submit, text, index)); });
}

void Harness::end(const Submit& submit, FinishReason reason, std::uint32_t answer_tokens,
                  const std::string& message) {
  on_gateway(
      [&](Gateway&) { state_->report(state_->ending(submit, reason, answer_tokens, message)); });
}

void Harness::worker_down() {
  on_gateway([&](Gateway& g) { g.worker_down(WorkerId{1}, state_->generation); });
}

void Harness::worker_up() {
  on_gateway([&](Gateway& g) {
    g.worker_up(WorkerId{1}, Generation{++state_->generation.value}, state_->ready());
  });
}

std::size_t Harness::live_requests() {
  std::size_t n = 0;
  on_gateway([&](Gateway& g) { n = g.live_requests(); });
  return n;
}

}  // namespace infos::test
