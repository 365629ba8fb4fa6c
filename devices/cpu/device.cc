// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/device.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <charconv>
#include <string>
#include <string_view>

namespace infos::cpu {
namespace {

struct Parsed {
  Isa isa = best_isa();
  std::uint32_t spin_us = 200;
};

Status set_option(Parsed& parsed, std::string_view key, std::string_view value) {
  if (key == "isa") {
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avxvnni, Isa::avx512}) {
      if (value != to_string(isa)) continue;
      if (!isa_supported(isa)) {
        return Error{ErrorCode::unsupported,
                     fmt::format("isa={}: this machine lacks it; its best is {}", value,
                                 to_string(best_isa()))};
      }
      parsed.isa = isa;
      return {};
    }
    return Error{ErrorCode::invalid_argument,
                 fmt::format("isa={}: allowed are generic, avx2, avxvnni, avx512", value)};
  }
  if (key == "spin_us") {
    const auto [end, code] =
        std::from_chars(value.data(), value.data() + value.size(), parsed.spin_us);
    if (code == std::errc() && end == value.data() + value.size() && parsed.spin_us <= 1000000)
      return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("spin_us={}: allowed are 0 to 1000000", value)};
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("device option {}: allowed are isa, spin_us", key)};
}

Result<Parsed> parse_options(std::string_view text) {
  Parsed parsed;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("device option {}: expected key=value", item)};
    }
    INFOS_TRY(set_option(parsed, item.substr(0, equals), item.substr(equals + 1)));
  }
  return parsed;
}

/// Pinning to a core that this process may not use would fail silently, thread by thread.
Status check_cores(const std::vector<std::uint32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cores.empty() || sched_getaffinity(0, sizeof set, &set) != 0) return {};
  for (const std::uint32_t core : cores) {
    if (core < CPU_SETSIZE && CPU_ISSET(core, &set)) continue;
    std::string usable;
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) usable += (usable.empty() ? "" : ",") + std::to_string(i);
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("core {} cannot be used by this process; its cores are {}", core, usable)};
  }
  return {};
}

}  // namespace

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<std::uint32_t>(count) : 1;
}

Result<std::unique_ptr<Device>> Device::open(const DeviceOptions& options) {
  const Parsed parsed = INFOS_TRY(parse_options(options.options));
  const std::uint32_t threads = options.threads ? options.threads : usable_cores();
  if (threads > 1024)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} threads, allowed up to 1024", threads)};
  INFOS_TRY(check_cores(options.cores));
  if (options.group && (options.group->rank >= options.group->ranks || !options.group->exchange ||
                        options.group->ranks > kRanksMax)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("rank {} of a group of {}: allowed are ranks below the size, sizes up "
                             "to {}, and an exchange",
                             options.group->rank, options.group->ranks, kRanksMax)};
  }
  std::unique_ptr<Device> device(new Device(kernels_for(parsed.isa)));
  device->cores_ = options.cores;
  device->group_ = options.group;
  device->memory_bytes_ = options.memory_bytes;
  device->pool_ = std::make_unique<ThreadPool>(threads, device->cores_, parsed.spin_us);
  return device;
}

Status Device::reserve(std::uint64_t bytes, const char* what) {
  const std::uint64_t there = memory_bytes_ > memory_used_ ? memory_bytes_ - memory_used_ : 0;
  if (memory_bytes_ != 0 && bytes > there) {
    return Error{ErrorCode::resource_exhausted,
                 fmt::format("{} bytes for {}, {} of the device's {} are free", bytes, what, there,
                             memory_bytes_)};
  }
  memory_used_ += bytes;
  return {};
}

Result<Memory> Device::allocate(std::uint64_t bytes, const char* what) {
  INFOS_TRY(reserve(bytes, what));
  memory_used_ -= bytes;
  Memory memory = INFOS_TRY(Memory::allocate(bytes, what));
  memory_used_ += memory.bytes();
  return memory;
}

