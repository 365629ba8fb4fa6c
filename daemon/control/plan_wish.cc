// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/plan_wish.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "topology/model/kv_layout.h"

namespace infos {
namespace {

using Options = std::map<std::string, std::string>;

Options options_of(const EngineSpec& engine) {
  Options options{{"block_tokens", std::to_string(engine.block_tokens)},
                  {"max_running", std::to_string(engine.max_running)},
                  {"max_step_tokens", std::to_string(engine.max_step_tokens)}};
  if (engine.threads != 0) options["threads"] = std::to_string(engine.threads);
  if (!engine.cores.empty()) options["cores"] = to_string(engine.cores);
  if (engine.kv_memory) options["kv_memory"] = to_string(*engine.kv_memory);
  if (engine.kv_dtype != "auto") options["kv_dtype"] = engine.kv_dtype;
  if (engine.max_context != 0) options["max_context"] = std::to_string(engine.max_context);
  if (!engine.device_options.empty()) options["device_options"] = engine.device_options;
  return options;
}

void override_with(Options& options, const PoolEngineSpec& engine) {
  const auto count = [&](const char* key, const std::optional<std::uint32_t>& value) {
    if (value) options[key] = std::to_string(*value);
  };
  count("threads", engine.threads);
  count("block_tokens", engine.block_tokens);
  count("max_step_tokens", engine.max_step_tokens);
  count("max_running", engine.max_running);
  if (!engine.cores.empty()) options["cores"] = to_string(engine.cores);
  if (engine.kv_memory) options["kv_memory"] = to_string(*engine.kv_memory);
  if (engine.kv_dtype == "auto")
    options.erase("kv_dtype");
  else if (!engine.kv_dtype.empty())
    options["kv_dtype"] = engine.kv_dtype;
  if (!engine.device_options.empty()) options["device_options"] = engine.device_options;
}

/// The layout that a pool's workers will have, as far as its options say; the model's own numbers
/// are the same for all of its pools. None: the engine chooses the type of KV by the weights.
std::optional<KvLayout> layout_of(const PoolWish& pool) {
  const auto dtype = pool.options.find("kv_dtype");
  if (dtype == pool.options.end()) return std::nullopt;
  KvShape shape;
  shape.head_dim = 64;
  shape.dtype = dtype->second == "f32"    ? KvDType::f32
                : dtype->second == "bf16" ? KvDType::bf16
                                          : KvDType::f16;
  const auto number = [&](const char* key, std::uint32_t fallback) {
    const auto at = pool.options.find(key);
    if (at != pool.options.end())
      std::from_chars(at->second.data(), at->second.data() + at->second.size(), fallback);
    return fallback;
  };
  shape.block_tokens = number("block_tokens", 16);
  shape.ranks = number("tensor_parallel", 1);
  return make_kv_layout(shape);
}

KvPolicy policy_of(Numerics numerics) {
  switch (numerics) {
    case Numerics::exact:
      return KvPolicy::exact;
    case Numerics::bounded:
      return KvPolicy::bounded;
    case Numerics::permissive:
      return KvPolicy::permissive;
  }
  return KvPolicy::exact;
}

/// Reads one spec; `errors` collects what cannot be done.
class Wisher {
 public:
  Wisher(const SpecSet& spec, const std::vector<std::string>& files) : spec_(spec), files_(files) {}

  ModelWish model(const ModelSpec& model) {
    ModelWish wish{model.name, model.source, model.engine.max_context, {}};
    if (!model.pools.empty()) {
      for (const PoolSpec& pool : model.pools) wish.pools.push_back(explicit_pool(model, pool));
      check_layouts(model, wish);
    } else if (model.topology == TopologyKind::prefill_decode) {
      split(model, wish);
    } else if (model.topology == TopologyKind::attention_ffn) {
      refuse(model.place,
             fmt::format("topology {} of model {}: this version serves auto, aggregated and "
                         "prefill-decode",
                         to_string(model.topology), model.name));
    } else {
      wish.pools.push_back(plain_pool(model, std::max(1u, model.replicas.min)));
    }
    return wish;
  }

  std::string errors;

 private:
  void refuse(const SpecPlace& place, const std::string& what) {
    const std::string file = place.file < files_.size() ? files_[place.file] : "spec";
    if (!errors.empty()) errors += '\n';
    errors += fmt::format("{}:{}:{}: {}", file, place.line, place.column, what);
  }

