// SPDX-License-Identifier: Apache-2.0
// What the host may ask about KV: that a pool lies in memory of its own, and to hear when a layer's
// KV is written. Each with structs of this ABI and with shorter ones of before.
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "devices/host/conformance/checks.h"
#include "devices/host/conformance/tiny_model.h"

namespace infos::conformance {

namespace {

/// Host memory for pools, with a count of what is given and taken back.
struct HostMemory {
  void* given = nullptr;
  std::uint64_t bytes = 0;
  int given_times = 0;
  int taken_back = 0;  ///< with the pointer and the bytes that were given
  bool has_none = false;

  static void* allocate(void* context, std::uint64_t bytes) {
    auto& self = *static_cast<HostMemory*>(context);
    ++self.given_times;
    if (self.has_none) return nullptr;
    self.bytes = bytes;
    self.given = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(self.given, 0, bytes);
    return self.given;
  }
  static void release(void* context, void* memory, std::uint64_t bytes) {
    auto& self = *static_cast<HostMemory*>(context);
    if (memory == self.given && bytes == self.bytes) ++self.taken_back;
    std::free(memory);
  }
  infos_kv_config config(const ModelConfig& model) {
    infos_kv_config c = kv_config(model);
    c.allocate = allocate;
    c.release = release;
    c.allocate_context = this;
    return c;
  }
};

Verdict host_memory(const Plugin& plugin, const std::string& options) {
  const ModelConfig model = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, model, INFOS_F32));
  const std::vector<Rows> rows = {{0, 0, random_tokens(7, model.vocab, 3)}};
  const auto want = INFOS_CHECK_OK(m.run(rows));
  HostMemory memory;
  infos_kv_config config = memory.config(model);
  config.struct_size = offsetof(infos_kv_config, allocate);
  m.kv = INFOS_CHECK_OK(m.device.create_kv(config));
  if (memory.given_times != 0) return fail("reads `allocate` beyond the config's struct_size");
  if (INFOS_CHECK_OK(m.run(rows)) != want)
    return fail("a config without `allocate` changes logits");
  config.struct_size = sizeof config;
  m.kv = INFOS_CHECK_OK(m.device.create_kv(config));
  const infos_kv_layout layout = INFOS_CHECK_OK(m.kv.layout());
  if (memory.given_times == 0 && m.device.info().device_class != INFOS_CLASS_CPU)
    return skip("the device has memory of its own");
  if (memory.given_times != 1 || layout.base != memory.given || memory.bytes < layout.bytes)
    return fail(
        fmt::format("asked {} times for memory, last for {} bytes; the pool's {} bytes lie {}",
                    memory.given_times, memory.bytes, layout.bytes,
                    layout.base == memory.given ? "there" : "elsewhere"));
  if (INFOS_CHECK_OK(m.run(rows)) != want) return fail("logits differ in the host's memory");
  m.kv = KvPool();
  if (memory.taken_back != 1)
    return fail(
        fmt::format("gave its memory back {} times as it was given: want once", memory.taken_back));
  memory.has_none = true;
  const auto refused = m.device.create_kv(config);
  if (refused.ok() || refused.error().code != ErrorCode::resource_exhausted)
    return fail("a host without memory is not INFOS_EXHAUSTED");
  config.release = nullptr;
  memory.has_none = false;
  if (m.device.create_kv(config).ok()) return fail("takes `allocate` without `release`");
  return pass();
}

/// Every byte that one layer has in a pool, where the host can read it.
std::vector<std::byte> layer_bytes(const infos_kv_layout& l, std::uint32_t layer,
                                   const infos_kv_config& c) {
  std::vector<std::byte> bytes;
  const auto* base = static_cast<const std::byte*>(l.base);
  for (std::uint64_t block = 0; block < c.n_blocks; ++block)
    for (std::uint64_t head = 0; head < c.kv_heads; ++head)
      for (std::uint64_t token = 0; token < c.block_tokens; ++token)
        for (const std::uint64_t kv : {std::uint64_t{0}, l.v_offset}) {
          const auto* at = base + block * l.s_block + layer * l.s_layer + head * l.s_head +
                           token * l.s_token + kv;
          bytes.insert(bytes.end(), at, at + c.head_dim * sizeof(float));
        }
  return bytes;
}

/// What was heard of layers, and what the pool held then.
struct Heard {
  infos_kv_layout layout{};
  infos_kv_config config{};
  std::vector<std::uint32_t> layers;
  std::vector<std::vector<std::byte>> pool;

  static void layer_done(void* context, std::uint32_t layer) {
    auto& self = *static_cast<Heard*>(context);
    self.layers.push_back(layer);
    if (self.layout.base != nullptr && layer < self.config.layers)
      self.pool.push_back(layer_bytes(self.layout, layer, self.config));
  }
};

Verdict layers_done(const Plugin& plugin, const std::string& options) {
  const ModelConfig model = tiny_config("llama", INFOS_F32);
  TinyModel m = INFOS_CHECK_OK(TinyModel::load(plugin, options, model, INFOS_F32));
  Heard heard;
  heard.layout = INFOS_CHECK_OK(m.kv.layout());
  heard.config = kv_config(model);
  Batch batch = make_batch(
      {{0, 0, random_tokens(31, model.vocab, 3)}, {1, 0, random_tokens(9, model.vocab, 4)}},
      model.vocab);
  infos_batch view = batch.view();
  view.layer_done = &Heard::layer_done;
  view.layer_context = &heard;
  view.struct_size = offsetof(infos_batch, layer_done);
  if (const Status s = m.program.execute(m.kv, view); !s.ok()) return fail(s.error().message);
  if (!heard.layers.empty()) return fail("reads `layer_done` beyond the batch's struct_size");
  m.kv = INFOS_CHECK_OK(m.device.create_kv(kv_config(model)));  // a fresh pool
  heard.layout = INFOS_CHECK_OK(m.kv.layout());
  view.struct_size = sizeof view;
  const auto before = heard.layout.base != nullptr ? layer_bytes(heard.layout, 0, heard.config)
                                                   : std::vector<std::byte>();
  if (const Status s = m.program.execute(m.kv, view); !s.ok()) return fail(s.error().message);
  if (heard.layers.empty()) return skip("layers count as written when execute returns");
  if (heard.layers.size() != model.layers)
    return fail(fmt::format("called for {} layers of {}", heard.layers.size(), model.layers));
  for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
    if (heard.layers[layer] != layer)
      return fail(fmt::format("call {} names layer {}", layer, heard.layers[layer]));
    if (heard.layout.base == nullptr) continue;
    if (heard.pool[layer] == before)
      return fail(fmt::format("layer {} held nothing when it was called done", layer));
    if (heard.pool[layer] != layer_bytes(heard.layout, layer, heard.config))
      return fail(fmt::format("layer {} was written after it was called done", layer));
  }
  return pass();
}

}  // namespace

std::vector<Check> kv_checks() {
  return {{"a KV pool lies in the host's memory and gives it back", host_memory},
          {"a layer is called done once, in order, when its KV is written", layers_done}};
}

}  // namespace infos::conformance
