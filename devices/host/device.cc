// SPDX-License-Identifier: Apache-2.0
#include "devices/host/device.h"

#include <fmt/format.h>
#include <time.h>

#include <cstring>

namespace infos {

namespace {
/// Gives way to the compiling thread without a busy loop.
void wait_a_little() {
  const timespec pause{0, 1'000'000};
  nanosleep(&pause, nullptr);
}
}  // namespace

Result<std::vector<std::byte>> Artifact::serialize() const {
  const infos_plugin_api& api = *handle_.get_deleter().api;
  infos_error error{};
  std::uint64_t size = 0;
  infos_code code = api.artifact_serialize(handle_.get(), nullptr, &size, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "serialize artifact");
  std::vector<std::byte> bytes(size);
  code = api.artifact_serialize(handle_.get(), bytes.data(), &size, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "serialize artifact");
  if (size > bytes.size())
    return Error{ErrorCode::corrupt,
                 fmt::format("serialize artifact: {} bytes, announced {}", size, bytes.size())};
  bytes.resize(size);
  return bytes;
}

Result<infos_kv_layout> KvPool::layout() const {
  infos_kv_layout layout{};
  layout.struct_size = sizeof layout;
  infos_error error{};
  const infos_code code = handle_.get_deleter().api->kv_layout(handle_.get(), &layout, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "KV layout");
  return layout;
}

Status Program::execute(const KvPool& kv, const infos_batch& batch) {
  infos_error error{};
  const infos_code code =
      handle_.get_deleter().api->execute(handle_.get(), kv.get(), &batch, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "execute");
  return {};
}

Result<std::uint32_t> Device::count(const Plugin& plugin) {
  std::uint32_t count = 0;
  infos_error error{};
  const infos_code code = plugin.api().enumerate(&count, &error);
  if (code != INFOS_OK) return plugin_error(code, error, plugin.name() + ": enumerate");
  return count;
}

Result<infos_device_info> Device::describe(const Plugin& plugin, std::uint32_t index) {
  infos_device_info info{};
  info.struct_size = sizeof info;
  infos_error error{};
  const infos_code code = plugin.api().describe(index, &info, &error);
  if (code != INFOS_OK) return plugin_error(code, error, plugin.name() + ": describe");
  info.name[sizeof info.name - 1] = 0;
  info.compat[sizeof info.compat - 1] = 0;
  return info;
}

Result<Device> Device::open(const Plugin& plugin, const DeviceConfig& config) {
  Device device;
  device.plugin_ = &plugin;
  device.info_ = INFOS_TRY(describe(plugin, config.index));
  infos_device_config c{};
  c.struct_size = sizeof c;
  c.index = config.index;
  c.threads = config.threads;
  c.n_cores = static_cast<std::uint32_t>(config.cores.size());
  c.cores = config.cores.empty() ? nullptr : config.cores.data();
  c.memory_bytes = config.memory_bytes;
  c.options = config.options.empty() ? nullptr : config.options.c_str();
  c.group = config.group;
  infos_device* handle = nullptr;
  infos_error error{};
  const infos_code code = plugin.api().open(&c, &handle, &error);
  if (code != INFOS_OK) return plugin_error(code, error, plugin.name() + ": open");
  device.handle_ = {handle, {&plugin.api()}};
  return device;
}

Result<infos_health> Device::health() const {
  infos_health health{};
  health.struct_size = sizeof health;
  infos_error error{};
  const infos_code code = plugin_->api().health(handle_.get(), &health, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "health");
  health.message[sizeof health.message - 1] = 0;
  return health;
}

Result<Artifact> Device::compile(const infos_graph& graph, const infos_bucket& bucket,
                                 const std::string& options) {
  const infos_plugin_api& api = plugin_->api();
  infos_job* job = nullptr;
  infos_error error{};
  infos_code code = api.compile_begin(handle_.get(), &graph, &bucket,
                                      options.empty() ? nullptr : options.c_str(), &job, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "compile");
  std::uint32_t state = INFOS_JOB_RUNNING;
  for (;;) {
    double progress = 0;
    code = api.compile_poll(job, &state, &progress, &error);
    if (code != INFOS_OK || state != INFOS_JOB_RUNNING) break;
    wait_a_little();
  }
  if (code != INFOS_OK) api.compile_cancel(job);
  Artifact artifact;
  infos_artifact* handle = nullptr;
  code = api.compile_take(job, &handle, &error);  // frees the job, also when it failed
  if (code != INFOS_OK) return plugin_error(code, error, "compile");
  artifact.handle_ = {handle, {&api}};
  return artifact;
}

Result<Artifact> Device::deserialize(std::span<const std::byte> bytes) {
  const infos_plugin_api& api = plugin_->api();
  infos_artifact* handle = nullptr;
  infos_error error{};
  const infos_code code =
      api.artifact_deserialize(handle_.get(), bytes.data(), bytes.size(), &handle, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "read artifact");
  Artifact artifact;
  artifact.handle_ = {handle, {&api}};
  return artifact;
}

Result<infos_compat> Device::compat(std::span<const std::byte> bytes) {
  std::uint32_t compat = INFOS_COMPAT_NONE;
  infos_error error{};
  const infos_code code =
      plugin_->api().artifact_compat(handle_.get(), bytes.data(), bytes.size(), &compat, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "artifact compatibility");
  return static_cast<infos_compat>(compat);
}

Result<Program> Device::load(const Artifact& artifact, infos_weight_source source, void* context) {
  const infos_plugin_api& api = plugin_->api();
  infos_program* handle = nullptr;
  infos_error error{};
  const infos_code code =
      api.load(handle_.get(), artifact.handle_.get(), source, context, &handle, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "load weights");
  Program program;
  program.handle_ = {handle, {&api}};
  return program;
}

Result<KvPool> Device::create_kv(const infos_kv_config& config) {
  const infos_plugin_api& api = plugin_->api();
  infos_kv* handle = nullptr;
  infos_error error{};
  const infos_code code = api.kv_create(handle_.get(), &config, &handle, &error);
  if (code != INFOS_OK) return plugin_error(code, error, "KV pool");
  KvPool pool;
  pool.handle_ = {handle, {&api}};
  return pool;
}

}  // namespace infos
