// SPDX-License-Identifier: Apache-2.0
// UcxTransport: the context, sessions (a worker and an endpoint each) and registered memory.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <openssl/rand.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "topology/base/log.h"
#include "transports/ucx/ucx_slices.h"
#include "transports/ucx/ucx_transport.h"

namespace infos {

namespace {

using namespace std::chrono_literals;

constexpr auto kDrain = 200ms;  // after the close: requests that UCX forgot end with the worker
constexpr auto kConnect = 10s;  // a data path that cannot be made to a peer that lives
constexpr auto kAway = 100ms;   // how rarely progress() may be called
constexpr int kTurnsPerPoll = 8;
constexpr auto kPoll = 2ms;  // no more turns after that long: others wait for us

Error ucx_error(const char* what, ucs_status_t status) {
  const ErrorCode code =
      status == UCS_ERR_NO_MEMORY ? ErrorCode::resource_exhausted : ErrorCode::unavailable;
  return Error{code, fmt::format("ucx: {}: {}", what, ucs_status_string(status))};
}

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

/// UCX's lines go to our log, not to stdout. A peer that went away is an error to UCX, not to us.
ucs_log_func_rc_t to_our_log(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list args) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  if (level == UCS_LOG_LEVEL_FATAL) return UCS_LOG_FUNC_RC_CONTINUE;
  char line[512];
  std::vsnprintf(line, sizeof line, format, args);
  log_line(LogLevel::debug, "ucx", line);
  return UCS_LOG_FUNC_RC_STOP;
}

/// Everything that correctness needs is said here; UCX_* of the user's environment does not count.
std::vector<std::pair<const char*, std::string>> settings(const RdmaOptions& options,
                                                          const RdmaDevice& device) {
  std::vector<std::pair<const char*, std::string>> all = {
      {"KEEPALIVE_INTERVAL", "100ms"},
      {"KEEPALIVE_NUM_EPS", "inf"},
      {"RNDV_SCHEME", "get_zcopy"},  // the receiver moves: nobody else writes its memory
  };
  const auto add = [&](const char* key, std::string value) {
    all.emplace_back(key, std::move(value));
  };
  if (options.lanes != RdmaOptions::Lanes::rdma) {
    const bool loopback = options.host.empty() || is_loopback(options.host);
    const bool local = options.lanes == RdmaOptions::Lanes::local;
    add("TLS", local ? "posix,sysv,cma,self" : "tcp,self");
    add("NET_DEVICES", !options.device.empty() ? options.device : loopback ? "lo" : "all");
    if (local) add("MM_ERROR_HANDLING", "y");  // else no shared memory in error mode `peer`
    // RMA and zero-copy sends over TCP abort this process when an endpoint fails under them.
    if (!local) add("PUT_ENABLE", "n");
    if (!local) add("ZCOPY_THRESH", "inf");
  } else {
    const bool mlx5 = device.name.starts_with("mlx5");
    add("TLS", mlx5 ? "rc,self" : "rc_verbs,self");
    add("NET_DEVICES", fmt::format("{}:{}", device.name, device.port));
    add("SOCKADDR_TLS_PRIORITY", "rdmacm");
    add("IB_RCACHE_MAX_UNRELEASED", "64m");
  }
  return all;
}

Result<sockaddr_storage> to_sockaddr(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    return Error{ErrorCode::invalid_argument, fmt::format("ucx: '{}' is no IP address", host)};
  sockaddr_storage address{};
  std::memcpy(&address, list->ai_addr, list->ai_addrlen);
  freeaddrinfo(list);
  return address;
}

}  // namespace

UcxTransport::Link::~Link() {
  if (listener != nullptr) ucp_listener_destroy(listener);
  if (closing != nullptr) ucp_request_free(closing);
  if (worker != nullptr) ucp_worker_destroy(worker);
  for (Request* request : requests) {  // those that UCX never gave back
    if (request->grant) owner->user_of(request->grant, -1);
    delete request;
  }
  std::erase(owner->links_, this);
}

