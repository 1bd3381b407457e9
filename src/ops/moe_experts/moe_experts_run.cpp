#include "ops/moe_experts/moe_experts_run.h"

#include <cstring>

#include "base/check.h"
#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/linear/linear_format.h"
#include "ops/moe_experts/moe_experts_cpu.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// The pairs (token, choice) sorted by expert, tokens ascending within one.
struct SortedRows {
  std::vector<int64_t> begins;  // [E + 1] of each expert's rows
  std::vector<int32_t> tokens;  // [T * k]
  std::vector<float> weights;   // [T * k]
};

SortedRows sort_by_expert(const MoeExpertsParams& p, int64_t num_experts) {
  const int64_t pairs = p.rows * p.top_k;
  SortedRows sorted = {.begins = std::vector<int64_t>(static_cast<size_t>(num_experts) + 1),
                       .tokens = std::vector<int32_t>(static_cast<size_t>(pairs)),
                       .weights = std::vector<float>(static_cast<size_t>(pairs))};
  for (int64_t i = 0; i < pairs; ++i) {
    QUIRE_CHECK(p.experts[i] >= 0 && p.experts[i] < num_experts) << "expert " << p.experts[i];
    ++sorted.begins[p.experts[i] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) sorted.begins[e + 1] += sorted.begins[e];
  std::vector<int64_t> next(sorted.begins.begin(), sorted.begins.end() - 1);
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t at = next[p.experts[i]]++;
    sorted.tokens[at] = static_cast<int32_t>(i / p.top_k);
    sorted.weights[at] = p.weights[i];
  }
  return sorted;
}

// Memory for the rows of one expert at a time, and for all sums.
struct Scratch {
  std::byte* x;      // [most rows, hidden] of type
  std::byte* gated;  // [most rows, I] of type
  float* y;          // [most rows, hidden]
  float* sum;        // [T, hidden]
};

Scratch take_scratch(const MoeExpertsParams& p, int64_t most_rows, int64_t intermediate) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t size = float_type_bytes(p.type), floats = sizeof(float);
  const int64_t x = aligned(most_rows * p.hidden * size);
  const int64_t gated = aligned(most_rows * intermediate * size);
  const int64_t y = aligned(most_rows * p.hidden * floats);
  const int64_t total = x + gated + y + aligned(p.rows * p.hidden * floats);
  thread_local std::shared_ptr<std::byte[]> memory;  // grows to the largest step
  thread_local int64_t capacity = 0;
  if (capacity < total) {
    memory.reset();
    memory = allocate_aligned(static_cast<size_t>(total));
    capacity = total;
  }
  std::byte* at = memory.get();
  return {.x = at,
          .gated = at + x,
          .y = reinterpret_cast<float*>(at + x + gated),
          .sum = reinterpret_cast<float*>(at + x + gated + y)};
}

void gather(ThreadPool& pool, const MoeExpertsParams& p, const int32_t* tokens, int64_t count,
            std::byte* out) {
  const int64_t bytes = p.hidden * float_type_bytes(p.type);
  const auto* x = static_cast<const std::byte*>(p.x);
  parallel_blocks(pool, count, rows_per_block(p.hidden), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(out + i * bytes, x + tokens[i] * bytes, static_cast<size_t>(bytes));
  });
}

// The rows of an expert as it gets them.
const void* input_rows(ThreadPool& pool, const MoeExpertsParams& p, const SortedRows& sorted,
                       int64_t first, int64_t rows, std::byte* room) {
  if (p.weigh_input) {
    const MoeWeighParams weigh = {.type = p.type,
                                  .width = p.hidden,
                                  .tokens = &sorted.tokens[first],
                                  .weights = &sorted.weights[first],
                                  .x = p.x,
                                  .y = room};
    parallel_blocks(pool, rows, rows_per_block(p.hidden),
                    [&](int64_t begin, int64_t end) { moe_weigh_cpu(weigh, begin, end); });
    return room;
  }
  // The rows of one token, or of all, are x as it is.
  if (rows == p.rows) return p.x;
  gather(pool, p, &sorted.tokens[first], rows, room);
  return room;
}

void run_linear(ThreadPool& pool, const LinearKernel& kernel, LinearParams p, int64_t rows,
                const void* x, void* y) {
  p.rows = rows;
  p.x = x;
  p.y = y;
  kernel.run(pool, p);
}

}  // namespace

LinearParams expert_linear_params(const LinearWeight& w, mx::Dtype out_dtype, const Gate* gate) {
  LinearParams p = linear_format(w.weight, out_dtype);
  p.gated = gate != nullptr;
  if (gate) p.gate = *gate;
  p.w = w.weight.data.get();
  if (w.bias) p.bias = w.bias->data<float>();
  return p;
}

void run_moe_experts(ThreadPool& pool, const std::vector<Expert>& experts,
                     const MoeExpertsParams& p) {
  const auto num_experts = static_cast<int64_t>(experts.size());
  const SortedRows sorted = sort_by_expert(p, num_experts);
  int64_t most_rows = 0;
  for (int64_t e = 0; e < num_experts; ++e)
    most_rows = std::max(most_rows, sorted.begins[e + 1] - sorted.begins[e]);
  const mx::Dtype dtype = experts.front().gate_up.weight.dtype;
  const Scratch scratch = take_scratch(p, most_rows, experts.front().down.weight.k);
  const std::vector<float> ones(p.weigh_input ? static_cast<size_t>(most_rows) : 0, 1.0f);
  std::memset(scratch.sum, 0, static_cast<size_t>(p.rows * p.hidden) * sizeof(float));
  for (int64_t e = 0; e < num_experts; ++e) {
    const int64_t begin = sorted.begins[e], rows = sorted.begins[e + 1] - begin;
    if (rows == 0) continue;
    const void* x = input_rows(pool, p, sorted, begin, rows, scratch.x);
    const Expert& expert = experts[e];
    run_linear(pool, *p.gate_up, expert_linear_params(expert.gate_up, dtype, &p.gate), rows, x,
               scratch.gated);
    run_linear(pool, *p.down, expert_linear_params(expert.down, mx::float32, nullptr), rows,
               scratch.gated, scratch.y);
    const MoeScatterParams scatter = {
        .width = p.hidden,
        .tokens = &sorted.tokens[begin],
        .weights = p.weigh_input ? ones.data() : &sorted.weights[begin],
        .y = scratch.y,
        .sum = scratch.sum};
    parallel_blocks(pool, rows, rows_per_block(p.hidden),
                    [&](int64_t b, int64_t end) { moe_scatter_cpu(scatter, b, end); });
  }
  const MoeFinishParams finish = {.type = p.type,
                                  .width = p.hidden,
                                  .sum = scratch.sum,
                                  .shared = p.shared,
                                  .logit = p.shared_logit,
                                  .residual = p.residual,
                                  .y = p.y};
  parallel_blocks(pool, p.rows, rows_per_block(p.hidden),
                  [&](int64_t begin, int64_t end) { moe_finish_cpu(finish, begin, end); });
}

}  // namespace quire::ops