void Device::pin_caller() {
  const auto self = static_cast<std::uint64_t>(pthread_self());
  if (cores_.empty() || caller_ == self) return;
  caller_ = self;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cores_[0] < CPU_SETSIZE) CPU_SET(cores_[0], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

Result<std::unique_ptr<KvPool>> KvPool::create(Device& device, const infos_kv_config& c) {
  const auto invalid = [](const char* name, std::uint64_t value, std::uint64_t most) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("KV pool: {} is {}, allowed 1 to {}", name, value, most)};
  };
  if (c.layers == 0 || c.layers > 4096) return invalid("layers", c.layers, 4096);
  if (c.kv_heads == 0 || c.kv_heads > 4096) return invalid("kv_heads", c.kv_heads, 4096);
  if (c.head_dim == 0 || c.head_dim > 1024) return invalid("head_dim", c.head_dim, 1024);
  if (c.block_tokens == 0 || c.block_tokens > 65536)
    return invalid("block_tokens", c.block_tokens, 65536);
  if (c.n_blocks == 0 || c.n_blocks > (1U << 30)) return invalid("n_blocks", c.n_blocks, 1U << 30);
  if (c.dtype != INFOS_F32 && c.dtype != INFOS_F16 && c.dtype != INFOS_BF16) {
    return Error{ErrorCode::unsupported,
                 fmt::format("KV pool: dtype {}, allowed f32 (1), f16 (2), bf16 (3)", c.dtype)};
  }
  auto pool = std::make_unique<KvPool>();
  pool->config = c;
  pool->type = c.dtype == INFOS_F32   ? KvType::f32
               : c.dtype == INFOS_F16 ? KvType::f16
                                      : KvType::bf16;
  infos_kv_layout& l = pool->layout;
  l.struct_size = sizeof l;
  l.dtype = c.dtype;
  l.s_token = c.head_dim * kv_element_bytes(pool->type);
  l.s_head = l.s_token * c.block_tokens;
  l.v_offset = l.s_head * c.kv_heads;
  l.s_layer = 2 * l.v_offset;
  if (__builtin_mul_overflow(l.s_layer, std::uint64_t{c.layers}, &l.s_block) ||
      __builtin_mul_overflow(l.s_block, std::uint64_t{c.n_blocks}, &l.bytes) ||
      l.bytes > (std::uint64_t{1} << 46)) {
    return Error{
        ErrorCode::resource_exhausted,
        fmt::format("KV pool: {} blocks of {} layers are more than 64 TiB", c.n_blocks, c.layers)};
  }
  pool->device = &device;
  INFOS_TRY(pool->take_memory());
  l.base = pool->data;
  return pool;
}

Status KvPool::take_memory() {
  if (!config.allocate) {
    memory = INFOS_TRY(device->allocate(layout.bytes, "the KV pool"));
    data = memory.data();
    return {};
  }
  if (!config.release)
    return Error{ErrorCode::invalid_argument, "KV pool: allocate without release, want both"};
  INFOS_TRY(device->reserve(layout.bytes, "the KV pool"));
  data = static_cast<std::uint8_t*>(config.allocate(config.allocate_context, layout.bytes));
  if (!data) {
    device->release(layout.bytes);
    return Error{ErrorCode::resource_exhausted,
                 fmt::format("the host gives no {} bytes for the KV pool", layout.bytes)};
  }
  host_bytes = layout.bytes;
  if (reinterpret_cast<std::uintptr_t>(data) % 4096 != 0)
    return Error{ErrorCode::invalid_argument,
                 "KV pool: the host's memory is not aligned to a page of 4096 bytes"};
  return {};
}

KvPool::~KvPool() {
  if (!device) return;
  device->release(memory.bytes() + host_bytes);
  if (host_bytes) config.release(config.allocate_context, data, host_bytes);
}

}  // namespace infos::cpu