  /// Decode workers take the KV of prefill workers: every pair of pools must allow it, or it would
  /// be found out request by request.
  void check_layouts(const ModelSpec& model, const ModelWish& wish) {
    for (std::size_t from = 0; from < wish.pools.size(); ++from)
      for (std::size_t to = 0; to < wish.pools.size(); ++to) {
        if (wish.pools[from].role != WorkerRole::prefill ||
            wish.pools[to].role != WorkerRole::decode)
          continue;
        const auto source = layout_of(wish.pools[from]), target = layout_of(wish.pools[to]);
        if (!source || !target) continue;
        const auto allowed = can_reshard(*source, *target, policy_of(model.numerics));
        if (!allowed.ok())
          refuse(model.pools[to].place,
                 fmt::format("decode pool {} of model {} cannot take the KV of prefill pool {}: {}",
                             to, model.name, from, allowed.error().message));
      }
  }

  void check_backend(const SpecPlace& place, const std::string& backend) {
    if (backend != "cpu") refuse(place, fmt::format("backend {}: this version has cpu", backend));
  }

  PoolWish plain_pool(const ModelSpec& model, std::uint32_t replicas) {
    check_backend(model.place, model.engine.backend);
    PoolWish wish;
    wish.replicas = replicas;
    wish.backend = model.engine.backend;
    wish.options = options_of(model.engine);
    return wish;
  }

  /// What workers that move KV must know.
  static void give_role(const ModelSpec& model, PoolWish& wish, const char* role) {
    wish.options["role"] = role;
    wish.options["numerics"] = to_string(model.numerics);
  }

  static DeviceWish device_wish(const NodeSpec& node, const DeviceSpec& device) {
    DeviceWish wish{node.name, device.name, device.backend, {}};
    if (!device.cores.empty()) wish.options["cores"] = to_string(device.cores);
    return wish;
  }

  PoolWish explicit_pool(const ModelSpec& model, const PoolSpec& pool) {
    PoolWish wish = plain_pool(model, pool.replicas);
    override_with(wish.options, pool.engine);
    switch (pool.phase) {
      case Phase::aggregated:
        break;
      case Phase::prefill:
        wish.role = WorkerRole::prefill;
        break;
      case Phase::decode:
        wish.role = WorkerRole::decode;
        break;
      case Phase::attention:
      case Phase::ffn:
        refuse(pool.place,
               fmt::format("phase {}: this version serves aggregated, prefill and decode pools",
                           to_string(pool.phase)));
    }
    if (wish.role != WorkerRole::aggregated) give_role(model, wish, to_string(pool.phase));
    if (pool.tensor_parallel != 1)
      wish.options["tensor_parallel"] = std::to_string(pool.tensor_parallel);
    for (const SpecRef& ref : pool.devices) add_device(wish, ref);
    if (!pool.engine.cores.empty())  // said of this pool: outranks what is said of the device
      for (DeviceWish& device : wish.devices) device.options.erase("cores");
    return wish;
  }

  void add_device(PoolWish& wish, const SpecRef& ref) {
    for (const ClusterSpec& cluster : spec_.clusters)
      for (const NodeSpec& node : cluster.nodes)
        for (const DeviceSpec& device : node.devices)
          if (ref.name == node.name + "/" + device.name) {
            check_backend(device.place, device.backend);
            wish.devices.push_back(device_wish(node, device));
            return;
          }
    refuse(ref.place, fmt::format("device '{}': no Cluster in the spec has it", ref.name));
  }

  /// Until the planner decides: the first half of the devices computes prompts, the rest answers; a
  /// single device does both, with a worker for each.
  void split(const ModelSpec& model, ModelWish& wish) {
    PoolWish prefill = plain_pool(model, 1);
    prefill.role = WorkerRole::prefill;
    PoolWish decode = prefill;
    decode.role = WorkerRole::decode;
    give_role(model, prefill, "prefill");
    give_role(model, decode, "decode");
    std::vector<DeviceWish> all;
    for (const ClusterSpec& cluster : spec_.clusters)
      for (const NodeSpec& node : cluster.nodes)
        for (const DeviceSpec& device : node.devices) all.push_back(device_wish(node, device));
    const std::size_t half = (all.size() + 1) / 2;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i < half) prefill.devices.push_back(all[i]);
      if (i >= half || all.size() == 1) decode.devices.push_back(all[i]);
    }
    wish.pools = {std::move(prefill), std::move(decode)};
  }

  const SpecSet& spec_;
  const std::vector<std::string>& files_;
};

}  // namespace

Result<PlanWish> plan_wish(const SpecSet& spec, const std::vector<std::string>& file_names) {
  Wisher wisher(spec, file_names);
  PlanWish wish;
  for (const ModelSpec& model : spec.models) wish.models.push_back(wisher.model(model));
  if (!wisher.errors.empty()) return Error{ErrorCode::unsupported, wisher.errors};
  return wish;
}

}  // namespace infos
