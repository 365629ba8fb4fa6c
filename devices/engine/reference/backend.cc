// SPDX-License-Identifier: Apache-2.0
#include "devices/engine/reference/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "devices/engine/reference/artifact.h"
#include "devices/engine/reference/dequantise.h"
#include "devices/engine/reference/program.h"

using infos::reference::Artifact;
using infos::reference::KvPoolMemory;
using infos::reference::Outcome;
using infos::reference::Precision;

// The ABI's opaque types, as this backend fills them.
struct infos_device {
  Precision precision = Precision::f64;
  std::uint64_t memory_bytes = 0;       // bound on KV pools; 0: none
  std::uint64_t memory_used_bytes = 0;  // by KV pools
  std::optional<infos_group> group;
  std::atomic<bool> cancelled{false};
};
struct infos_job {
  Artifact artifact;
};
struct infos_artifact {
  Artifact artifact;
};
struct infos_program {
  infos_device* device;
  std::unique_ptr<infos::reference::Program> program;
};
struct infos_kv {
  infos_device* device;
  KvPoolMemory memory;
};

namespace infos::reference {
namespace {

infos_code finish(const Outcome& outcome, infos_error* error) {
  if (error != nullptr && outcome.code != INFOS_OK) {
    const std::size_t n = std::min(outcome.message.size(), sizeof(error->message) - 1);
    std::memcpy(error->message, outcome.message.data(), n);
    error->message[n] = 0;
  }
  return outcome.code;
}
infos_code refuse(infos_error* error, const char* what) {
  return finish({INFOS_INVALID, what}, error);
}

infos_device_info device_info() {
  infos_device_info info{};
  info.struct_size = sizeof info;
  info.device_class = INFOS_CLASS_CPU;
  std::strcpy(info.name, "reference");
  std::strcpy(info.compat, "reference-1");
  info.kv_capacity_bytes = UINT64_MAX;
  info.cores = 1;
  info.phases = 15;
  for (int op = INFOS_OP_EMBED; op <= INFOS_OP_ALL_REDUCE; ++op)
    info.op_mask |= std::uint64_t{1} << op;
  for (std::uint32_t dtype = 0; dtype < 64; ++dtype)
    if (block_of(dtype).elements != 0) info.dtype_mask |= std::uint64_t{1} << dtype;
  info.batch_invariant = 1;
  return info;
}

infos_code enumerate(uint32_t* count, infos_error* error) {
  if (count == nullptr) return refuse(error, "enumerate: count is null");
  *count = 1;
  return INFOS_OK;
}

infos_code describe(uint32_t index, infos_device_info* out, infos_error* error) {
  if (out == nullptr) return refuse(error, "describe: out is null");
  if (index != 0) return finish({INFOS_INVALID, fmt::format("device {} of 1", index)}, error);
  write_struct(device_info(), out);
  return INFOS_OK;
}

infos_code open(const infos_device_config* config, infos_device** out, infos_error* error) {
  if (config == nullptr || out == nullptr) return refuse(error, "open: config or out is null");
  const infos_device_config c = read_struct(config);
  if (c.index != 0) return finish({INFOS_INVALID, fmt::format("device {} of 1", c.index)}, error);
  auto device = std::make_unique<infos_device>();
  const std::string_view options = c.options != nullptr ? c.options : "";
  if (options == "precision=f32")
    device->precision = Precision::f32;
  else if (!options.empty() && options != "precision=f64")
    return finish(
        {INFOS_INVALID, fmt::format("option '{}': want precision=f64 or precision=f32", options)},
        error);
  device->memory_bytes = c.memory_bytes;
  if (c.group != nullptr) device->group = read_struct(c.group);
  if (device->group && (device->group->rank >= device->group->ranks || !device->group->exchange))
    return finish({INFOS_INVALID, fmt::format("rank {} of a group of {}, or one without exchange",
                                              device->group->rank, device->group->ranks)},
                  error);
  *out = device.release();
  return INFOS_OK;
}

void close(infos_device* device) { delete device; }

infos_code health(infos_device* device, infos_health* out, infos_error* error) {
  if (device == nullptr || out == nullptr) return refuse(error, "health: device or out is null");
  infos_health h{};
  h.struct_size = sizeof h;
  h.healthy = 1;
  h.memory_used_bytes = device->memory_used_bytes;
  write_struct(h, out);
  return INFOS_OK;
}

infos_code compile_begin(infos_device* device, const infos_graph* graph, const infos_bucket* bucket,
                         const char*, infos_job** out, infos_error* error) {
  if (device == nullptr || bucket == nullptr || out == nullptr)
    return refuse(error, "compile: a null argument");
  auto job = std::make_unique<infos_job>();
  job->artifact.bucket = read_struct(bucket);
  const infos_bucket& b = job->artifact.bucket;
  if (b.max_tokens == 0 || b.max_sequences == 0 || b.max_context == 0)
    return refuse(error, "compile: a bucket of zero tokens, sequences or context");
  if (std::string problem = copy_graph(graph, &job->artifact.graph); !problem.empty())
    return finish({INFOS_INVALID, problem}, error);
  *out = job.release();
  return INFOS_OK;
}

infos_code compile_poll(infos_job* job, uint32_t* state, double* progress, infos_error* error) {
  if (job == nullptr || state == nullptr)
    return refuse(error, "compile_poll: job or state is null");
  *state = INFOS_JOB_DONE;
  if (progress != nullptr) *progress = 1.0;
  return INFOS_OK;
}

void compile_cancel(infos_job*) {}  // a job is complete from the start

infos_code compile_take(infos_job* job, infos_artifact** out, infos_error* error) {
  if (job == nullptr || out == nullptr) return refuse(error, "compile_take: job or out is null");
  *out = new infos_artifact{std::move(job->artifact)};
  delete job;
  return INFOS_OK;
}

infos_code artifact_serialize(const infos_artifact* artifact, void* buffer, uint64_t* bytes,
                              infos_error* error) {
  if (artifact == nullptr || bytes == nullptr)
    return refuse(error, "serialize: artifact or bytes is null");
  const std::vector<std::byte> data = write_artifact(artifact->artifact);
  const std::uint64_t room = *bytes;
  *bytes = data.size();
  if (buffer == nullptr) return INFOS_OK;
  if (room < data.size())
    return finish({INFOS_EXHAUSTED,
                   fmt::format("the artifact has {} bytes: room is for {}", data.size(), room)},
                  error);
  std::memcpy(buffer, data.data(), data.size());
  return INFOS_OK;
}

infos_code artifact_deserialize(infos_device* device, const void* buffer, uint64_t bytes,
                                infos_artifact** out, infos_error* error) {
  if (device == nullptr || buffer == nullptr || out == nullptr)
    return refuse(error, "deserialize: a null argument");
  Artifact artifact;
  if (std::string problem =
          read_artifact({static_cast<const std::byte*>(buffer), bytes}, &artifact);
      !problem.empty())
    return finish({INFOS_CORRUPT, problem}, error);
  *out = new infos_artifact{std::move(artifact)};
  return INFOS_OK;
}

infos_code artifact_compat(infos_device* device, const void* buffer, uint64_t bytes,
                           uint32_t* compat, infos_error* error) {
  if (device == nullptr || buffer == nullptr || compat == nullptr)
    return refuse(error, "compat: a null argument");
  Artifact artifact;
  const std::string problem =
      read_artifact({static_cast<const std::byte*>(buffer), bytes}, &artifact);
  *compat = problem.empty() ? INFOS_COMPAT_OPTIMAL : INFOS_COMPAT_INCOMPATIBLE;
  return finish({problem.empty() ? INFOS_OK : INFOS_CORRUPT, problem}, error);
}

void artifact_destroy(infos_artifact* artifact) { delete artifact; }

infos_code load(infos_device* device, const infos_artifact* artifact, infos_weight_source source,
                void* context, infos_program** out, infos_error* error) {
  if (device == nullptr || artifact == nullptr || source == nullptr || out == nullptr)
    return refuse(error, "load: a null argument");
  std::unique_ptr<Program> program;
  const infos_group* group = device->group ? &*device->group : nullptr;
  const Outcome outcome = load_program(artifact->artifact.graph, artifact->artifact.bucket,
                                       {device->precision, group}, source, context, &program);
  if (outcome.code == INFOS_OK) *out = new infos_program{device, std::move(program)};
  return finish(outcome, error);
}

void unload(infos_program* program) { delete program; }

infos_code execute(infos_program* program, infos_kv* kv, const infos_batch* batch,
                   infos_error* error) {
  if (program == nullptr || kv == nullptr || batch == nullptr)
    return refuse(error, "execute: a null argument");
  program->device->cancelled = false;
  return finish(program->program->execute(kv->memory, batch, program->device->cancelled), error);
}

void cancel(infos_device* device) {
  if (device != nullptr) device->cancelled = true;
}

infos_code kv_create(infos_device* device, const infos_kv_config* config, infos_kv** out,
                     infos_error* error) {
  if (device == nullptr || config == nullptr || out == nullptr)
    return refuse(error, "kv_create: a null argument");
  const infos_kv_config c = read_struct(config);
  const bool dtype = c.dtype == INFOS_F32 || c.dtype == INFOS_F16 || c.dtype == INFOS_BF16;
  const std::uint32_t sizes[] = {c.layers, c.kv_heads, c.head_dim, c.block_tokens, c.n_blocks};
  for (const std::uint32_t size : sizes)
    if (size == 0 || size > (1U << 24))
      return finish({INFOS_INVALID, fmt::format("a KV size is {}: want 1 to {}", size, 1 << 24)},
                    error);
  if (!dtype)
    return finish(
        {INFOS_UNSUPPORTED, fmt::format("KV dtype {}: want f32, f16 or bf16", dtype_name(c.dtype))},
        error);
  // In floating point first: the product of five sizes may not fit 64 bits.
  double total = 2.0 * block_of(c.dtype).bytes;
  for (const std::uint32_t size : sizes) total *= size;
  if (total > 1e13 ||
      (device->memory_bytes != 0 &&
       total > static_cast<double>(device->memory_bytes - device->memory_used_bytes)))
    return finish({INFOS_EXHAUSTED, fmt::format("a KV pool of {:.0f} bytes does not fit", total)},
                  error);
  auto kv = std::make_unique<infos_kv>();
  kv->device = device;
  kv->memory.config = c;
  infos_kv_layout& l = kv->memory.layout;
  l.struct_size = sizeof l;
  l.dtype = c.dtype;
  l.s_token = std::uint64_t{c.head_dim} * block_of(c.dtype).bytes;
  l.s_head = l.s_token * c.block_tokens;
  l.v_offset = l.s_head * c.kv_heads;
  l.s_layer = l.v_offset * 2;
  l.s_block = l.s_layer * c.layers;
  l.bytes = l.s_block * c.n_blocks;
  if (const Outcome taken = kv->memory.take(); taken.code != INFOS_OK) return finish(taken, error);
  device->memory_used_bytes += l.bytes;
  *out = kv.release();
  return INFOS_OK;
}

infos_code kv_layout(infos_kv* kv, infos_kv_layout* out, infos_error* error) {
  if (kv == nullptr || out == nullptr) return refuse(error, "kv_layout: kv or out is null");
  write_struct(kv->memory.layout, out);
  return INFOS_OK;
}

void kv_destroy(infos_kv* kv) {
  if (kv == nullptr) return;
  kv->device->memory_used_bytes -= kv->memory.layout.bytes;
  delete kv;
}

}  // namespace

infos_code plugin_query(uint32_t host_abi, const infos_host_api* host, infos_plugin_api* out,
                        infos_error* error) {
  if (host == nullptr || out == nullptr) return refuse(error, "query: host or out is null");
  if (host_abi < INFOS_ABI_VERSION_MIN || host_abi > INFOS_ABI_VERSION + 1)
    return finish(
        {INFOS_UNSUPPORTED, fmt::format("host ABI {}: this plugin works with {} to {}", host_abi,
                                        INFOS_ABI_VERSION_MIN, INFOS_ABI_VERSION + 1)},
        error);
  infos_plugin_api api{};
  api.struct_size = sizeof api;
  api.abi_version = INFOS_ABI_VERSION;
  api.name = "reference";
  api.build = "reference-1";
  api.enumerate = enumerate;
  api.describe = describe;
  api.open = open;
  api.close = close;
  api.health = health;
  api.compile_begin = compile_begin;
  api.compile_poll = compile_poll;
  api.compile_cancel = compile_cancel;
  api.compile_take = compile_take;
  api.artifact_serialize = artifact_serialize;
  api.artifact_deserialize = artifact_deserialize;
  api.artifact_compat = artifact_compat;
  api.artifact_destroy = artifact_destroy;
  api.load = load;
  api.unload = unload;
  api.execute = execute;
  api.cancel = cancel;
  api.kv_create = kv_create;
  api.kv_layout = kv_layout;
  api.kv_destroy = kv_destroy;
  write_struct(api, out);
  return INFOS_OK;
}

}  // namespace infos::reference
