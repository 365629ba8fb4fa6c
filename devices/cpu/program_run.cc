// SPDX-License-Identifier: Apache-2.0
// Program, execute time: one function per op. Work is cut into tasks by size alone; a task never
// changes what is computed.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "devices/cpu/batch_check.h"
#include "devices/cpu/program.h"

namespace infos::cpu {
namespace {

/// Below this many multiply-adds, waking the other threads costs more than it saves (about 5 us of
/// one core).
constexpr std::uint64_t kSerialWork = 1U << 18U;
/// Panels that one task takes at least: the widest register tile.
constexpr std::uint32_t kUnitPanels = 4;

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000ULL +
         static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

Status Program::check_pool(const KvPool& kv) const {
  if (plan_.kv_heads == 0) return {};
  const infos_kv_config& c = kv.config;
  if (c.layers != plan_.layers || c.kv_heads != plan_.kv_heads || c.head_dim != plan_.head_dim) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("KV pool of {} layers, {} heads, dim {}; the program has {}, {}, {}", c.layers,
                    c.kv_heads, c.head_dim, plan_.layers, plan_.kv_heads, plan_.head_dim)};
  }
  return {};
}

Status Program::execute(KvPool& kv, const infos_batch& batch) {
  INFOS_TRY(check_pool(kv));
  BatchLimits limits;
  limits.max_tokens = plan_.bucket.max_tokens;
  limits.max_sequences = plan_.bucket.max_sequences;
  limits.max_context = plan_.bucket.max_context;
  limits.token_limit = plan_.token_limit ? plan_.token_limit : 1U << 31U;
  limits.block_tokens = kv.config.block_tokens;
  limits.n_blocks = kv.config.n_blocks;
  INFOS_TRY(check_batch(batch, limits));
  batch_ = &batch;
  kv_ = &kv;
  angles_for_ = nullptr;
  Rows& logits = rows_[plan_.ops.back().output];
  if (batch.logits_stride && batch.logits_stride < logits.n) {
    return Error{ErrorCode::invalid_argument, fmt::format("logits_stride {}, allowed 0 or from {}",
                                                          batch.logits_stride, logits.n)};
  }
  logits.data = batch.logits;
  logits.stride = batch.logits_stride ? batch.logits_stride : logits.n;
  plan_attention(batch);
  for (const Step& step : steps_) {
    if (device_.cancelled.load(std::memory_order_relaxed))
      return Error{ErrorCode::cancelled, "execute was cancelled"};
    if (batch.deadline_ns && now_ns() > batch.deadline_ns) {
      return Error{ErrorCode::deadline_exceeded,
                   fmt::format("execute passed its deadline before op {} of layer {}",
                               step.op - plan_.ops.data(), step.layer)};
    }
    if (step.op->kind == INFOS_OP_ALL_REDUCE)
      INFOS_TRY(run_all_reduce(step));
    else
      run_step(step);
    if (step.ends_kv && batch.layer_done) batch.layer_done(batch.layer_context, step.layer);
  }
  return {};
}

/// Cuts sequences into chunks whose rows fit the states of one attention call.
void Program::plan_attention(const infos_batch& batch) {
  chunks_.clear();
  std::uint32_t group = 1;
  for (const infos_op& op : plan_.ops) {
    if (op.kind == INFOS_OP_ATTENTION) group = std::max(group, op.heads / op.kv_heads);
  }
  const std::uint32_t rows = std::max<std::uint32_t>(
      1, kAttentionStates / std::min<std::uint32_t>(group, kAttentionStates));
  for (std::uint32_t s = 0; s < batch.n_sequences; ++s) {
    for (std::uint32_t r = batch.row_begin[s]; r < batch.row_begin[s + 1]; r += rows) {
      chunks_.push_back({s, r, std::min(rows, batch.row_begin[s + 1] - r)});
    }
  }
}

