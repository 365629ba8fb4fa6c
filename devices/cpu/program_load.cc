// SPDX-License-Identifier: Apache-2.0
// Program, load time: steps with their weights, fusion, the arena.
#include <fmt/format.h>

#include <algorithm>

#include "devices/cpu/program.h"

namespace infos::cpu {

Result<std::unique_ptr<Program>> Program::load(Device& device, const Plan& plan,
                                               infos_weight_source source, void* context) {
  std::unique_ptr<Program> program(new Program(device, plan, source, context));
  INFOS_TRY(program->build());
  return program;
}

Program::~Program() {
  for (const Memory& m : memory_) device_.release(m.bytes());
}

Status Program::build() {
  const auto ops = static_cast<std::uint32_t>(plan_.ops.size());
  for (std::uint32_t i = 0; i < plan_.layer_begin; ++i) INFOS_TRY(add_step(i, 0));
  for (std::uint32_t layer = 0; layer < plan_.layers; ++layer) {
    for (std::uint32_t i = plan_.layer_begin; i < plan_.layer_end; ++i)
      INFOS_TRY(add_step(i, layer));
  }
  for (std::uint32_t i = plan_.layer_end; i < ops; ++i) INFOS_TRY(add_step(i, 0));
  INFOS_TRY(prepare_sums());
  return allocate_arena();
}

bool Program::writes(const Step& step, std::uint32_t tensor) const {
  for (const Part& part : step.parts)
    if (step.op->kind == INFOS_OP_LINEAR && part.out == tensor) return true;
  return step.op->kind != INFOS_OP_LINEAR && step.op->output == tensor;
}

/// Other ranks read an ALL_REDUCE's input until they meet the next time: where it is written before
/// that, the ranks have to meet once more. Consecutive sums of a transformer alternate buffers.
Status Program::prepare_sums() {
  std::uint32_t sums = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    if (step.op->kind != INFOS_OP_ALL_REDUCE) continue;
    step.sum = sums++;
    for (std::size_t j = i + 1; j < steps_.size(); ++j) {
      if (steps_[j].op->kind == INFOS_OP_ALL_REDUCE) break;
      step.meets_again |= writes(steps_[j], step.op->inputs[0]);
    }
  }
  if (sums != 0 && !device_.group()) {
    return Error{ErrorCode::invalid_argument,
                 "the program has ALL_REDUCE, the device is no rank of a group"};
  }
  partial_sums_.resize(sums);
  if (device_.group()) met_.resize(device_.group()->ranks);
  return {};
}

/// True when any op but `reader` reads the tensor.
bool Program::reads_elsewhere(std::uint32_t tensor, std::uint32_t reader) const {
  for (std::uint32_t i = 0; i < plan_.ops.size(); ++i) {
    if (i == reader) continue;
    const infos_op& op = plan_.ops[i];
    for (std::uint32_t j = 0; j < op.n_inputs; ++j) {
      if (op.inputs[j] == tensor) return true;
    }
  }
  return false;
}

/// Joins a LINEAR to the step before when both read the same rows and weights of one format.
bool Program::try_fuse_linear(std::uint32_t index, std::uint32_t layer, Part& part) {
  if (steps_.empty() || index == 0) return false;
  Step& last = steps_.back();
  const infos_op& op = plan_.ops[index];
  if (last.op->kind != INFOS_OP_LINEAR || last.layer != layer || last.op->inputs[0] != op.inputs[0])
    return false;
  if (last.parts.back().residual != UINT32_MAX) return false;
  const WeightKind kind = last.parts.front().w.kind;
  if (is_integer(kind) || is_integer(part.w.kind) ? kind != part.w.kind : false) return false;
  for (const Part& other : last.parts) {
    if (other.out == op.inputs[0] || other.out == part.out) return false;
  }
  last.parts.push_back(part);
  return true;
}

/// Lets the LINEAR before add the residual itself: the same addition, one pass less.
bool Program::try_fuse_add(std::uint32_t index, std::uint32_t layer) {
  if (steps_.empty()) return false;
  Step& last = steps_.back();
  const infos_op& op = plan_.ops[index];
  if (last.op->kind != INFOS_OP_LINEAR || last.layer != layer || last.parts.size() != 1)
    return false;
  Part& part = last.parts.front();
  if (part.residual != UINT32_MAX || op.inputs[0] == op.inputs[1] ||
      op.output == last.op->inputs[0])
    return false;
  const int mine = op.inputs[0] == part.out ? 0 : op.inputs[1] == part.out ? 1 : -1;
  if (mine < 0 || reads_elsewhere(part.out, index)) return false;
  part.residual = op.inputs[1 - mine];
  part.out = op.output;
  return true;
}

