// SPDX-License-Identifier: Apache-2.0
// A plan with its weights, ready to execute: the ops of all layers as one list of steps, and the
// arena they work in. Runs on the caller's thread plus the device's pool; execute() never
// allocates. Results of a row never depend on other rows, on the number of threads or on how work
// is cut into tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "devices/cpu/device.h"
#include "devices/cpu/plan.h"
#include "devices/cpu/weights.h"

namespace infos::cpu {

/// Below this many values touched by a row op, waking the other threads costs more than it saves.
inline constexpr std::uint64_t kSerialValues = 1U << 14U;

class Program {
 public:
  /// Errors: those of Weights; resource_exhausted.
  static Result<std::unique_ptr<Program>> load(Device& device, const Plan& plan,
                                               infos_weight_source source, void* context);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// One step over a ragged batch. Errors: invalid_argument (the batch or the pool does not fit the
  /// program), deadline_exceeded, cancelled (both between ops: KV of the batch's rows is then
  /// undefined).
  Status execute(KvPool& kv, const infos_batch& batch);

 private:
  struct Rows {
    float* data = nullptr;
    std::size_t stride = 0;  ///< floats
    std::uint32_t n = 0;     ///< values in a row
    bool selected = false;   ///< rows are the batch's logit rows
    float* row(std::size_t r) const { return data + r * stride; }
  };
  struct Part {  ///< one matrix of a fused group that reads the same rows
    PackedMatrix w;
    const float* bias = nullptr;
    std::uint32_t out = 0;
    std::uint32_t residual = UINT32_MAX;
  };
  struct Step {
    const infos_op* op = nullptr;
    std::uint32_t layer = 0;
    std::vector<Part> parts;        ///< LINEAR, ROUTER of MOE_FFN
    const float* vector = nullptr;  ///< RMS_NORM weight, ROPE frequencies
    Table table;                    ///< EMBED
    bool ends_kv = false;           ///< KV_APPEND: the last one of its layer
    std::uint32_t sum = 0;          ///< ALL_REDUCE: index into partial_sums_
    bool meets_again = false;       ///< ALL_REDUCE: its input is written before ranks meet next
    std::vector<PackedMatrix> gate, up, down;  ///< MOE_FFN, per expert
  };
  struct PartialSum {  ///< what this rank gives to one ALL_REDUCE; other ranks read it
    const float* data = nullptr;
    std::size_t stride = 0;
    std::uint32_t rows = 0, n = 0;
  };
  struct Chunk {  ///< rows of one sequence that attend together
    std::uint32_t sequence, row, rows;
  };

  Program(Device& device, const Plan& plan, infos_weight_source source, void* context)
      : device_(device), plan_(plan), weights_(device, plan_, source, context) {}

  Status build();
  Status add_step(std::uint32_t op, std::uint32_t layer);
  bool try_fuse_linear(std::uint32_t op, std::uint32_t layer, Part& part);
  bool try_fuse_add(std::uint32_t op, std::uint32_t layer);
  bool reads_elsewhere(std::uint32_t tensor, std::uint32_t reader) const;
  Status prepare_sums();
  bool writes(const Step& step, std::uint32_t tensor) const;
  Status allocate_arena();
  Result<float*> take(std::uint64_t floats, const char* what);

  // execute, in program_run.cc
  Status check_pool(const KvPool& kv) const;
  void plan_attention(const infos_batch& batch);
  void run_step(const Step& step);
  /// function(row) for all rows, on this thread alone when rows * cost values are little work.
  template <typename Function>
  void each_row(std::uint32_t rows, std::uint64_t cost, Function&& function);
  std::uint32_t rows_of(const Rows& rows) const {
    return rows.selected ? batch_->n_logit_rows : batch_->n_tokens;
  }
  const Rows& in(const Step& step, int i) const { return rows_[step.op->inputs[i]]; }
  const Rows& out(const Step& step) const { return rows_[step.op->output]; }
  void run_embed(const Step& step);
  void run_norm(const Step& step);
  void run_linear(const Step& step);
  void run_rope(const Step& step);
  void run_append(const Step& step);
  void run_attention(const Step& step);
  void run_select(const Step& step);
  Status run_all_reduce(const Step& step);
  void prepare_angles(const Step& step);
  void quantise_rows(const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t k,
                     WeightKind kind);
  void run_jobs();

  // MOE_FFN, in program_moe.cc
  void run_moe(const Step& step);
  void route(const Step& step, const Rows& x);
  void sort_slots(const Step& step, std::uint32_t rows);
  void expert_jobs(const std::vector<PackedMatrix>& w, const Rows& x, const Rows& y);

  Device& device_;
  const Plan plan_;
  Weights weights_;
  std::vector<Step> steps_;
  std::vector<Rows> rows_;  ///< by tensor index
  std::vector<Memory> memory_;

  std::vector<float*> scratch_;  ///< one per thread
  ActBlock* quantised_ = nullptr;
  float* angles_ = nullptr;  ///< [tokens, rotary_dim]: cosines, then sines
  const float* angles_for_ = nullptr;
  std::uint32_t angles_dim_ = 0;
  std::vector<LinearArgs> jobs_;
  std::vector<std::uint32_t> job_units_;  ///< prefix sums
  std::vector<Chunk> chunks_;
  std::vector<PartialSum> partial_sums_;
  std::vector<std::uint64_t> met_;  ///< what the ranks handed over, by rank

  struct Moe {
    Rows logits, x, gate, up, y;
    std::vector<std::uint32_t> token, slot,
        begin;  ///< slot -> token; (token, rank) -> slot; expert -> first slot
    std::vector<std::uint32_t> expert;  ///< (token, rank) -> expert
    std::vector<float> share;           ///< (token, rank)
  } moe_;

  // The batch that runs now.
  const infos_batch* batch_ = nullptr;
  KvPool* kv_ = nullptr;
};

template <typename Function>
void Program::each_row(std::uint32_t rows, std::uint64_t cost, Function&& function) {
  const std::uint32_t threads = device_.pool().threads();
  if (rows < 2 || threads == 1 || rows * cost < kSerialValues) {
    for (std::uint32_t r = 0; r < rows; ++r) function(r);
    return;
  }
  const std::uint32_t tasks = std::min(rows, 4 * threads);
  device_.pool().for_each(tasks, [&](std::uint32_t task, std::uint32_t) {
    const auto begin = static_cast<std::uint32_t>(std::uint64_t{rows} * task / tasks);
    const auto end = static_cast<std::uint32_t>(std::uint64_t{rows} * (task + 1) / tasks);
    for (std::uint32_t r = begin; r < end; ++r) function(r);
  });
}

}  // namespace infos::cpu
