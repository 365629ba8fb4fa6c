// SPDX-License-Identifier: Apache-2.0
// Owning C++ handles over the device ABI: Device, Artifact, Program, KvPool. They only translate:
// no policy. Movable; the device must outlive what was made from it. One thread per device,
// cancel() excepted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "devices/host/plugin.h"
#include "topology/base/result.h"

namespace infos {

struct DeviceConfig {
  std::uint32_t index = 0;
  std::uint32_t threads = 0;           ///< 0: the backend chooses
  std::vector<std::uint32_t> cores;    ///< empty: do not pin
  std::uint64_t memory_bytes = 0;      ///< 0: no bound
  std::string options;                 ///< "key=value,key=value"
  const infos_group* group = nullptr;  ///< outlives the device; null: no rank of a group
};

/// unique_ptr deleter that calls a function of the plugin's table.
template <typename Handle, void (*infos_plugin_api::*Function)(Handle*)>
struct PluginDeleter {
  const infos_plugin_api* api = nullptr;
  void operator()(Handle* handle) const { (api->*Function)(handle); }
};
template <typename Handle, void (*infos_plugin_api::*Function)(Handle*)>
using PluginHandle = std::unique_ptr<Handle, PluginDeleter<Handle, Function>>;

/// A compiled graph without weights.
class Artifact {
 public:
  Result<std::vector<std::byte>> serialize() const;

 private:
  friend class Device;
  PluginHandle<infos_artifact, &infos_plugin_api::artifact_destroy> handle_;
};

/// A paged KV pool.
class KvPool {
 public:
  Result<infos_kv_layout> layout() const;
  infos_kv* get() const { return handle_.get(); }

 private:
  friend class Device;
  PluginHandle<infos_kv, &infos_plugin_api::kv_destroy> handle_;
};

/// An artifact loaded with weights.
class Program {
 public:
  /// Errors: invalid_argument (hostile batch), deadline_exceeded, cancelled, unavailable (the
  /// device failed), ...
  Status execute(const KvPool& kv, const infos_batch& batch);

 private:
  friend class Device;
  PluginHandle<infos_program, &infos_plugin_api::unload> handle_;
};

/// An opened device.
class Device {
 public:
  static Result<std::uint32_t> count(const Plugin& plugin);
  static Result<infos_device_info> describe(const Plugin& plugin, std::uint32_t index);
  static Result<Device> open(const Plugin& plugin, const DeviceConfig& config);

  const Plugin& plugin() const { return *plugin_; }
  const infos_device_info& info() const { return info_; }
  Result<infos_health> health() const;

  /// Compiles to the end on this thread.
  Result<Artifact> compile(const infos_graph& graph, const infos_bucket& bucket,
                           const std::string& options = {});
  Result<Artifact> deserialize(std::span<const std::byte> bytes);
  Result<infos_compat> compat(std::span<const std::byte> bytes);
  Result<Program> load(const Artifact& artifact, infos_weight_source source, void* context);
  Result<KvPool> create_kv(const infos_kv_config& config);
  /// Any thread: the execute that runs now fails soon.
  void cancel() const { plugin_->api().cancel(handle_.get()); }

 private:
  const Plugin* plugin_ = nullptr;
  infos_device_info info_{};
  PluginHandle<infos_device, &infos_plugin_api::close> handle_;
};

}  // namespace infos