UcxTransport::Slices::~Slices() {
  for (ucp_mem_h handle : handles) ucp_mem_unmap(context, handle);
}

UcxTransport::Keys::~Keys() {
  for (ucp_rkey_h key : keys) ucp_rkey_destroy(key);
}

UcxTransport::UcxTransport(TransportInfo info, std::unique_ptr<SideChannel> side, Lanes lanes)
    : SessionTransport(std::move(info), std::move(side)), lanes_(lanes) {}

UcxTransport::~UcxTransport() {
  shutdown();
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::unique_ptr<Transport>> UcxTransport::make(const RdmaOptions& options) {
  RdmaDevice device;
  if (options.lanes == Lanes::rdma) device = INFOS_TRY(find_rdma_device(options.device));
  std::string host = options.host;
  if (host.empty()) host = device.address.empty() ? "127.0.0.1" : device.address;
  if (options.lanes != Lanes::rdma && !is_loopback(host) &&
      options.plain != RdmaOptions::PlainText::allowed)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("ucx over TCP is not encrypted: address {} is off loopback; use the "
                             "tcp transport with TLS, or allow plain text by name",
                             host)};
  TransportInfo info;
  info.kind = TransportKind::ucx;
  info.device = options.lanes == Lanes::rdma ? device.name : options.device;
  info.direct_bytes_min = options.lanes == Lanes::rdma ? 4096 : 32 * 1024;
  info.ops_in_flight_max = 64;
  auto side = INFOS_TRY(SideChannel::listen(host, options.silence));
  std::unique_ptr<UcxTransport> made(
      new UcxTransport(std::move(info), std::move(side), options.lanes));
  made->host_ = host;
  const Status status = made->open_context(options, device);
  if (!status) return status.error();
  return std::unique_ptr<Transport>(std::move(made));
}

Status UcxTransport::open_context(const RdmaOptions& options, const RdmaDevice& device) {
  [[maybe_unused]] static const bool once = [] {
    ucs_log_push_handler(to_our_log);
    return true;
  }();
  ucp_config_t* config = nullptr;
  // A prefix that nobody sets: the user's UCX_* are for the user's own programs.
  ucs_status_t status = ucp_config_read("INFOS_NONE", nullptr, &config);
  if (status != UCS_OK) return ucx_error("config", status);
  for (const auto& [key, value] : settings(options, device)) {
    status = ucp_config_modify(config, key, value.c_str());
    if (status != UCS_OK) {
      ucp_config_release(config);
      return ucx_error(key, status);
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (lanes_ == Lanes::rdma) params.features |= UCP_FEATURE_RMA;
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status == UCS_OK) return {};
  context_ = nullptr;
  return Error{ErrorCode::unsupported,
               fmt::format("ucx: no lanes here: {}", ucs_status_string(status))};
}

// ---- memory ----

Status UcxTransport::region_begin(Region& region) {
  if (lanes_ != Lanes::rdma) return {};
  auto slices = std::make_unique<Slices>();
  slices->context = context_;
  for (std::uint64_t at = 0; at < region.memory.size(); at += kUcxSliceBytes) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = region.memory.data() + at;
    params.length = std::min<std::uint64_t>(kUcxSliceBytes, region.memory.size() - at);
    ucp_mem_h handle = nullptr;
    const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
    if (status != UCS_OK)
      return Error{ErrorCode::resource_exhausted,
                   fmt::format("ucx: cannot register {} bytes: {} (is `ulimit -l` too low?)",
                               params.length, ucs_status_string(status))};
    slices->handles.push_back(handle);
  }
  region.attachment = std::move(slices);
  return {};
}

void UcxTransport::region_end(Region& region) { region.attachment.reset(); }

Status UcxTransport::grant_begin(Grant& grant) {
  grant.attachment = std::make_unique<Users>();
  return {};
}

