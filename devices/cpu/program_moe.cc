// SPDX-License-Identifier: Apache-2.0
// Program, execute time: mixture of experts. Rows are gathered by expert, so that each expert's
// matrices are read once; a token adds its experts' results in the order of its own ranking,
// whoever else chose them.
#include <algorithm>
#include <cstring>

#include "devices/cpu/program.h"

namespace infos::cpu {

/// Chooses each token's experts; ties go to the lower index.
void Program::route(const Step& step, const Rows& x) {
  const infos_op& op = *step.op;
  const std::uint32_t rows = rows_of(x);
  const PackedMatrix& w = step.parts.front().w;
  if (is_integer(w.kind)) quantise_rows(x.data, x.stride, rows, w.k, w.kind);
  LinearArgs job;
  job.w = &w;
  job.x = x.data;
  job.ldx = x.stride;
  job.qx = quantised_;
  job.ldq = w.k / kBlock;
  job.y = moe_.logits.data;
  job.ldy = moe_.logits.stride;
  job.rows = rows;
  jobs_.assign(1, job);
  run_jobs();
  for (std::uint32_t t = 0; t < rows; ++t) {
    float* p = moe_.logits.row(t);
    device_.kernels().softmax(p, op.experts);
    float total = 0.0F;
    for (std::uint32_t rank = 0; rank < op.top_k; ++rank) {
      const std::uint32_t at = t * op.top_k + rank;
      const auto best = static_cast<std::uint32_t>(std::max_element(p, p + op.experts) - p);
      moe_.expert[at] = best;
      moe_.share[at] = p[best];
      total += p[best];
      p[best] = -1.0F;  // below any probability
    }
    for (std::uint32_t rank = 0; op.renormalise && rank < op.top_k; ++rank)
      moe_.share[t * op.top_k + rank] /= total;
  }
}

/// Counting sort of (token, rank) by expert, in token order within an expert.
void Program::sort_slots(const Step& step, std::uint32_t rows) {
  const infos_op& op = *step.op;
  std::fill_n(moe_.begin.begin(), op.experts + 1, 0U);
  for (std::uint32_t i = 0; i < rows * op.top_k; ++i) ++moe_.begin[moe_.expert[i] + 1];
  for (std::uint32_t e = 0; e < op.experts; ++e) moe_.begin[e + 1] += moe_.begin[e];
  // begin[e] serves as the cursor of e, and is moved back afterwards.
  for (std::uint32_t i = 0; i < rows * op.top_k; ++i) {
    const std::uint32_t slot = moe_.begin[moe_.expert[i]]++;
    moe_.slot[i] = slot;
    moe_.token[slot] = i / op.top_k;
  }
  for (std::uint32_t e = op.experts; e > 0; --e) moe_.begin[e] = moe_.begin[e - 1];
  moe_.begin[0] = 0;
}

void Program::expert_jobs(const std::vector<PackedMatrix>& w, const Rows& x, const Rows& y) {
  for (std::uint32_t e = 0; e < w.size(); ++e) {
    const std::uint32_t begin = moe_.begin[e], rows = moe_.begin[e + 1] - begin;
    if (rows == 0) continue;
    LinearArgs job;
    job.w = &w[e];
    job.x = x.row(begin);
    job.ldx = x.stride;
    job.ldq = w[e].k / kBlock;
    job.qx = quantised_ + begin * job.ldq;
    job.y = y.row(begin);
    job.ldy = y.stride;
    job.rows = rows;
    jobs_.push_back(job);
  }
}

void Program::run_moe(const Step& step) {
  const Rows &x = in(step, 0), &y = out(step);
  const infos_op& op = *step.op;
  const std::uint32_t rows = rows_of(x), slots = rows * op.top_k;
  route(step, x);
  sort_slots(step, rows);
  for (std::uint32_t s = 0; s < slots; ++s)
    std::memcpy(moe_.x.row(s), x.row(moe_.token[s]), x.n * sizeof(float));
  const WeightKind gate = step.gate[0].kind, up = step.up[0].kind, down = step.down[0].kind;
  if (is_integer(gate)) quantise_rows(moe_.x.data, moe_.x.stride, slots, x.n, gate);
  jobs_.clear();
  expert_jobs(step.gate, moe_.x, moe_.gate);
  if (gate != up) {
    run_jobs();
    jobs_.clear();
    if (is_integer(up)) quantise_rows(moe_.x.data, moe_.x.stride, slots, x.n, up);
  }
  expert_jobs(step.up, moe_.x, moe_.up);
  run_jobs();
  const std::uint32_t f = step.gate[0].n;
  each_row(slots, 8ULL * f, [&](std::uint32_t s) {
    device_.kernels().silu_mul(moe_.gate.row(s), moe_.up.row(s), moe_.gate.row(s), f);
  });
  if (is_integer(down)) quantise_rows(moe_.gate.data, moe_.gate.stride, slots, f, down);
  jobs_.clear();
  expert_jobs(step.down, moe_.gate, moe_.y);
  run_jobs();
  each_row(rows, 2ULL * op.top_k * y.n, [&](std::uint32_t t) {
    std::memset(y.row(t), 0, y.n * sizeof(float));
    for (std::uint32_t rank = 0; rank < op.top_k; ++rank) {
      const std::uint32_t at = t * op.top_k + rank;
      device_.kernels().add_scaled(moe_.y.row(moe_.slot[at]), moe_.share[at], y.row(t), y.n);
    }
  });
}

}  // namespace infos::cpu
