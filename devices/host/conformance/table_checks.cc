// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstddef>
#include <cstring>

#include "devices/host/conformance/checks.h"
#include "devices/host/conformance/tiny_model.h"

namespace infos::conformance {

namespace {

void quiet_log(void*, int, const char*) {}

/// A table with guard bytes behind the room that the plugin is told of.
struct Room {
  union {
    infos_plugin_api api;
    unsigned char bytes[4096];
  };
  explicit Room(std::size_t size) {
    std::memset(bytes, 0xa5, sizeof bytes);
    std::memset(bytes, 0, size);
    api.struct_size = static_cast<std::uint32_t>(size);
  }
  bool overrun(std::size_t size) const {
    for (std::size_t i = size; i < sizeof bytes; ++i)
      if (bytes[i] != 0xa5) return true;
    return false;
  }
};

/// Empty when a host of this ABI version with this much room is served or refused in good order.
std::string try_version(const Plugin& plugin, std::uint32_t abi, std::size_t size, bool must_work) {
  Room room(size);
  infos_host_api host{};
  host.struct_size = sizeof host;
  host.abi_version = abi;
  host.log = quiet_log;
  infos_error error{};
  const infos_code code = plugin.query()(abi, &host, &room.api, &error);
  if (room.overrun(size))
    return fmt::format("ABI {}: wrote beyond the {} bytes of room for its table", abi, size);
  if (code == INFOS_OK) {
    if (room.api.struct_size > size)
      return fmt::format("ABI {}: says it filled {} bytes of {}", abi, room.api.struct_size, size);
    return room.api.open == nullptr ? fmt::format("ABI {}: a table without functions", abi) : "";
  }
  if (must_work) return fmt::format("ABI {}: refused: {}", abi, error.message);
  if (code != INFOS_UNSUPPORTED || error.message[0] == 0)
    return fmt::format("ABI {}: refused with code {} and '{}': want INFOS_UNSUPPORTED and a reason",
                       abi, static_cast<int>(code), error.message);
  return {};
}

Verdict versions(const Plugin& plugin, const std::string&) {
  constexpr std::size_t kFull = sizeof(infos_plugin_api);
  constexpr std::size_t kFirst = offsetof(infos_plugin_api, keeps_weights);
  const struct {
    std::uint32_t abi;
    std::size_t size;
    bool must_work;
  } hosts[] = {{INFOS_ABI_VERSION, kFull, true},
               {INFOS_ABI_VERSION, kFirst, true},
               {INFOS_ABI_VERSION, kFull + 256, true},
               {INFOS_ABI_VERSION + 1, kFull + 256, true},
               {INFOS_ABI_VERSION - 1, kFull, INFOS_ABI_VERSION > INFOS_ABI_VERSION_MIN},
               {0, kFull, false},
               {1000, kFull, false}};
  for (const auto& host : hosts)
    if (std::string why = try_version(plugin, host.abi, host.size, host.must_work); !why.empty())
      return fail(why);
  return pass();
}

Verdict out_structs(const Plugin& plugin, const std::string&) {
  unsigned char bytes[sizeof(infos_device_info) + 64];
  std::memset(bytes, 0xa5, sizeof bytes);
  auto* info = reinterpret_cast<infos_device_info*>(bytes);
  constexpr std::uint32_t kRoom = offsetof(infos_device_info, op_mask);
  info->struct_size = kRoom;
  infos_error error{};
  if (plugin.api().describe(0, info, &error) != INFOS_OK)
    return fail(fmt::format("describe: {}", error.message));
  for (std::size_t i = kRoom; i < sizeof bytes; ++i)
    if (bytes[i] != 0xa5) return fail("describe wrote beyond the room that struct_size named");
  return pass();
}

Verdict description(const Plugin& plugin, const std::string&) {
  const std::uint32_t count = INFOS_CHECK_OK(Device::count(plugin));
  if (count == 0) return fail("no device");
  for (std::uint32_t i = 0; i < count; ++i) {
    const infos_device_info info = INFOS_CHECK_OK(Device::describe(plugin, i));
    if (info.name[0] == 0 || info.compat[0] == 0)
      return fail(fmt::format("device {} has no name or no compat string", i));
    if (info.device_class < INFOS_CLASS_CPU || info.device_class > INFOS_CLASS_ASIC)
      return fail(fmt::format("device {} is of class {}", i, info.device_class));
    if (info.op_mask == 0 || info.dtype_mask == 0)
      return fail(fmt::format("device {} supports no op or no dtype", i));
  }
  if (Device::describe(plugin, count).ok())
    return fail(fmt::format("describes device {} of {}", count, count));
  DeviceConfig config;
  config.index = count;
  infos_device_config c{};
  c.struct_size = sizeof c;
  c.index = count;
  infos_device* handle = nullptr;
  infos_error error{};
  if (plugin.api().open(&c, &handle, &error) == INFOS_OK)
    return fail(fmt::format("opens device {} of {}", count, count));
  return pass();
}

/// Calls every function with nulls where a value must be; each must say INFOS_INVALID and live.
Verdict nulls(const Plugin& plugin, const std::string& options) {
  TinyModel m =
      INFOS_CHECK_OK(TinyModel::load(plugin, options, tiny_config("llama", INFOS_F32), INFOS_F32));
  const infos_plugin_api& api = plugin.api();
  infos_error error{};
  const infos_graph graph = m.graph.view();
  infos_device_config config{};
  config.struct_size = sizeof config;
  infos_device* device = nullptr;
  infos_job* job = nullptr;
  infos_artifact* artifact = nullptr;
  infos_program* program = nullptr;
  infos_kv* kv = nullptr;
  const infos_kv_config kv_wanted = kv_config(m.config);
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  const struct {
    const char* call;
    infos_code code;
  } calls[] = {
      {"enumerate(null)", api.enumerate(nullptr, &error)},
      {"describe(0, null)", api.describe(0, nullptr, &error)},
      {"open(null, out)", api.open(nullptr, &device, &error)},
      {"open(config, null)", api.open(&config, nullptr, &error)},
      {"health(null, null)", api.health(nullptr, nullptr, &error)},
      {"compile_begin(null device)",
       api.compile_begin(nullptr, &graph, &kBucket, nullptr, &job, &error)},
      {"compile_poll(null)", api.compile_poll(nullptr, &number, nullptr, &error)},
      {"compile_take(null)", api.compile_take(nullptr, &artifact, &error)},
      {"artifact_serialize(null)", api.artifact_serialize(nullptr, nullptr, &bytes, &error)},
      {"artifact_deserialize(null)",
       api.artifact_deserialize(nullptr, nullptr, 0, &artifact, &error)},
      {"artifact_compat(null)", api.artifact_compat(nullptr, nullptr, 0, &number, &error)},
      {"load(null)", api.load(nullptr, nullptr, nullptr, nullptr, &program, &error)},
      {"execute(null program)", api.execute(nullptr, m.kv.get(), nullptr, &error)},
      {"kv_create(null)", api.kv_create(nullptr, &kv_wanted, &kv, &error)},
      {"kv_layout(null)", api.kv_layout(nullptr, nullptr, &error)},
      {"enumerate(null, no error)", api.enumerate(nullptr, nullptr)},
  };
  for (const auto& call : calls)
    if (call.code != INFOS_INVALID)
      return fail(fmt::format("{} gives code {}: want INFOS_INVALID", call.call,
                              static_cast<int>(call.code)));
  api.artifact_destroy(nullptr);
  api.unload(nullptr);
  api.kv_destroy(nullptr);
  api.close(nullptr);
  api.cancel(nullptr);
  INFOS_CHECK_OK(m.run({{0, 0, {1, 2, 3}}}));
  return pass();
}

Verdict lifecycle(const Plugin& plugin, const std::string& options) {
  const ModelConfig config = tiny_config("llama", INFOS_F32);
  const std::vector<Rows> rows = {{0, 0, {1, 2, 3}}};
  for (int round = 0; round < 2; ++round) {
    TinyModel a = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
    TinyModel b = INFOS_CHECK_OK(TinyModel::load(plugin, options, config, INFOS_F32));
    const auto want = INFOS_CHECK_OK(a.run(rows));
    a.artifact = Artifact();  // a program lives without its artifact
    if (INFOS_CHECK_OK(a.run(rows)) != want) return fail("logits changed when the artifact went");
    KvPool second = INFOS_CHECK_OK(a.device.create_kv(kv_config(config)));
    std::swap(a.kv, second);
    second = KvPool();
    if (INFOS_CHECK_OK(a.run(rows)) != want) return fail("logits changed with another KV pool");
    if (INFOS_CHECK_OK(b.run(rows)) != want) return fail("two devices with one model differ");
    a.kv = KvPool();  // pool before program here, program before pool in `b`
    a.program = Program();
    b.program = Program();
    b.kv = KvPool();
  }
  return pass();
}

Verdict kv_pools(const Plugin& plugin, const std::string& options) {
  DeviceConfig device_config;
  device_config.options = options;
  Device device = INFOS_CHECK_OK(Device::open(plugin, device_config));
  if (device.info().kv_capacity_bytes == 0) return skip("the device holds no KV caches");
  const infos_kv_config good = kv_config(tiny_config("llama", INFOS_F32));
  for (const std::uint32_t dtype : {INFOS_F32, INFOS_F16, INFOS_BF16}) {
    infos_kv_config c = good;
    c.dtype = dtype;
    const KvPool pool = INFOS_CHECK_OK(device.create_kv(c));
    const infos_kv_layout layout = INFOS_CHECK_OK(pool.layout());
    const std::uint64_t least = std::uint64_t{2} * c.layers * c.kv_heads * c.head_dim *
                                c.block_tokens * c.n_blocks * (dtype == INFOS_F32 ? 4 : 2);
    if (layout.dtype != dtype || layout.bytes < least)
      return fail(fmt::format("layout of {} bytes in dtype {}: want at least {} in {}",
                              layout.bytes, layout.dtype, least, dtype));
    const std::uint64_t element = dtype == INFOS_F32 ? 4 : 2;
    const std::uint64_t last = (c.n_blocks - 1) * layout.s_block + (c.layers - 1) * layout.s_layer +
                               (c.kv_heads - 1) * layout.s_head +
                               (c.block_tokens - 1) * layout.s_token + layout.v_offset +
                               c.head_dim * element;
    if (last > layout.bytes)
      return fail(fmt::format("the last element lies at {} of {} bytes", last, layout.bytes));
  }
  for (int field = 0; field < 6; ++field) {
    infos_kv_config c = good;
    std::uint32_t* fields[] = {&c.dtype,    &c.layers,       &c.kv_heads,
                               &c.head_dim, &c.block_tokens, &c.n_blocks};
    *fields[field] = 0;
    if (device.create_kv(c).ok())
      return fail(fmt::format("makes a KV pool whose field {} is zero", field));
  }
  infos_kv_config huge = good;
  huge.n_blocks = huge.layers = huge.head_dim = 1U << 22;
  if (device.create_kv(huge).ok()) return fail("makes a KV pool of more bytes than 64 bits count");
  return pass();
}

}  // namespace

std::vector<Check> table_checks() {
  return {{"hosts of ABI N-1, N and N+1 are served, others refused with a reason", versions},
          {"out structs are written within their room", out_structs},
          {"every device is described, one beyond is refused", description},
          {"null arguments are refused", nulls},
          {"devices, artifacts, programs and pools end in any order", lifecycle},
          {"KV pools have a sound layout, unsound ones are refused", kv_pools}};
}

}  // namespace infos::conformance