void UcxTransport::grant_end(Grant&) {}

bool UcxTransport::grant_ended(Grant& grant) {
  return static_cast<Users&>(*grant.attachment).active == 0;
}

/// Where RMA reads begin, and the keys of the region's slices.
std::string UcxTransport::grant_blob(const Grant& grant) {
  if (lanes_ != Lanes::rdma || grant.access == Access::write) return "";
  WireWriter blob;
  blob.number(reinterpret_cast<std::uint64_t>(grant.region->memory.data()));
  blob.number(grant.begin);
  const auto& slices = static_cast<Slices&>(*grant.region->attachment);
  const std::size_t first = grant.begin / kUcxSliceBytes;
  const std::size_t last = (grant.begin + grant.bytes - 1) / kUcxSliceBytes;
  for (std::size_t i = first; i <= last; ++i) {
    void* packed = nullptr;
    std::size_t size = 0;
    if (ucp_rkey_pack(context_, slices.handles[i], &packed, &size) != UCS_OK) return "";
    blob.text(std::string_view(static_cast<const char*>(packed), size));
    ucp_rkey_buffer_release(packed);
  }
  return blob.take();
}

// ---- sessions ----

Status UcxTransport::open_worker(Link& link) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp_worker_create(context_, &params, &link.worker);
  if (status != UCS_OK) return ucx_error("worker", status);
  int fd = -1;
  status = ucp_worker_get_efd(link.worker, &fd);
  if (status != UCS_OK) return ucx_error("event descriptor", status);
  watch(fd);
  return add_handlers(link);
}

Status UcxTransport::open_listener(Link& link) {
  const auto address = to_sockaddr(host_, 0);
  if (!address) return address.error();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&*address);
  params.sockaddr.addrlen = sizeof *address;
  params.conn_handler.cb = on_connection;
  params.conn_handler.arg = &link;
  const ucs_status_t status = ucp_listener_create(link.worker, &params, &link.listener);
  return status == UCS_OK ? Status() : ucx_error("listener", status);
}

Result<std::string> UcxTransport::session_half(Session& session) {
  auto owned = std::make_unique<Link>();
  Link& link = *owned;
  link.owner = this;
  link.session = &session;
  links_.push_back(&link);
  session.attachment = std::move(owned);
  INFOS_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&link.our_token), 8) == 1);
  if (const Status status = open_worker(link); !status) return status.error();
  WireWriter half;
  half.number(link.our_token);
  if (lanes_ != Lanes::rdma) {
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    const ucs_status_t status = ucp_worker_query(link.worker, &attributes);
    if (status != UCS_OK) return ucx_error("worker address", status);
    half.text(std::string_view(reinterpret_cast<const char*>(attributes.address),
                               attributes.address_length));
    ucp_worker_release_address(link.worker, attributes.address);
  } else if (session.role == SideChannel::Role::acceptor) {
    if (const Status status = open_listener(link); !status) return status.error();
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    const ucs_status_t status = ucp_listener_query(link.listener, &attributes);
    if (status != UCS_OK) return ucx_error("listener address", status);
    const auto* address = reinterpret_cast<const sockaddr_in*>(&attributes.sockaddr);
    half.number(ntohs(address->sin_port));  // sin6_port lies in the same place
    half.text(host_);
  }
  return half.take();
}