void Program::run_step(const Step& step) {
  const infos_op& op = *step.op;
  if (op.output != UINT32_MAX && rows_of(out(step)) == 0) return;  // no logits wanted
  const Kernels& kernels = device_.kernels();
  switch (op.kind) {
    case INFOS_OP_EMBED:
      return run_embed(step);
    case INFOS_OP_RMS_NORM:
      return run_norm(step);
    case INFOS_OP_LINEAR:
      return run_linear(step);
    case INFOS_OP_ROPE:
      return run_rope(step);
    case INFOS_OP_KV_APPEND:
      return run_append(step);
    case INFOS_OP_ATTENTION:
      return run_attention(step);
    case INFOS_OP_MOE_FFN:
      return run_moe(step);
    case INFOS_OP_SELECT_ROWS:
      return run_select(step);
    default:
      break;
  }
  const Rows &a = in(step, 0), &b = in(step, 1), &y = out(step);
  const auto kernel = op.kind == INFOS_OP_ADD ? kernels.add : kernels.silu_mul;
  const std::uint64_t cost = op.kind == INFOS_OP_ADD ? y.n : 8ULL * y.n;
  each_row(rows_of(y), cost, [&](std::uint32_t r) { kernel(a.row(r), b.row(r), y.row(r), y.n); });
}

void Program::run_embed(const Step& step) {
  const Rows& y = out(step);
  each_row(batch_->n_tokens, 8ULL * y.n, [&](std::uint32_t r) {
    step.table.read(static_cast<std::uint32_t>(batch_->tokens[r]), y.row(r));
  });
}

void Program::run_norm(const Step& step) {
  const Rows &x = in(step, 0), &y = out(step);
  const auto m = static_cast<std::size_t>(plan_.tensors[step.op->inputs[1]].dims[0]);
  each_row(rows_of(y), 2ULL * y.n, [&](std::uint32_t r) {
    device_.kernels().rms_norm(x.row(r), step.vector, y.row(r), y.n, m, step.op->epsilon);
  });
}

void Program::quantise_rows(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t k,
                            WeightKind kind) {
  each_row(rows, 4ULL * k, [&](std::uint32_t r) {
    device_.kernels().quantise(x + r * stride, quantised_ + r * (k / kBlock), k, kind);
  });
}

void Program::run_linear(const Step& step) {
  const Rows& x = in(step, 0);
  const std::uint32_t rows = rows_of(x);
  const PackedMatrix& first = step.parts.front().w;
  if (is_integer(first.kind)) quantise_rows(x.data, x.stride, rows, first.k, first.kind);
  jobs_.clear();
  for (const Part& part : step.parts) {
    LinearArgs job;
    job.w = &part.w;
    job.x = x.data;
    job.ldx = x.stride;
    job.qx = quantised_;
    job.ldq = part.w.k / kBlock;
    job.y = rows_[part.out].data;
    job.ldy = rows_[part.out].stride;
    job.bias = part.bias;
    if (part.residual != UINT32_MAX) {
      job.residual = rows_[part.residual].data;
      job.ldr = rows_[part.residual].stride;
    }
    job.rows = rows;
    jobs_.push_back(job);
  }
  run_jobs();
}