Status Program::add_step(std::uint32_t index, std::uint32_t layer) {
  const infos_op& op = plan_.ops[index];
  Step step;
  step.op = &op;
  step.layer = layer;
  switch (op.kind) {
    case INFOS_OP_EMBED:
      step.table = INFOS_TRY(weights_.table(op.inputs[0]));
      break;
    case INFOS_OP_RMS_NORM:
    case INFOS_OP_ROPE:
      step.vector = INFOS_TRY(weights_.vector(op.inputs[1], layer));
      break;
    case INFOS_OP_LINEAR: {
      Part part;
      part.w = INFOS_TRY(weights_.matrix(op.inputs[1], layer));
      part.out = op.output;
      if (op.n_inputs == 3) part.bias = INFOS_TRY(weights_.vector(op.inputs[2], layer));
      if (try_fuse_linear(index, layer, part)) return {};
      step.parts.push_back(part);
      break;
    }
    case INFOS_OP_ADD:
      if (try_fuse_add(index, layer)) return {};
      break;
    case INFOS_OP_MOE_FFN: {
      Part router;
      router.w = INFOS_TRY(weights_.matrix(op.inputs[1], layer));
      step.parts.push_back(router);
      step.gate = INFOS_TRY(weights_.experts(op.inputs[2], layer));
      step.up = INFOS_TRY(weights_.experts(op.inputs[3], layer));
      step.down = INFOS_TRY(weights_.experts(op.inputs[4], layer));
      break;
    }
    case INFOS_OP_KV_APPEND:
      step.ends_kv = true;
      for (std::uint32_t later = index + 1; later < plan_.layer_end; ++later)
        step.ends_kv &= plan_.ops[later].kind != INFOS_OP_KV_APPEND;
      break;
    default:
      break;
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<float*> Program::take(std::uint64_t floats, const char* what) {
  memory_.push_back(INFOS_TRY(device_.allocate(floats * sizeof(float), what)));
  return memory_.back().floats();
}

Status Program::allocate_arena() {
  const std::uint64_t tokens = plan_.bucket.max_tokens;
  const std::uint32_t logits = plan_.ops.back().output;
  std::uint64_t k_max = 0, slots = 0, scratch = 0, rotary = 0;
  std::size_t jobs = 1, experts = 0;
  const auto rows = [&](std::uint64_t n, std::uint64_t count) -> Result<Rows> {
    Rows r;
    r.n = static_cast<std::uint32_t>(n);
    r.stride = round_up(n, kLanes);
    r.data = INFOS_TRY(take(r.stride * count, "activations"));
    return r;
  };
  rows_.resize(plan_.tensors.size());
  for (std::uint32_t t = 0; t < plan_.tensors.size(); ++t) {
    const infos_tensor& tensor = plan_.tensors[t];
    if (tensor.role != INFOS_ROLE_ACTIVATION) continue;
    const std::uint64_t n = row_values(tensor);
    if (t == logits) {
      rows_[t].n = static_cast<std::uint32_t>(n);
      rows_[t].stride = n;
    } else {
      rows_[t] = INFOS_TRY(rows(n, tokens));
    }
    rows_[t].selected = tensor.dims[0] == INFOS_DIM_ROWS;
  }
  for (const Step& step : steps_) {
    const infos_op& op = *step.op;
    jobs = std::max(jobs, step.parts.size());
    for (const Part& part : step.parts) k_max = std::max<std::uint64_t>(k_max, tokens * part.w.k);
    if (op.kind == INFOS_OP_ROPE) rotary = std::max<std::uint64_t>(rotary, op.rotary_dim);
    if (op.kind == INFOS_OP_ATTENTION)
      scratch = std::max<std::uint64_t>(scratch, attention_scratch_floats(op.head_dim) * 4);
    if (op.kind != INFOS_OP_MOE_FFN) continue;
    const std::uint64_t these = tokens * op.top_k;
    const bool grows = these > slots || experts < op.experts || !moe_.x.data ||
                       moe_.x.n < step.gate[0].k || moe_.gate.n < step.gate[0].n;
    slots = std::max(slots, these);
    experts = std::max<std::size_t>(experts, op.experts);
    k_max = std::max({k_max, these * step.gate[0].k, these * step.gate[0].n});
    jobs = std::max<std::size_t>(jobs, 2 * op.experts);
    if (!grows) continue;
    const std::uint64_t d = std::max(moe_.x.n, step.gate[0].k),
                        f = std::max(moe_.gate.n, step.gate[0].n);
    moe_.logits = INFOS_TRY(rows(experts, tokens));
    moe_.x = INFOS_TRY(rows(d, slots));
    moe_.y = INFOS_TRY(rows(d, slots));
    moe_.gate = INFOS_TRY(rows(f, slots));
    moe_.up = INFOS_TRY(rows(f, slots));
  }
  for (auto* list : {&moe_.token, &moe_.slot, &moe_.expert}) list->resize(slots);
  moe_.share.resize(slots);
  moe_.begin.resize(experts + 1);
  scratch = std::max<std::uint64_t>(scratch, linear_scratch_bytes(kLinearRows));
  for (std::uint32_t t = 0; t < device_.pool().threads(); ++t)
    scratch_.push_back(INFOS_TRY(take(scratch / 4 + 16, "scratch")));
  quantised_ = reinterpret_cast<ActBlock*>(
      INFOS_TRY(take((k_max / kBlock + 1) * sizeof(ActBlock) / 4, "quantised rows")));
  angles_ = INFOS_TRY(take(tokens * rotary, "rotation angles"));
  jobs_.reserve(jobs);
  job_units_.reserve(jobs + 1);
  chunks_.reserve(tokens);
  return {};
}

}  // namespace infos::cpu
