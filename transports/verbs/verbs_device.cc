// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/verbs_device.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace infos {

namespace {

constexpr std::uint64_t kSliceMax = 1ull << 30;  // some devices stop at 2 GiB, some drivers lie
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kReceives = 1024;
constexpr std::size_t kRefill = 64;

Error verbs_error(const char* what) {
  return Error{ErrorCode::io, fmt::format("verbs: {}: {}", what, std::strerror(errno))};
}

void never_block(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

VerbsContext open_context(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  VerbsContext context;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (name == ibv_get_device_name(list[i])) context.reset(ibv_open_device(list[i]));
  if (list != nullptr) ibv_free_device_list(list);
  return context;
}

}  // namespace

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(const RdmaDevice& which,
                                                       std::uint64_t slice_bytes) {
  // Pages that a device writes must stay ours when this process forks; newer kernels see to it.
  static const int fork_safe = ibv_fork_init();
  if (fork_safe != 0) return verbs_error("fork support");
  std::unique_ptr<VerbsDevice> device(new VerbsDevice);
  device->which_ = which;
  device->context_ = open_context(which.name);
  ibv_context* context = device->context_.get();
  if (context == nullptr)
    return Error{ErrorCode::unsupported,
                 fmt::format("verbs: device '{}' has no driver here", which.name)};
  if (ibv_query_device(context, &device->limits_) != 0 ||
      ibv_query_port(context, which.port, &device->port_) != 0 ||
      ibv_query_gid(context, which.port, which.gid_index, &device->gid_) != 0)
    return verbs_error("cannot ask the device");
  device->domain_.reset(ibv_alloc_pd(context));
  device->channel_.reset(ibv_create_comp_channel(context));
  if (device->domain_ == nullptr || device->channel_ == nullptr) return verbs_error("device");
  never_block(device->channel_->fd);
  never_block(context->async_fd);
  ibv_srq_init_attr receives{};
  device->receives_max_ =
      std::min(kReceives, static_cast<std::uint32_t>(device->limits_.max_srq_wr));
  receives.attr.max_wr = device->receives_max_;
  receives.attr.max_sge = 1;
  device->receives_.reset(ibv_create_srq(device->domain_.get(), &receives));
  if (device->receives_ == nullptr) return verbs_error("shared receive queue");
  device->refill_receives(device->receives_max_);
  const std::uint64_t limit = std::min<std::uint64_t>(device->limits_.max_mr_size, kSliceMax);
  device->slice_bytes_ = (slice_bytes == 0 ? limit : std::min(limit, slice_bytes)) / kPage * kPage;
  if (device->slice_bytes_ == 0)
    return Error{ErrorCode::unsupported, "verbs: the device registers less than a page at once"};
  return device;
}

Result<std::unique_ptr<VerbsSlices>> VerbsDevice::add(std::span<std::byte> memory, int access) {
  auto slices = std::make_unique<VerbsSlices>();
  slices->begin = memory.data();
  slices->bytes = memory.size();
  slices->slice_bytes = slice_bytes_;
  for (std::uint64_t at = 0; at < memory.size(); at += slice_bytes_) {
    const std::uint64_t bytes = std::min<std::uint64_t>(slice_bytes_, memory.size() - at);
    VerbsMemory registered(ibv_reg_mr(domain_.get(), memory.data() + at, bytes, access));
    if (registered == nullptr)
      return Error{ErrorCode::resource_exhausted,
                   fmt::format("verbs: cannot register {} bytes: {}{}", bytes, std::strerror(errno),
                               errno == ENOMEM ? "; `ulimit -l` may be too low" : "")};
    slices->slices.push_back(std::move(registered));
  }
  return slices;
}

Result<std::shared_ptr<VerbsSlices>> VerbsDevice::share(std::span<std::byte> memory) {
  std::byte* end = memory.data() + memory.size();
  auto at = shared_.upper_bound(memory.data());
  if (at != shared_.begin()) {
    --at;
    const std::shared_ptr<VerbsSlices> live = at->second.lock();
    if (live == nullptr)
      shared_.erase(at);
    else if (live->begin + live->bytes >= end)
      return live;
  }
  auto made = add(memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!made) return std::move(made).error();
  std::shared_ptr<VerbsSlices> shared = std::move(*made);
  shared_[memory.data()] = shared;
  return shared;
}

void VerbsDevice::refill_receives(std::size_t used) {
  receives_wanted_ += used;
  while (receives_wanted_ >= kRefill) {
    ibv_recv_wr requests[kRefill] = {};
    for (std::size_t i = 0; i < kRefill; ++i) {
      requests[i].wr_id = ~0ull;
      requests[i].next = i + 1 < kRefill ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(receives_.get(), requests, &bad) != 0) return;  // again at the next use
    receives_wanted_ -= kRefill;
  }
}

bool VerbsDevice::drain_events() {
  ibv_cq* queue = nullptr;
  void* owner = nullptr;
  while (ibv_get_cq_event(channel_.get(), &queue, &owner) == 0) ibv_ack_cq_events(queue, 1);
  bool beyond_use = false;
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    beyond_use = beyond_use || event.event_type == IBV_EVENT_DEVICE_FATAL;
    ibv_ack_async_event(&event);
  }
  return beyond_use;
}

}  // namespace infos