Status UcxTransport::session_begin(Session& session, std::string_view half) {
  Link& link = link_of(session);
  WireReader reader(half);
  link.their_token = reader.number<std::uint64_t>();
  ucp_ep_params_t params{};
  if (lanes_ != Lanes::rdma) {
    const std::string_view address = reader.text();
    if (!reader.done()) return Error{ErrorCode::corrupt, "ucx: not a worker's address"};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    link.usable = true;
    return open_endpoint(link, params);
  }
  if (session.role == SideChannel::Role::acceptor) return {};  // on_connection() opens it
  const auto port = reader.number<std::uint16_t>();
  const std::string host(reader.text());
  if (!reader.done()) return Error{ErrorCode::corrupt, "ucx: not a listener's address"};
  const auto address = to_sockaddr(host, port);
  if (!address) return address.error();
  params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&*address);
  params.sockaddr.addrlen = sizeof *address;
  if (const Status status = open_endpoint(link, params); !status) return status;
  // Keys can only be unpacked for an endpoint that is connected: its first answer says so.
  link.usable_by = SideChannel::Clock::now() + kConnect;
  Request& hello = new_request(link, Request::Kind::reply);
  send(hello, kHello, nullptr, 0, UCP_AM_SEND_FLAG_EAGER);
  return {};
}

Status UcxTransport::open_endpoint(Link& link, ucp_ep_params_t params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = on_error;
  params.err_handler.arg = &link;
  const ucs_status_t status = ucp_ep_create(link.worker, &params, &link.ep);
  if (status == UCS_OK) return {};
  link.ep = nullptr;
  return ucx_error("endpoint", status);
}

void UcxTransport::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  Link& link = *static_cast<Link*>(arg);
  if (link.broken.empty()) link.broken = ucs_status_string(status);
}

void UcxTransport::on_connection(ucp_conn_request_h request, void* arg) {
  Link& link = *static_cast<Link*>(arg);
  if (link.ep != nullptr || link.closed) {
    ucp_listener_reject(link.listener, request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  const Status status = link.owner->open_endpoint(link, params);
  if (!status && link.broken.empty()) link.broken = status.error().message;
}

void UcxTransport::session_end(Session& session) {
  if (session.attachment == nullptr) return;
  Link& link = link_of(session);
  link.closed = true;
  link.closed_at = SideChannel::Clock::now();
  link.ready.clear();
  if (link.ep == nullptr) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t handle = ucp_ep_close_nbx(link.ep, &param);
  link.closing = UCS_PTR_IS_PTR(handle) ? handle : nullptr;
  link.ep = nullptr;
}

bool UcxTransport::session_ended(Session& session) {
  if (session.attachment == nullptr) return true;
  Link& link = link_of(session);
  if (link.worker != nullptr) ucp_worker_progress(link.worker);
  const bool late = SideChannel::Clock::now() - link.closed_at > kDrain;
  if (link.closing != nullptr) {
    if (ucp_request_check_status(link.closing) == UCS_INPROGRESS) return late;
    ucp_request_free(link.closing);
    link.closing = nullptr;
  }
  return link.requests.empty() || late;
}

// ---- progress ----

std::size_t UcxTransport::poll() {
  std::size_t turns = 0;
  const auto now = SideChannel::Clock::now();
  const auto until = now + kPoll;
  const auto away = now - polled_ - kAway;  // no peer is to blame for that
  polled_ = now;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = *links_[i];
    if (link.worker == nullptr) continue;
    for (int turn = 0; turn < kTurnsPerPoll && ucp_worker_progress(link.worker) > 0; ++turn) {
      ++turns;
      if (SideChannel::Clock::now() > until) break;
    }
    if (link.closed) continue;
    if (away > away.zero()) link.usable_by += away;
    if (!link.usable && link.ep != nullptr && link.session->role == SideChannel::Role::initiator &&
        now > link.usable_by)
      link.broken = "not connected in time";
    if (!link.broken.empty())
      lose(*link.session, "ucx: " + link.broken);
    else if (!link.ready.empty())
      hand_over(link);
  }
  return turns;
}

bool UcxTransport::arm_backend() {
  for (Link* link : links_)
    if (link->worker != nullptr && ucp_worker_arm(link->worker) != UCS_OK) return false;
  return true;
}

}  // namespace infos

extern "C" void infos_make_transport(const infos::RdmaOptions& options,
                                     infos::Result<std::unique_ptr<infos::Transport>>& result) {
  result = infos::UcxTransport::make(options);
}
