// SPDX-License-Identifier: Apache-2.0
// Every key of the spec, declared once: the one place to touch to add a key. Its reader, its line
// in docs/spec-reference.md and its allowed values all follow from here.
#include "topology/spec/fields.h"

namespace infos {

// ---- Cluster ----

static void describe(Fields& f, DeviceSpec& d) {
  d.place = f.place();
  f.text("name", d.name, TextRule::name, required("unique within its node"));
  f.word("backend", d.backend, {"cpu", "cuda", "rocm", "plugin"},
         "what drives the device; others than cpu are refused today");
  f.text("library", d.library, TextRule::path,
         not_yet("shared object of the backend; backend `plugin` only"));
  f.text("profile", d.profile, TextRule::name,
         not_yet("name in the catalogue of device kinds; else measured at start"));
  f.cores("cores", d.cores, "logical cores that compute; backend `cpu` only");
  f.bytes("memory", d.memory, not_yet("bound on weights, KV and scratch together"));
  f.count("index", d.index, 0, 1023, not_yet("which of the devices of this backend in the node"));
}

static void describe(Fields& f, NodeSpec& n) {
  n.place = f.place();
  f.text("name", n.name, TextRule::name, required("unique in the cluster"));
  f.text("address", n.address, TextRule::address,
         "where the node's daemon listens for its peers");
  f.objects("devices", n.devices, "what computes there; none: the node's cores are one device");
}

static void describe(Fields& f, LinkSpec& l) {
  l.place = f.place();
  f.references("between", l.between, TextRule::place,
               required("the two ends: a node, or a device as `node/device`"));
  f.choice("kind", l.kind,
           {LinkKind::rdma, LinkKind::tcp, LinkKind::shm, LinkKind::pcie, LinkKind::nvlink},
           not_yet("how bytes move on it"));
  f.bandwidth("bandwidth", l.bandwidth, not_yet("each way; else measured"));
  f.duration("latency", l.latency, not_yet("one way, smallest message; else measured"));
}

static void describe(Fields& f, StateSpec& s) {
  s.place = f.place();
  f.text("sqlite", s.sqlite, TextRule::path,
         not_yet("database file of the single controller; not with `etcd`"));
  f.texts("etcd", s.etcd, TextRule::url,
          not_yet("endpoints of etcd, for several controllers; not with `sqlite`"));
}

static void describe(Fields& f, ClusterSpec& c) {
  f.objects("nodes", c.nodes, required("the machines"));
  f.objects("links", c.links, not_yet("connections whose kind or speed should not be guessed"));
  f.object("state", c.state, not_yet("where the controller keeps what it must not forget"));
}

// ---- Model ----

static void describe(Fields& f, SloSpec& s) {
  f.duration("ttft", s.ttft, not_yet("time to the first token"));
  f.duration("tpot", s.tpot, not_yet("time per further token"));
  f.real("percentile", s.percentile, 50, 99.99,
         not_yet("part of the requests, in percent, that must meet both"));
}

static void describe(Fields& f, PoolEngineSpec& e) {
  f.count("threads", e.threads, 0, 4096, "threads that compute; 0: all cores it may use");
  f.cores("cores", e.cores, "pin the threads to these logical cores");
  f.bytes("kv_memory", e.kv_memory, "memory of the KV pool");
  f.word("kv_dtype", e.kv_dtype, {"auto", "f32", "f16", "bf16"}, "type of keys and values");
  f.count("block_tokens", e.block_tokens, 1, 1024, "tokens of one KV block");
  f.count("max_step_tokens", e.max_step_tokens, 1, 1u << 20, "tokens of one step");
  f.count("max_running", e.max_running, 1, 1u << 16, "sequences that run at once");
  f.text("device_options", e.device_options, TextRule::any, "for the backend");
}

static void describe(Fields& f, PoolSpec& p) {
  p.place = f.place();
  f.choice("phase", p.phase,
           {Phase::aggregated, Phase::prefill, Phase::decode, Phase::attention, Phase::ffn},
           required("what its workers do; attention and ffn are refused today"));
  f.references("devices", p.devices, TextRule::place,
               "where it may run, as `node/device`; none: anywhere");
  f.count("replicas", p.replicas, 0, 4096, "how many worker groups, on each device");
  f.count("tensor_parallel", p.tensor_parallel, 1, 1024,
          "parts that one worker of it is split into");
  f.object("engine", p.engine, "what differs from the model's `engine` in this pool");
}

static void describe(Fields& f, ReplicaSpec& r) {
  r.place = f.place();
  f.count(
      "min", r.min, 0, 4096,
      "as few; 0: the model may sleep, and the first request wakes it (today it is served by one)");
  f.count("max", r.max, 1, 4096, not_yet("as many"));
}

static void describe(Fields& f, EngineSpec& e) {
  f.word("backend", e.backend, {"cpu"}, "what drives the device");
  f.count("threads", e.threads, 0, 4096, "threads that compute; 0: all cores it may use");
  f.cores("cores", e.cores, "pin the threads to these logical cores; none: do not pin");
  f.bytes("kv_memory", e.kv_memory,
          "memory of the KV pool; else a quarter of what is free, at most what can be used");
  f.word("kv_dtype", e.kv_dtype, {"auto", "f32", "f16", "bf16"},
         "type of keys and values; auto: f32 for f32 weights, else f16");
  f.count("block_tokens", e.block_tokens, 1, 1024, "tokens of one KV block");
  f.count("max_step_tokens", e.max_step_tokens, 1, 1u << 20,
          "tokens of one step, prompt and answer together");
  f.count("max_running", e.max_running, 1, 1u << 16, "sequences that run at once");
  f.count("max_context", e.max_context, 0, 1u << 24,
          "tokens of one sequence; 0: what the model allows");
  f.text("device_options", e.device_options, TextRule::any,
         "for the backend: `key=value,key=value`, as in `isa=avx2`");
}

static void describe(Fields& f, ModelSpec& m) {
  f.text(
      "source", m.source, TextRule::path,
      required("Hugging Face directory (config.json, safetensors, tokenizer.json) or GGUF file"));
  f.object("slo", m.slo, not_yet("what users should see"));
  f.choice("topology", m.topology,
           {TopologyKind::automatic, TopologyKind::aggregated, TopologyKind::prefill_decode,
            TopologyKind::attention_ffn},
           "how its phases are laid out; attention-ffn is refused today");
  f.objects("pools", m.pools, "an explicit layout, in place of `topology`");
  f.object("replicas", m.replicas, "how many worker groups");
  f.choice("numerics", m.numerics, {Numerics::exact, Numerics::bounded, Numerics::permissive},
           not_yet("which rewrites a compiled form may use; everything is exact today"));
  f.object("engine", m.engine, "options of each worker's engine");
}

// ---- Workload ----

static void describe(Fields& f, ArrivalSpec& a) {
  a.place = f.place();
  f.choice("process", a.process,
           {ArrivalProcess::poisson, ArrivalProcess::constant, ArrivalProcess::gamma,
            ArrivalProcess::closed},
           not_yet("how requests arrive; closed: a new one when one ends"));
  f.real("rate", a.rate, 0.000001, 1e9, not_yet("requests per second; not with closed"));
  f.real("cv", a.cv, 0.01, 100, not_yet("coefficient of variation of the gaps; gamma only"));
  f.count("concurrency", a.concurrency, 1, 1u << 20, not_yet("requests in flight; closed only"));
}

static void describe(Fields& f, TraceSpec& t) {
  f.text("file", t.file, TextRule::path,
         required(not_yet("rows of arrival second, prompt tokens, output tokens")));
  f.choice("format", t.format, {TraceFormat::csv, TraceFormat::jsonl},
           not_yet("how the rows are written"));
  f.real("speed", t.speed, 0.001, 1000, not_yet("2: twice as fast as recorded"));
}

static void describe(Fields& f, LengthSpec& l) {
  l.place = f.place();
  f.choice("shape", l.shape,
           {LengthShape::fixed, LengthShape::uniform, LengthShape::normal, LengthShape::lognormal},
           not_yet("fixed: always the mean; uniform: from min to max"));
  f.real("mean", l.mean, 0, 1u << 24, not_yet("tokens"));
  f.real("deviation", l.deviation, 0, 1u << 24,
         not_yet("standard deviation in tokens; normal and lognormal"));
  f.count("min", l.min, 0, 1u << 24, not_yet("tokens at least"));
  f.count("max", l.max, 1, 1u << 24, not_yet("tokens at most"));
}

static void describe(Fields& f, PrefixSpec& p) {
  f.real("share", p.share, 0, 1, not_yet("part of the requests that begin with a shared prefix"));
  f.count("tokens", p.tokens, 0, 1u << 24, not_yet("length of the prefix"));
  f.count("groups", p.groups, 1, 1u << 20, not_yet("how many different prefixes"));
}

static void describe(Fields& f, WorkloadSpec& w) {
  f.reference("model", w.model, TextRule::model_name, required(not_yet("name of a Model")));
  f.count("seed", w.seed, 0, UINT64_MAX, not_yet("of every random draw"));
  f.object("arrivals", w.arrivals, not_yet("generated arrivals; not with `trace`"));
  f.object("trace", w.trace, not_yet("recorded arrivals; not with `arrivals`, `prompt`, `output`"));
  f.object("prompt", w.prompt, not_yet("prompt lengths"));
  f.object("output", w.output, not_yet("answer lengths"));
  f.object("prefix", w.prefix, not_yet("prompts that begin alike"));
  f.count("requests", w.requests, 1, 1ULL << 40, not_yet("ends after so many"));
  f.duration("duration", w.duration, not_yet("ends after so long"));
}

// ---- Policy, Tenant ----

static void describe(Fields& f, AdmissionSpec& a) {
  f.count("max_queue", a.max_queue, 0, 1u << 20,
          not_yet("requests of one model that wait; more are answered 429"));
  f.duration("max_wait", a.max_wait, not_yet("in the queue; longer is answered 503"));
  f.count("max_prompt_tokens", a.max_prompt_tokens, 0, 1u << 24,
          not_yet("0: what the model allows"));
  f.count("max_output_tokens", a.max_output_tokens, 0, 1u << 24,
          not_yet("0: what the model allows"));
  f.flag("deadline_aware", a.deadline_aware,
         not_yet("refuse at once what cannot meet its SLO any more"));
}

static void describe(Fields& f, SwapSpec& s) {
  f.flag("automatic", s.automatic, not_yet("change topologies without being asked"));
  f.real("min_gain", s.min_gain, 0, 100,
         not_yet("predicted gain that a swap must bring, 0.1: a tenth"));
  f.duration("dwell", s.dwell, not_yet("time between two swaps"));
  f.duration("rollback_window", s.rollback_window,
             not_yet("how long the old topology is kept ready"));
}

static void describe(Fields& f, AutoscaleSpec& a) {
  f.duration("idle_before_zero", a.idle_before_zero,
             not_yet("without requests before a model with `min: 0` sleeps"));
  f.real("target_utilisation", a.target_utilisation, 0.05, 1, not_yet("of the busiest replica"));
}

static void describe(Fields& f, PolicySpec& p) {
  f.object("admission", p.admission, not_yet("what is let in"));
  f.object("swap", p.swap, not_yet("when a topology may change"));
  f.object("autoscale", p.autoscale, not_yet("when replicas come and go"));
}

static void describe(Fields& f, TenantLimits& l) {
  f.count("requests_per_minute", l.requests_per_minute, 1, 1u << 30,
          not_yet("more are answered 429"));
  f.count("tokens_per_minute", l.tokens_per_minute, 1, UINT32_MAX,
          not_yet("prompt and answer together"));
  f.count("max_running", l.max_running, 1, 1u << 20, not_yet("requests in flight"));
}

static void describe(Fields& f, TenantSpec& t) {
  f.text("keys_file", t.keys_file, TextRule::path,
         required(not_yet("file with one API key a line; keys never stand in a spec")));
  f.references("models", t.models, TextRule::model_name,
               not_yet("names of the Models it may use; none: all"));
  f.object("limits", t.limits, not_yet("how much it may use"));
  f.count("priority", t.priority, 0, 100, not_yet("higher goes first"));
}

// ---- the kinds ----

namespace {
template <typename T>
std::function<void(Fields&, SpecSet&, const SpecRef&)> adds(std::vector<T> SpecSet::*where) {
  return [where](Fields& f, SpecSet& set, const SpecRef& name) {
    T& element = (set.*where).emplace_back();
    element.name = name.name;
    element.place = name.place.line != 0 ? name.place : f.place();
    describe(f, element);
  };
}
}  // namespace

const std::vector<SpecKind>& spec_kinds() {
  static const std::vector<SpecKind> kinds = {
      {"Cluster", "The machines, what computes in them and how they are connected. At most one.",
       TextRule::name, adds(&SpecSet::clusters)},
      {"Model", "A model to serve. Its name is what clients send as `model`.", TextRule::model_name,
       adds(&SpecSet::models)},
      {"Workload", "Requests as they come, generated or recorded, for capacity planning.",
       TextRule::name, adds(&SpecSet::workloads)},
      {"Policy", "What is let in, and when the running topology may change. At most one.",
       TextRule::name, adds(&SpecSet::policies)},
      {"Tenant", "Who may ask, and how much.", TextRule::name, adds(&SpecSet::tenants)},
  };
  return kinds;
}

}  // namespace infos
