// SPDX-License-Identifier: Apache-2.0
// VerbsDevice: an opened RDMA device with what all sessions share: protection domain, completion
// channel, shared receive queue, and registered memory in slices, shared between regions that
// overlap. Owner's thread only.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "topology/base/result.h"
#include "transports/rdma/devices.h"

namespace infos {

/// Frees a verbs object with the function that belongs to it.
template <auto kFree>
struct VerbsDelete {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using VerbsContext = std::unique_ptr<ibv_context, VerbsDelete<ibv_close_device>>;
using VerbsDomain = std::unique_ptr<ibv_pd, VerbsDelete<ibv_dealloc_pd>>;
using VerbsChannel = std::unique_ptr<ibv_comp_channel, VerbsDelete<ibv_destroy_comp_channel>>;
using VerbsReceives = std::unique_ptr<ibv_srq, VerbsDelete<ibv_destroy_srq>>;
using VerbsCompletions = std::unique_ptr<ibv_cq, VerbsDelete<ibv_destroy_cq>>;
using VerbsQueue = std::unique_ptr<ibv_qp, VerbsDelete<ibv_destroy_qp>>;
using VerbsMemory = std::unique_ptr<ibv_mr, VerbsDelete<ibv_dereg_mr>>;

/// Memory registered in pieces of at most slice_bytes; slice i begins at begin + i * slice_bytes.
struct VerbsSlices {
  std::byte* begin = nullptr;
  std::uint64_t bytes = 0, slice_bytes = 0;
  std::vector<VerbsMemory> slices;
  std::size_t slice_of(const std::byte* at) const {
    return static_cast<std::size_t>(at - begin) / slice_bytes;
  }
  /// From `at` to the end of its slice.
  std::uint64_t room(const std::byte* at) const {
    return slice_bytes - static_cast<std::uint64_t>(at - begin) % slice_bytes;
  }
};

class VerbsDevice {
 public:
  /// Slice_bytes: 0 is the device's own limit. Errors: unsupported, io.
  static Result<std::unique_ptr<VerbsDevice>> open(const RdmaDevice& which,
                                                   std::uint64_t slice_bytes);

  /// Registers for our own use and for remote reads. Shares a live registration that covers it.
  /// Errors: resource_exhausted.
  Result<std::shared_ptr<VerbsSlices>> share(std::span<std::byte> memory);
  /// A registration of its own, whose keys die with it. Errors: resource_exhausted.
  Result<std::unique_ptr<VerbsSlices>> add(std::span<std::byte> memory, int access);

  /// Keeps the shared receive queue filled; `used` were taken since.
  void refill_receives(std::size_t used);
  /// Drains both event queues. Returns: the device is beyond use.
  bool drain_events();

  const RdmaDevice& which() const { return which_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_comp_channel* channel() const { return channel_.get(); }
  ibv_srq* receives() const { return receives_.get(); }
  std::uint32_t receives_max() const { return receives_max_; }
  const ibv_device_attr& limits() const { return limits_; }
  const ibv_port_attr& port() const { return port_; }
  const ibv_gid& gid() const { return gid_; }

 private:
  VerbsDevice() = default;
  RdmaDevice which_;
  ibv_device_attr limits_{};
  ibv_port_attr port_{};
  ibv_gid gid_{};
  std::uint64_t slice_bytes_ = 0;
  std::uint32_t receives_max_ = 0;
  std::size_t receives_wanted_ = 0;
  VerbsContext context_;
  VerbsDomain domain_;
  VerbsChannel channel_;
  VerbsReceives receives_;
  std::map<std::byte*, std::weak_ptr<VerbsSlices>> shared_;
};

}  // namespace infos
