// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime/transfer_links.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "topology/base/check.h"
#include "topology/base/log.h"
#include "transports/shm/shm_transport.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/ucx/ucx.h"
#include "transports/verbs/verbs.h"

namespace infos {
namespace {

Result<std::unique_ptr<Transport>> make(TransportKind kind, const TransferLinkOptions& options) {
  switch (kind) {
    case TransportKind::shm:
      return make_shm_transport({});
    case TransportKind::tcp: {
      TcpOptions tcp;
      tcp.host = options.listen;
      tcp.certificate_file = options.tls_certificate;
      tcp.key_file = options.tls_key;
      tcp.authority_file = options.tls_authority;
      return make_tcp_transport(tcp);
    }
    case TransportKind::ucx: {
      RdmaOptions ucx;
      ucx.lanes = RdmaOptions::Lanes::rdma;  // without a device: tcp is there, and encrypted
      return make_ucx_transport(ucx);
    }
    case TransportKind::verbs:
      return make_verbs_transport({});
  }
  return Error{ErrorCode::unsupported,
               fmt::format("transport {} is not in this build", to_string(kind))};
}

}  // namespace

std::string transfer_host() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  // Processes of another PID namespace cannot open our memory.
  struct stat info {};
  const bool known = ::stat("/proc/self/ns/pid", &info) == 0;
  return fmt::format("{}/{}", boot, known ? info.st_ino : 0);
}

Result<std::unique_ptr<TransferLinks>> TransferLinks::open(const TransferLinkOptions& options) {
  if (options.kinds.empty())
    return Error{ErrorCode::invalid_argument, "no transport is allowed, want at least one"};
  std::unique_ptr<TransferLinks> links(new TransferLinks);
  links->host_ = transfer_host();
  std::string why;
  for (const TransportKind kind : options.kinds) {
    auto transport = make(kind, options);
    if (transport.ok()) {
      links->transports_.push_back(*std::move(transport));
      continue;
    }
    why += fmt::format("{}{}", why.empty() ? "" : "; ", transport.error().message);
    log_warn("transfer", "a transport is not there",
             {{"kind", to_string(kind)}, {"why", transport.error().message}});
  }
  if (links->transports_.empty()) return Error{ErrorCode::unavailable, why};
  return links;
}

// ---- memory ----

Result<SharedMemory*> TransferLinks::allocate(std::uint64_t bytes) {
  // Shared memory must come from its own transport, the others take what they are given.
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < transports_.size(); ++i)
    if (transports_[i]->info().kind == TransportKind::shm) first = i;
  auto memory = std::make_unique<SharedMemory>();
  memory->regions.resize(transports_.size());
  memory->regions[first] = INFOS_TRY(transports_[first]->allocate(bytes, memory->bytes));
  for (std::uint32_t i = 0; i < transports_.size(); ++i) {
    if (i == first) continue;
    auto adopted = transports_[i]->adopt(memory->bytes);
    if (!adopted.ok()) {
      for (std::uint32_t j = 0; j < transports_.size(); ++j)
        if (memory->regions[j]) transports_[j]->forget(memory->regions[j]);
      return adopted.error();
    }
    memory->regions[i] = *adopted;
  }
  SharedMemory* out = memory.get();
  memory_.emplace(out->bytes.data(), std::move(memory));
  return out;
}

const SharedMemory* TransferLinks::find(const void* memory) const {
  const auto at = memory_.find(memory);
  return at == memory_.end() ? nullptr : at->second.get();
}

void TransferLinks::release(void* memory) {
  const auto at = memory_.find(memory);
  if (at == memory_.end()) return;
  // Its owner, where it was allocated, last.
  const SharedMemory& shared = *at->second;
  for (std::uint32_t i = 0; i < transports_.size(); ++i)
    if (transports_[i]->info().kind != TransportKind::shm)
      transports_[i]->forget(shared.regions[i]);
  for (std::uint32_t i = 0; i < transports_.size(); ++i)
    if (transports_[i]->info().kind == TransportKind::shm)
      transports_[i]->forget(shared.regions[i]);
  memory_.erase(at);
}

// ---- peers ----

std::vector<KvEndpoint> TransferLinks::endpoints() const {
  std::vector<KvEndpoint> out;
  for (const auto& transport : transports_)
    out.push_back(
        {static_cast<std::uint32_t>(transport->info().kind), host_, transport->address()});
  return out;
}

Result<TransferLink> TransferLinks::reach(const WorkerRef& worker, const KvAccess& access) {
  const auto [begin, end] = links_.equal_range(worker);
  for (auto at = begin; at != end; ++at) {
    const PeerState state = transports_[at->second.transport]->peer_state(at->second.peer);
    if (state == PeerState::connecting || state == PeerState::open) return at->second;
  }
  std::string why;
  for (std::uint32_t i = 0; i < transports_.size(); ++i) {
    const TransportKind kind = transports_[i]->info().kind;
    for (std::uint32_t e = 0; e < access.endpoints.size(); ++e) {
      const KvEndpoint& endpoint = access.endpoints[e];
      if (endpoint.kind != static_cast<std::uint32_t>(kind)) continue;
      if (kind == TransportKind::shm && endpoint.host != host_) continue;
      auto peer = transports_[i]->connect(endpoint.address);
      if (peer.ok()) {
        const TransferLink link{i, *peer, e};
        links_.emplace(worker, link);
        return link;
      }
      why += fmt::format("; {}: {}", to_string(kind), peer.error().message);
    }
  }
  return Error{ErrorCode::unavailable, fmt::format("no link to worker {} generation {}{}",
                                                   worker.worker.value, worker.generation.value,
                                                   why.empty() ? ": no transport in common" : why)};
}

void TransferLinks::fence(const WorkerRef& worker, std::function<void()> done) {
  std::vector<TransferLink> links;
  const auto [begin, end] = links_.equal_range(worker);
  for (auto at = begin; at != end; ++at) links.push_back(at->second);
  links_.erase(begin, end);
  if (links.empty()) return done();
  // Shared by as many callbacks as there are links, which end at unknown times.
  const auto open = std::make_shared<std::size_t>(links.size());
  for (const TransferLink& link : links)
    transports_[link.transport]->fence(link.peer, [open, done] {
      if (--*open == 0) done();
    });
}

// ---- progress ----

bool TransferLinks::progress() {
  std::size_t callbacks = 0;
  for (const auto& transport : transports_) callbacks += transport->progress();
  return callbacks > 0;
}

bool TransferLinks::arm(std::vector<int>& fds) {
  bool idle = true;
  for (const auto& transport : transports_) {
    idle = transport->arm() && idle;
    fds.push_back(transport->wait_fd());
  }
  return idle;
}

bool TransferLinks::in_use() const {
  return !links_.empty() || std::any_of(transports_.begin(), transports_.end(),
                                        [](const auto& t) { return t->stats().peers_open > 0; });
}

}  // namespace infos
