// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/otlp_exporter.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "topology/base/log.h"

namespace infos {
namespace {

constexpr std::size_t kQueuedMax = 64;  // texts
constexpr long kTimeoutMs = 5000;

std::size_t ignore_body(char*, std::size_t size, std::size_t count, void*) { return size * count; }

/// Called by curl while it waits: nonzero ends the transfer.
int stop_wanted(void* ended, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<std::atomic<bool>*>(ended)->load() ? 1 : 0;
}

}  // namespace

struct OtlpExporter::State {
  std::string url;
  std::atomic<bool> ended{false};
  mutable std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::string> queue;
  Counts counts;
  std::thread thread;

  void run();
  std::string post(const std::string& text);
};

/// Returns: what went wrong, empty if nothing.
std::string OtlpExporter::State::post(const std::string& text) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (!curl) return "curl cannot be started";
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), &curl_slist_free_all);
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDS, text.data());
  curl_easy_setopt(curl.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, ignore_body);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFOFUNCTION, stop_wanted);
  curl_easy_setopt(curl.get(), CURLOPT_XFERINFODATA, &ended);
  const CURLcode code = curl_easy_perform(curl.get());
  if (code != CURLE_OK) return curl_easy_strerror(code);
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  return status / 100 == 2 ? "" : fmt::format("the collector answered {}", status);
}

void OtlpExporter::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return ended || !queue.empty(); });
    if (ended) return;
    const std::string text = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    std::string error = post(text);
    lock.lock();
    ++(error.empty() ? counts.sent : counts.dropped);
    if (error == counts.last_error) continue;
    if (!error.empty() && !ended)
      log_warn("otlp", "traces were not taken", {{"url", url}, {"why", error}});
    counts.last_error = std::move(error);
  }
}

Result<std::unique_ptr<OtlpExporter>> OtlpExporter::create(const std::string& url) {
  const std::size_t scheme = url.starts_with("http://") ? 7 : url.starts_with("https://") ? 8 : 0;
  if (scheme == 0 || url.size() == scheme)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("'{}': want http://HOST:PORT or https://HOST:PORT of an "
                             "OpenTelemetry collector",
                             url)};
  auto state = std::make_unique<State>();
  state->url = url;
  if (url.find('/', scheme) == std::string::npos) state->url += "/v1/traces";
  state->thread = std::thread([s = state.get()] { s->run(); });
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(std::move(state)));
}

OtlpExporter::OtlpExporter(std::unique_ptr<State> state) : state_(std::move(state)) {}

OtlpExporter::~OtlpExporter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
}

void OtlpExporter::send(std::string text) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->queue.size() >= kQueuedMax) {
      state_->queue.pop_front();
      ++state_->counts.dropped;
    }
    state_->queue.push_back(std::move(text));
  }
  state_->wake.notify_one();
}

OtlpExporter::Counts OtlpExporter::counts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts;
}

}  // namespace infos
