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

// Neighbouring experts whose products are one pool of work.
struct ExpertGroup {
  int64_t begin = 0, end = 0, rows = 0;
};

// Experts [begin, end) with at most kRows rows, or a single one with more.
ExpertGroup next_group(const SortedRows& sorted, int64_t begin, int64_t num_experts) {
  constexpr int64_t kRows = 256;
  ExpertGroup group = {.begin = begin, .end = begin};
  while (group.end < num_experts) {
    const int64_t rows = sorted.begins[group.end + 1] - sorted.begins[group.begin];
    if (group.rows > 0 && rows > kRows) break;
    group.rows = rows;
    ++group.end;
  }
  return group;
}

// Memory for the rows of one group at a time, and for all sums.
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
  thread_local ScratchMemory memory;
  std::byte* at = memory.reserve(total);
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

// The rows of a group as its experts get them; null if each gets x as it is.
const std::byte* input_rows(ThreadPool& pool, const MoeExpertsParams& p, const SortedRows& sorted,
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
  if (p.rows == 1) return nullptr;
  gather(pool, p, &sorted.tokens[first], rows, room);
  return room;
}

// The products of one group with its gates and ups, or with its downs.
class Products {
 public:
  void add(LinearParams p, int64_t rows, const void* x, void* y) {
    p.rows = rows;
    p.x = x;
    p.y = y;
    products_.push_back(p);
  }
  void run(ThreadPool& pool, const LinearKernel& kernel) const {
    run_linears(pool, kernel, products_);
  }

 private:
  std::vector<LinearParams> products_;
};

void run_group(ThreadPool& pool, const std::vector<Expert>& experts, const MoeExpertsParams& p,
               const SortedRows& sorted, const ExpertGroup& group, const Scratch& scratch) {
  const mx::Dtype dtype = experts.front().gate_up.weight.dtype;
  const int64_t size = float_type_bytes(p.type), intermediate = experts.front().down.weight.k;
  const int64_t first = sorted.begins[group.begin];
  const std::byte* x = input_rows(pool, p, sorted, first, group.rows, scratch.x);
  Products gate_up, down;
  for (int64_t e = group.begin; e < group.end; ++e) {
    const int64_t at = sorted.begins[e] - first, rows = sorted.begins[e + 1] - sorted.begins[e];
    if (rows == 0) continue;
    std::byte* gated = scratch.gated + at * intermediate * size;
    gate_up.add(expert_linear_params(experts[e].gate_up, dtype, &p.gate), rows,
                x ? x + at * p.hidden * size : p.x, gated);
    down.add(expert_linear_params(experts[e].down, mx::float32, nullptr), rows, gated,
             scratch.y + at * p.hidden);
  }
  gate_up.run(pool, *p.gate_up);
  down.run(pool, *p.down);
}

// Adds a group's outputs to the sums, expert by expert: the order is the promise of moe_experts.h.
void scatter_group(ThreadPool& pool, const MoeExpertsParams& p, const SortedRows& sorted,
                   const ExpertGroup& group, const Scratch& scratch, const float* ones) {
  const int64_t first = sorted.begins[group.begin];
  for (int64_t e = group.begin; e < group.end; ++e) {
    const int64_t begin = sorted.begins[e], rows = sorted.begins[e + 1] - begin;
    if (rows == 0) continue;
    const MoeScatterParams scatter = {.width = p.hidden,
                                      .tokens = &sorted.tokens[begin],
                                      .weights = ones ? ones : &sorted.weights[begin],
                                      .y = scratch.y + (begin - first) * p.hidden,
                                      .sum = scratch.sum};
    parallel_blocks(pool, rows, rows_per_block(p.hidden),
                    [&](int64_t b, int64_t end) { moe_scatter_cpu(scatter, b, end); });
  }
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
  std::vector<ExpertGroup> groups;
  int64_t most_rows = 0;
  for (int64_t e = 0; e < num_experts; e = groups.back().end) {
    groups.push_back(next_group(sorted, e, num_experts));
    most_rows = std::max(most_rows, groups.back().rows);
  }
  const Scratch scratch = take_scratch(p, most_rows, experts.front().down.weight.k);
  const std::vector<float> ones(p.weigh_input ? static_cast<size_t>(most_rows) : 0, 1.0f);
  std::memset(scratch.sum, 0, static_cast<size_t>(p.rows * p.hidden) * sizeof(float));
  for (const ExpertGroup& group : groups) {
    if (group.rows == 0) continue;
    run_group(pool, experts, p, sorted, group, scratch);
    scatter_group(pool, p, sorted, group, scratch, p.weigh_input ? ones.data() : nullptr);
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