/// Runs jobs_: a task is some units (runs of panels) of one or more jobs times one chunk of rows.
void Program::run_jobs() {
  job_units_.assign(1, 0);
  std::uint64_t work = 0;
  std::uint32_t rows_most = 0;
  for (const LinearArgs& job : jobs_) {
    job_units_.push_back(job_units_.back() + (job.w->panels + kUnitPanels - 1) / kUnitPanels);
    work += std::uint64_t{job.rows} * job.w->n * job.w->k;
    rows_most = std::max(rows_most, job.rows);
  }
  const std::uint32_t units = job_units_.back(), threads = device_.pool().threads();
  const std::uint32_t row_chunks = (rows_most + kLinearRows - 1) / kLinearRows;
  const std::uint32_t span =
      work < kSerialWork ? units : std::max<std::uint32_t>(1, units / (8 * threads));
  const std::uint32_t unit_tasks = (units + span - 1) / span;
  const auto task = [&](std::uint32_t t, std::uint32_t thread) {
    const std::uint32_t chunk = t / unit_tasks;
    std::uint32_t unit = t % unit_tasks * span;
    const std::uint32_t end = std::min(unit + span, units);
    while (unit < end) {
      const auto next = std::upper_bound(job_units_.begin(), job_units_.end(), unit);
      const auto j = static_cast<std::size_t>(next - job_units_.begin()) - 1;
      const std::uint32_t stop = std::min(end, *next), base = job_units_[j];
      LinearArgs job = jobs_[j];
      const std::uint32_t row = chunk * kLinearRows;
      if (row < job.rows) {
        job.rows = std::min<std::uint32_t>(job.rows - row, kLinearRows);
        job.x += row * job.ldx;
        job.qx += row * job.ldq;
        job.y += row * job.ldy;
        if (job.residual) job.residual += row * job.ldr;
        job.panel_begin = (unit - base) * kUnitPanels;
        job.panel_end = std::min((stop - base) * kUnitPanels, job.w->panels);
        job.scratch = reinterpret_cast<std::uint8_t*>(scratch_[thread]);
        device_.kernels().linear(job);
      }
      unit = stop;
    }
  };
  device_.pool().for_each(unit_tasks * row_chunks, task);
}

/// cos and sin of position * frequency for all rows; angles in f64, since positions are large.
void Program::prepare_angles(const Step& step) {
  if (angles_for_ == step.vector && angles_dim_ == step.op->rotary_dim) return;
  angles_for_ = step.vector;
  angles_dim_ = step.op->rotary_dim;
  const std::uint32_t half = step.op->rotary_dim / 2;
  each_row(batch_->n_tokens, 64ULL * half, [&](std::uint32_t r) {
    float* to = angles_ + std::size_t{r} * step.op->rotary_dim;
    for (std::uint32_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(batch_->positions[r]) * static_cast<double>(step.vector[i]);
      to[i] = static_cast<float>(std::cos(angle));
      to[half + i] = static_cast<float>(std::sin(angle));
    }
  });
}

void Program::run_rope(const Step& step) {
  prepare_angles(step);
  const infos_op& op = *step.op;
  const Rows &x = in(step, 0), &y = out(step);
  each_row(rows_of(y), 2ULL * y.n, [&](std::uint32_t r) {
    device_.kernels().rope(x.row(r), y.row(r), angles_ + std::size_t{r} * op.rotary_dim, op.heads,
                           op.head_dim, op.rotary_dim, op.rope_style);
  });
}

void Program::run_append(const Step& step) {
  const Rows &k = in(step, 0), &v = in(step, 1);
  const infos_kv_layout& l = kv_->layout;
  const infos_op& op = *step.op;
  const std::uint32_t block_tokens = kv_->config.block_tokens;
  for (std::uint32_t s = 0; s < batch_->n_sequences; ++s) {
    const std::uint32_t first = batch_->row_begin[s];
    const std::uint32_t* blocks = batch_->block_table + batch_->table_begin[s];
    each_row(batch_->row_begin[s + 1] - first, 2ULL * k.n, [&](std::uint32_t i) {
      const auto position = static_cast<std::uint32_t>(batch_->positions[first + i]);
      std::uint8_t* at = kv_->data + blocks[position / block_tokens] * l.s_block +
                         step.layer * l.s_layer + position % block_tokens * l.s_token;
      for (std::uint32_t h = 0; h < op.kv_heads; ++h, at += l.s_head) {
        device_.kernels().store_kv(k.row(first + i) + h * op.head_dim, at, op.head_dim, kv_->type);
        device_.kernels().store_kv(v.row(first + i) + h * op.head_dim, at + l.v_offset, op.head_dim,
                                   kv_->type);
      }
    });
  }
}

