// SPDX-License-Identifier: Apache-2.0
// The CPU backend behind the device ABI: the one exported symbol and the table behind it. Checks
// pointers and struct sizes, turns Results into codes, and lets no exception out.
#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "devices/abi/infos_device.h"
#include "devices/cpu/device.h"
#include "devices/cpu/plan.h"
#include "devices/cpu/program.h"

// The ABI's opaque types.
struct infos_device {
  std::unique_ptr<infos::cpu::Device> device;
};
struct infos_job {
  infos::cpu::Plan plan;
};
struct infos_artifact {
  infos::cpu::Plan plan;
  std::string compat;
};
struct infos_program {
  infos::cpu::Device* device;
  std::unique_ptr<infos::cpu::Program> program;
};
struct infos_kv {
  std::unique_ptr<infos::cpu::KvPool> pool;
};

namespace infos::cpu {
namespace {

infos_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::unsupported:
      return INFOS_UNSUPPORTED;
    case ErrorCode::resource_exhausted:
      return INFOS_EXHAUSTED;
    case ErrorCode::deadline_exceeded:
      return INFOS_DEADLINE;
    case ErrorCode::cancelled:
      return INFOS_CANCELLED;
    case ErrorCode::corrupt:
      return INFOS_CORRUPT;
    case ErrorCode::unavailable:
    case ErrorCode::io:
      return INFOS_FAILED;
    default:
      return INFOS_INVALID;
  }
}

infos_code fail(infos_error* error, infos_code code, std::string_view message) {
  if (error) {
    const std::size_t n = std::min(message.size(), sizeof error->message - 1);
    std::memcpy(error->message, message.data(), n);
    error->message[n] = 0;
  }
  return code;
}

infos_code fail(infos_error* error, const Error& e) {
  return fail(error, code_of(e.code), e.message);
}
infos_code null_argument(infos_error* error, const char* function) {
  return fail(error, INFOS_INVALID, std::string(function) + ": an argument is null");
}

/// Runs `body` and keeps exceptions (allocation, thread start) inside.
template <typename Body>
infos_code guarded(infos_error* error, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(error, INFOS_EXHAUSTED, "out of memory");
  } catch (const std::exception& e) {
    return fail(error, INFOS_FAILED, e.what());
  }
}

/// The caller's struct, zero beyond what it filled.
template <typename T>
T known_part(const T& from) {
  T to{};
  std::memcpy(&to, &from, std::min<std::size_t>(from.struct_size, sizeof to));
  return to;
}

/// Fills as much of the caller's struct as it has room for.
template <typename T>
void write_out(T from, T* to) {
  const auto room = static_cast<std::uint32_t>(std::min<std::size_t>(to->struct_size, sizeof from));
  from.struct_size = room;
  std::memcpy(to, &from, room);
}

infos_code enumerate(std::uint32_t* count, infos_error* error) {
  if (!count) return null_argument(error, "enumerate");
  *count = 1;
  return INFOS_OK;
}

infos_code describe(std::uint32_t index, infos_device_info* out, infos_error* error) {
  if (!out) return null_argument(error, "describe");
  if (index != 0)
    return fail(error, INFOS_INVALID, "describe: index " + std::to_string(index) + ", allowed 0");
  return guarded(error, [&] {
    write_out(device_info(), out);
    return INFOS_OK;
  });
}

infos_code open(const infos_device_config* config, infos_device** out, infos_error* error) {
  if (!config || !out) return null_argument(error, "open");
  return guarded(error, [&] {
    const infos_device_config c = known_part(*config);
    if (c.index != 0)
      return fail(error, INFOS_INVALID, "open: index " + std::to_string(c.index) + ", allowed 0");
    DeviceOptions options;
    options.threads = c.threads;
    if (c.cores && c.n_cores) options.cores.assign(c.cores, c.cores + c.n_cores);
    options.memory_bytes = c.memory_bytes;
    if (c.options) options.options = c.options;
    if (c.group) options.group = known_part(*c.group);
    auto device = Device::open(options);
    if (!device.ok()) return fail(error, device.error());
    *out = new infos_device{std::move(*device)};
    return INFOS_OK;
  });
}

void close(infos_device* device) { delete device; }

infos_code health(infos_device* device, infos_health* out, infos_error* error) {
  if (!device || !out) return null_argument(error, "health");
  infos_health h{};
  h.healthy = 1;
  h.memory_used_bytes = device->device->memory_used();
  write_out(h, out);
  return INFOS_OK;
}

// A plan is made in microseconds, so a job is done when it begins.
infos_code compile_begin(infos_device* device, const infos_graph* graph, const infos_bucket* bucket,
                         const char*, infos_job** out, infos_error* error) {
  if (!device || !graph || !bucket || !out) return null_argument(error, "compile_begin");
  return guarded(error, [&] {
    auto plan = make_plan(known_part(*graph), *bucket);
    if (!plan.ok()) return fail(error, plan.error());
    *out = new infos_job{std::move(*plan)};
    return INFOS_OK;
  });
}

infos_code compile_poll(infos_job* job, std::uint32_t* state, double* progress,
                        infos_error* error) {
  if (!job || !state) return null_argument(error, "compile_poll");
  *state = INFOS_JOB_DONE;
  if (progress) *progress = 1.0;
  return INFOS_OK;
}

void compile_cancel(infos_job*) {}

