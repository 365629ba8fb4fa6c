// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <functional>

#include "devices/host/conformance/checks.h"
#include "devices/host/conformance/tiny_model.h"

namespace infos::conformance {

namespace {

Result<TinyModel> llama(const Plugin& plugin, const std::string& options) {
  return TinyModel::load(plugin, options, tiny_config("llama", INFOS_F32), INFOS_F32);
}

Verdict round_trip(const Plugin& plugin, const std::string& options) {
  TinyModel m = INFOS_CHECK_OK(llama(plugin, options));
  const std::vector<Rows> rows = {{0, 0, {5, 6, 7, 8}}};
  const auto want = INFOS_CHECK_OK(m.run(rows));
  const auto bytes = INFOS_CHECK_OK(m.artifact.serialize());
  if (bytes.empty()) return fail("the artifact has no bytes");
  const infos_compat compat = INFOS_CHECK_OK(m.device.compat(bytes));
  if (compat != INFOS_COMPAT_OPTIMAL && compat != INFOS_COMPAT_USABLE)
    return fail(fmt::format("its own artifact has compatibility {}", static_cast<int>(compat)));
  m.artifact = INFOS_CHECK_OK(m.device.deserialize(bytes));
  if (INFOS_CHECK_OK(m.artifact.serialize()) != bytes)
    return fail("writing what was read gives other bytes");
  m.program = INFOS_CHECK_OK(m.device.load(m.artifact, &RandomWeights::source, m.weights.get()));
  if (INFOS_CHECK_OK(m.run(rows)) != want)
    return fail("the artifact that was read gives other logits");
  return pass();
}

Verdict damage(const Plugin& plugin, const std::string& options) {
  TinyModel m = INFOS_CHECK_OK(llama(plugin, options));
  const auto bytes = INFOS_CHECK_OK(m.artifact.serialize());
  const auto refused = [&](const std::vector<std::byte>& bad) {
    const auto compat = m.device.compat(bad);
    const bool fits = compat.ok() && *compat != INFOS_COMPAT_INCOMPATIBLE;
    return !fits && !m.device.deserialize(bad).ok();
  };
  for (std::size_t n = 0; n < bytes.size(); n += 1 + bytes.size() / 97)
    if (!refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)}))
      return fail(fmt::format("accepts its artifact cut to {} bytes", n));
  for (std::size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 397) {
    auto bad = bytes;
    bad[at] ^= static_cast<std::byte>(1U << (at % 8));
    if (!refused(bad))
      return fail(fmt::format("accepts its artifact with a bit changed at byte {}", at));
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  if (!refused(longer)) return fail("accepts its artifact with a byte more");
  if (!refused(std::vector<std::byte>(4096, std::byte{0x5a})))
    return fail("accepts bytes that are no artifact");
  return pass();
}

Verdict serialise_protocol(const Plugin& plugin, const std::string& options) {
  DeviceConfig config;
  config.options = options;
  const PhaseGraph graph = INFOS_CHECK_OK(build_phase_graph(tiny_config("llama", INFOS_F32)));
  const infos_plugin_api& api = plugin.api();
  Device device = INFOS_CHECK_OK(Device::open(plugin, config));
  infos_device_config c{};
  c.struct_size = sizeof c;
  infos_device* raw = nullptr;
  infos_job* job = nullptr;
  infos_artifact* artifact = nullptr;
  infos_error error{};
  const infos_graph view = graph.view();
  if (api.open(&c, &raw, &error) != INFOS_OK ||
      api.compile_begin(raw, &view, &kBucket, nullptr, &job, &error) != INFOS_OK)
    return fail(error.message);
  std::uint32_t state = INFOS_JOB_RUNNING;
  while (state == INFOS_JOB_RUNNING)
    if (api.compile_poll(job, &state, nullptr, &error) != INFOS_OK) return fail(error.message);
  if (api.compile_take(job, &artifact, &error) != INFOS_OK) return fail(error.message);
  std::uint64_t size = 0;
  if (api.artifact_serialize(artifact, nullptr, &size, &error) != INFOS_OK || size == 0)
    return fail("a null buffer does not give the size");
  std::vector<std::byte> small(size, std::byte{0x11});
  std::uint64_t room = size - 1;
  const infos_code code = api.artifact_serialize(artifact, small.data(), &room, &error);
  if (code != INFOS_EXHAUSTED || room != size)
    return fail("too little room does not give INFOS_EXHAUSTED and the size");
  if (small.back() != std::byte{0x11}) return fail("serialise wrote beyond the room it was given");
  api.artifact_destroy(artifact);
  api.close(raw);
  return pass();
}