void Program::run_attention(const Step& step) {
  const infos_op& op = *step.op;
  const Rows &q = in(step, 0), &o = out(step);
  const infos_kv_layout& l = kv_->layout;
  const std::uint32_t group = op.heads / op.kv_heads;
  const auto states = static_cast<std::uint32_t>(kAttentionStates);
  const std::uint32_t parts =
      (group + states - 1) / states;  // more heads per KV head than states: several calls
  const std::uint32_t lanes = op.kv_heads * parts;
  const auto run = [&](std::uint32_t task, std::uint32_t thread) {
    const Chunk& chunk = chunks_[task / lanes];
    const std::uint32_t kv_head = task % lanes / parts, part = task % parts;
    const std::uint32_t last = batch_->row_begin[chunk.sequence + 1] - 1;
    AttentionArgs a;
    a.q = q.row(chunk.row);
    a.ldq = q.stride;
    a.out = o.row(chunk.row);
    a.ldo = o.stride;
    a.k = kv_->data + step.layer * l.s_layer + kv_head * l.s_head;
    a.s_block = l.s_block;
    a.s_token = l.s_token;
    a.v_offset = l.v_offset;
    a.blocks = batch_->block_table + batch_->table_begin[chunk.sequence];
    a.block_tokens = kv_->config.block_tokens;
    a.rows = chunk.rows;
    a.first_position = static_cast<std::uint32_t>(batch_->positions[chunk.row]);
    a.end_position = static_cast<std::uint32_t>(batch_->positions[last]) + 1;
    a.head_begin = kv_head * group + part * states;
    a.head_end = std::min(a.head_begin + states, (kv_head + 1) * group);
    a.head_dim = op.head_dim;
    a.mask = op.mask;
    a.window = op.window;
    a.scale = op.scale;
    a.type = kv_->type;
    a.scratch = scratch_[thread];
    device_.kernels().attention(a);
  };
  std::uint64_t work = 0;
  for (const Chunk& c : chunks_)
    work +=
        std::uint64_t{c.rows} * static_cast<std::uint32_t>(batch_->positions[c.row] + 1) * o.n * 2;
  const auto tasks = static_cast<std::uint32_t>(chunks_.size()) * lanes;
  if (work >= kSerialWork) return device_.pool().for_each(tasks, run);
  for (std::uint32_t t = 0; t < tasks; ++t) run(t, 0);
}

Status Program::run_all_reduce(const Step& step) {
  const Rows &x = in(step, 0), &y = out(step);
  const std::uint32_t rows = rows_of(y);
  if (rows == 0) return {};  // no logits wanted, on any rank
  const infos_group& group = *device_.group();
  PartialSum& mine = partial_sums_[step.sum];
  mine = {x.data, x.stride, rows, x.n};
  const auto meet = [&]() -> Status {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&mine));
    if (group.exchange(group.context, address, met_.data()) == INFOS_OK) return {};
    return Error{ErrorCode::cancelled, "another rank of the group has failed"};
  };
  INFOS_TRY(meet());
  const auto part = [&](std::uint32_t rank) {
    return reinterpret_cast<const PartialSum*>(static_cast<std::uintptr_t>(met_[rank]));
  };
  for (std::uint32_t rank = 0; rank < group.ranks; ++rank) {
    const PartialSum& other = *part(rank);
    if (other.rows != rows || other.n != x.n) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("rank {} sums {} rows of {}, this rank {} of {}", rank, other.rows,
                               other.n, rows, x.n)};
    }
  }
  each_row(rows, std::uint64_t{group.ranks} * y.n, [&](std::uint32_t r) {
    const auto row = [&](std::uint32_t rank) { return part(rank)->data + r * part(rank)->stride; };
    if (group.ranks == 1) std::memcpy(y.row(r), row(0), y.n * sizeof(float));
    for (std::uint32_t rank = 1; rank < group.ranks; ++rank)
      device_.kernels().add(rank == 1 ? row(0) : y.row(r), row(rank), y.row(r), y.n);
  });
  return step.meets_again ? meet() : Status();
}

void Program::run_select(const Step& step) {
  const Rows &x = in(step, 0), &y = out(step);
  for (std::uint32_t r = 0; r < batch_->n_logit_rows; ++r)
    std::memcpy(y.row(r), x.row(batch_->logit_rows[r]), y.n * sizeof(float));
}

}  // namespace infos::cpu