infos_code compile_take(infos_job* job, infos_artifact** out, infos_error* error) {
  if (!job || !out) return null_argument(error, "compile_take");
  return guarded(error, [&] {
    *out = new infos_artifact{std::move(job->plan), compat_string(best_isa())};
    delete job;
    return INFOS_OK;
  });
}

infos_code artifact_serialize(const infos_artifact* artifact, void* buffer, std::uint64_t* bytes,
                              infos_error* error) {
  if (!artifact || !bytes) return null_argument(error, "artifact_serialize");
  return guarded(error, [&] {
    const auto stored = serialize(artifact->plan, artifact->compat);
    const std::uint64_t room = *bytes;
    *bytes = stored.size();
    if (!buffer) return INFOS_OK;
    if (room < stored.size())
      return fail(error, INFOS_EXHAUSTED,
                  "artifact_serialize: room for " + std::to_string(room) + " bytes, needs " +
                      std::to_string(stored.size()));
    std::memcpy(buffer, stored.data(), stored.size());
    return INFOS_OK;
  });
}

std::span<const std::uint8_t> bytes_of(const void* buffer, std::uint64_t bytes) {
  return {static_cast<const std::uint8_t*>(buffer), static_cast<std::size_t>(bytes)};
}

infos_code artifact_deserialize(infos_device* device, const void* buffer, std::uint64_t bytes,
                                infos_artifact** out, infos_error* error) {
  if (!device || !buffer || !out) return null_argument(error, "artifact_deserialize");
  return guarded(error, [&] {
    auto stored = deserialize(bytes_of(buffer, bytes));
    if (!stored.ok()) return fail(error, INFOS_CORRUPT, stored.error().message);
    *out = new infos_artifact{std::move(stored->plan), std::move(stored->compat)};
    return INFOS_OK;
  });
}

infos_code artifact_compat(infos_device* device, const void* buffer, std::uint64_t bytes,
                           std::uint32_t* compat, infos_error* error) {
  if (!device || !buffer || !compat) return null_argument(error, "artifact_compat");
  return guarded(error, [&] {
    const auto stored = deserialize(bytes_of(buffer, bytes));
    if (!stored.ok()) {
      *compat = INFOS_COMPAT_INCOMPATIBLE;
      return fail(error, INFOS_CORRUPT, stored.error().message);
    }
    *compat =
        stored->compat == compat_string(best_isa()) ? INFOS_COMPAT_OPTIMAL : INFOS_COMPAT_USABLE;
    return INFOS_OK;
  });
}

void artifact_destroy(infos_artifact* artifact) { delete artifact; }

infos_code load(infos_device* device, const infos_artifact* artifact, infos_weight_source source,
                void* context, infos_program** out, infos_error* error) {
  if (!device || !artifact || !source || !out) return null_argument(error, "load");
  return guarded(error, [&] {
    auto program = Program::load(*device->device, artifact->plan, source, context);
    if (!program.ok()) return fail(error, program.error());
    *out = new infos_program{device->device.get(), std::move(*program)};
    return INFOS_OK;
  });
}

void unload(infos_program* program) { delete program; }

infos_code execute(infos_program* program, infos_kv* kv, const infos_batch* batch,
                   infos_error* error) {
  if (!program || !kv || !batch) return null_argument(error, "execute");
  return guarded(error, [&] {
    program->device->cancelled.store(false);
    program->device->pin_caller();
    const Status done = program->program->execute(*kv->pool, known_part(*batch));
    return done.ok() ? INFOS_OK : fail(error, done.error());
  });
}

void cancel(infos_device* device) {
  if (device) device->device->cancelled.store(true);
}

infos_code kv_create(infos_device* device, const infos_kv_config* config, infos_kv** out,
                     infos_error* error) {
  if (!device || !config || !out) return null_argument(error, "kv_create");
  return guarded(error, [&] {
    auto pool = KvPool::create(*device->device, known_part(*config));
    if (!pool.ok()) return fail(error, pool.error());
    *out = new infos_kv{std::move(*pool)};
    return INFOS_OK;
  });
}

infos_code kv_layout(infos_kv* kv, infos_kv_layout* out, infos_error* error) {
  if (!kv || !out) return null_argument(error, "kv_layout");
  write_out(kv->pool->layout, out);
  return INFOS_OK;
}

void kv_destroy(infos_kv* kv) { delete kv; }

infos_plugin_api table() {
  infos_plugin_api api{};
  api.abi_version = INFOS_ABI_VERSION;
  api.name = "cpu";
  api.build = "cpu-" INFOS_CPU_BUILD;
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
  return api;
}

}  // namespace
}  // namespace infos::cpu

extern "C" __attribute__((visibility("default"))) infos_code infos_plugin_query(
    std::uint32_t host_abi, const infos_host_api*, infos_plugin_api* out, infos_error* error) {
  using namespace infos::cpu;
  if (!out) return null_argument(error, "infos_plugin_query");
  if (host_abi < INFOS_ABI_VERSION_MIN || host_abi > INFOS_ABI_VERSION + 1) {
    return fail(error, INFOS_UNSUPPORTED,
                "the host speaks ABI " + std::to_string(host_abi) + ", this plugin " +
                    std::to_string(INFOS_ABI_VERSION));
  }
  write_out(table(), out);
  return INFOS_OK;
}