Verdict hostile_graphs(const Plugin& plugin, const std::string& options) {
  DeviceConfig config;
  config.options = options;
  Device device = INFOS_CHECK_OK(Device::open(plugin, config));
  const PhaseGraph sound = INFOS_CHECK_OK(build_phase_graph(tiny_config("llama", INFOS_F32)));
  using Tensors = std::vector<infos_tensor>;
  using Ops = std::vector<infos_op>;
  const struct {
    const char* what;
    std::function<void(infos_graph&, Tensors&, Ops&)> spoil;
  } cases[] = {
      {"no ops", [](infos_graph& g, Tensors&, Ops&) { g.n_ops = 0; }},
      {"null ops", [](infos_graph& g, Tensors&, Ops&) { g.ops = nullptr; }},
      {"no tensors", [](infos_graph& g, Tensors&, Ops&) { g.n_tensors = 0; }},
      {"null tensors", [](infos_graph& g, Tensors&, Ops&) { g.tensors = nullptr; }},
      {"an unknown op", [](infos_graph&, Tensors&, Ops& o) { o[2].kind = 999; }},
      {"an input that is no tensor",
       [](infos_graph&, Tensors&, Ops& o) { o[2].inputs[0] = 1U << 30; }},
      {"an output that is no tensor",
       [](infos_graph&, Tensors&, Ops& o) { o[2].output = 1U << 30; }},
      {"too many inputs", [](infos_graph&, Tensors&, Ops& o) { o[2].n_inputs = 4000; }},
      {"a layer that ends before it begins",
       [](infos_graph& g, Tensors&, Ops&) { std::swap(g.layer_begin, g.layer_end); }},
      {"a layer beyond the ops", [](infos_graph& g, Tensors&, Ops&) { g.layer_end = g.n_ops + 5; }},
      {"a dim of 0", [](infos_graph&, Tensors& t, Ops&) { t[0].dims[1] = 0; }},
      {"a dim below 0", [](infos_graph&, Tensors& t, Ops&) { t[0].dims[1] = -77; }},
      {"a rank of 9", [](infos_graph&, Tensors& t, Ops&) { t[0].rank = 9; }},
      {"matrices that do not fit",
       [](infos_graph&, Tensors& t, Ops& o) { t[o[2].inputs[1]].dims[1] += 32; }},
      {"heads that do not fit",
       [](infos_graph&, Tensors&, Ops& o) {
         for (infos_op& op : o)
           if (op.kind == INFOS_OP_ATTENTION) op.heads += 1;
       }},
  };
  for (const auto& c : cases) {
    Tensors tensors = sound.tensors();
    Ops ops = sound.ops();
    infos_graph graph = sound.view();
    graph.tensors = tensors.data();
    graph.ops = ops.data();
    c.spoil(graph, tensors, ops);
    if (device.compile(graph, kBucket).ok())
      return fail(fmt::format("compiles a graph with {}", c.what));
  }
  infos_bucket nothing{};
  nothing.struct_size = sizeof nothing;
  if (device.compile(sound.view(), nothing).ok()) return fail("compiles for a bucket of nothing");
  INFOS_CHECK_OK(device.compile(sound.view(), kBucket));
  return pass();
}

infos_code no_weights(void*, std::uint32_t, std::uint32_t, infos_weight*) { return INFOS_FAILED; }

Verdict hostile_weights(const Plugin& plugin, const std::string& options) {
  TinyModel m = INFOS_CHECK_OK(llama(plugin, options));
  std::uint32_t matrix = 0;
  for (std::uint32_t t = 0; t < m.graph.tensors().size(); ++t)
    if (m.graph.tensors()[t].rank == 2 && m.graph.tensors()[t].per_layer != 0) matrix = t;
  const infos_weight good = m.weights->weight(matrix, 1);
  const struct {
    const char* what;
    std::function<void(infos_weight&)> spoil;
  } cases[] = {
      {"too few bytes", [](infos_weight& w) { w.bytes -= 4; }},
      {"too many bytes", [](infos_weight& w) { w.bytes += 4; }},
      {"no bytes", [](infos_weight& w) { w.bytes = 0; }},
      {"a null pointer", [](infos_weight& w) { w.data = nullptr; }},
      {"an unknown dtype", [](infos_weight& w) { w.dtype = 60; }},
      {"no dtype", [](infos_weight& w) { w.dtype = 0; }},
  };
  for (const auto& c : cases) {
    infos_weight& weight = m.weights->weight(matrix, 1);
    weight = good;
    c.spoil(weight);
    if (m.device.load(m.artifact, &RandomWeights::source, m.weights.get()).ok())
      return fail(fmt::format("loads a weight with {}", c.what));
    weight = good;
  }
  if (m.device.load(m.artifact, &no_weights, nullptr).ok())
    return fail("loads although the source of weights fails");
  INFOS_CHECK_OK(m.device.load(m.artifact, &RandomWeights::source, m.weights.get()));
  return pass();
}

}  // namespace

std::vector<Check> artifact_checks() {
  return {{"hostile graphs are refused", hostile_graphs},
          {"hostile weights are refused", hostile_weights},
          {"an artifact that was written and read gives the same logits", round_trip},
          {"serialise says the size and keeps to its room", serialise_protocol},
          {"damaged and foreign artifacts are refused", damage}};
}

}  // namespace infos::conformance
