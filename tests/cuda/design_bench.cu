// What two decisions gain, as ratios: attention that reads blocks where they lie, beside one that
// gathers a sequence's keys and values first; and a delta rule that walks all sequences of a step
// at once, beside one after another.
#include <algorithm>
#include <memory>
#include <numeric>

#include "attention_step.h"
#include "ops/cuda/launch.cuh"
#include "ops/gated_delta_rule/gated_delta_rule_cuda.h"

namespace quire::ops::cuda_test {
namespace {

constexpr int kBlock = 16, kDim = 128;

// One query token for each of `batch` sequences of `context` keys, in blocks of 16.
struct Decode {
  Decode(int64_t heads, int64_t kv_heads, int batch, int context) {
    layout.num_sequences = layout.num_tokens = batch;
    layout.block_size = kBlock;
    layout.cu_seqlens = {0};
    layout.block_offsets = {0};
    const int blocks = context / kBlock;
    for (int i = 0; i < batch; ++i) {
      layout.positions.push_back(context - 1);
      layout.cu_seqlens.push_back(i + 1);
      layout.seq_lens.push_back(context);
      layout.block_offsets.push_back(int64_t{i + 1} * blocks);
    }
    layout.blocks.resize(static_cast<size_t>(batch) * blocks);
    std::iota(layout.blocks.begin(), layout.blocks.end(), 0);
    params = {.q_type = FloatType::kBf16,
              .kv_type = KvType::kBf16,
              .heads = heads,
              .kv_heads = kv_heads,
              .key_dim = kDim,
              .value_dim = kDim,
              .block_size = kBlock};
    params.exponent_scale = 0.1f;
  }
  BatchLayout layout;
  AttentionKernelParams params;
};

// A block of threads for each block of a table, which it copies to where that one is in order.
__global__ void gather_blocks(const int32_t* table, const uint4* from, uint4* to, int64_t pieces) {
  begin_dependent();
  const int64_t source = table[blockIdx.x] * pieces, target = blockIdx.x * pieces;
  for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) to[target + i] = from[source + i];
}

class PagingBench {
 public:
  PagingBench(CudaStream stream, const Decode& step)
      : stream_(stream),
        step_(step),
        pool_(static_cast<size_t>(step.layout.seq_lens[0]) * step.layout.num_tokens *
              step.params.kv_heads * kDim * 2),
        // As many pools as no cache holds.
        pools_(std::max<size_t>(1, (size_t{300} << 20) / (2 * pool_))),
        k_(pool_ * pools_),
        v_(pool_ * pools_),
        gathered_k_(pool_),
        gathered_v_(pool_),
        q_(static_cast<size_t>(step.layout.num_tokens * step.params.heads * kDim * 2)),
        out_(q_.size()) {
    for (const DeviceBytes* bytes : {&k_, &v_, &q_}) cudaMemset(bytes->get(), 0, bytes->size());
  }

  void run() {
    const auto in_order = table(step_.layout.blocks);
    std::vector<int32_t> blocks = step_.layout.blocks;
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
    const auto scattered = table(blocks);
    const double paged = attention(scattered, false), whole = attention(in_order, false);
    const double gather = time_us(stream_, [&](CudaStream) { this->gather(scattered); });
    const double both = attention(scattered, true);
    std::printf(
        "paging %ld/%ld batch %ld context %d  paged %.1f us, blocks in order %.1f, gather %.1f, "
        "gather + in order %.1f: paged is %.2f times as fast\n",
        step_.params.heads, step_.params.kv_heads, step_.layout.num_tokens,
        step_.layout.seq_lens[0], paged, whole, gather, both, both / paged);
  }

 private:
  static std::shared_ptr<DeviceBytes> table(const std::vector<int32_t>& blocks) {
    return std::make_shared<DeviceBytes>(blocks);
  }
  void gather(const std::shared_ptr<DeviceBytes>& blocks) {
    const auto count = static_cast<unsigned>(step_.layout.blocks.size());
    const auto pieces = static_cast<int64_t>(pool_ / count / 16);
    const size_t at = next_ % pools_ * pool_;
    for (const auto& [pool, to] : {std::pair(&k_, &gathered_k_), {&v_, &gathered_v_}})
      launch("gather", stream_, gather_blocks, dim3(count), 256, 0, blocks->as<int32_t>(),
             reinterpret_cast<const uint4*>(pool->as<uint8_t>() + at), to->as<uint4>(), pieces);
    ++next_;
  }
  double attention(const std::shared_ptr<DeviceBytes>& blocks, bool gathers) {
    const AttentionCudaPlan plan = plan_attention_cuda(step_.params, step_.layout);
    const UploadedStep step(step_.layout, step_.params, plan);
    AttentionCudaBatch batch = step.batch;
    batch.has_old_keys = !gathers;
    if (!gathers) batch.blocks = blocks->as<int32_t>();
    return time_us(stream_, [&](CudaStream stream) {
      AttentionKernelParams p = step_.params;
      p.q = q_.get();
      p.out = out_.get();
      if (gathers) gather(blocks);
      const size_t at = next_ % pools_ * pool_;
      p.k = gathers ? gathered_k_.as<uint8_t>() : k_.as<uint8_t>() + at;
      p.v = gathers ? gathered_v_.as<uint8_t>() : v_.as<uint8_t>() + at;
      if (!gathers) ++next_;
      paged_attention_cuda(stream, p, batch);
    });
  }

  CudaStream stream_;
  const Decode& step_;
  size_t pool_, pools_;
  DeviceBytes k_, v_, gathered_k_, gathered_v_, q_, out_;
  size_t next_ = 0;
};

// A layer of Qwen3.5-0.8B's, `tokens` new rows of each of `sequences`.
void bench_delta_rule(CudaStream stream, int sequences, int tokens) {
  const int64_t heads = 16, row = 3 * heads * kDim, gates_row = 2 * heads;
  const size_t rows = static_cast<size_t>(sequences) * tokens;
  const DeviceBytes qkv(encode(random_floats(rows * row, FloatType::kBf16, 1), FloatType::kBf16)),
      gates(encode(random_floats(rows * gates_row, FloatType::kBf16, 2), FloatType::kBf16)),
      a_log(random_floats(heads, FloatType::kF32, 3)), dt(random_floats(heads, FloatType::kF32, 4)),
      state(static_cast<size_t>(sequences) * heads * kDim * kDim * 4), y(rows * heads * kDim * 2);
  cudaMemset(state.get(), 0, state.size());
  std::vector<int32_t> cu(static_cast<size_t>(sequences) + 1), positions(rows), slots(sequences);
  for (int s = 0; s <= sequences; ++s) cu[s] = s * tokens;
  for (size_t i = 0; i < rows; ++i) positions[i] = 1000 + static_cast<int32_t>(i % tokens);
  std::iota(slots.begin(), slots.end(), 0);
  const DeviceBytes d_cu(cu), d_positions(positions), d_slots(slots);
  const GatedDeltaRuleParams all = {.type = FloatType::kBf16,
                                    .k_heads = heads,
                                    .v_heads = heads,
                                    .k_dim = kDim,
                                    .v_dim = kDim,
                                    .gates_row = gates_row,
                                    .a_column = 0,
                                    .b_column = heads,
                                    .qkv = qkv.get(),
                                    .gates = gates.get(),
                                    .a_log = a_log.as<float>(),
                                    .dt_bias = dt.as<float>(),
                                    .state = state.as<float>(),
                                    .y = y.get()};
  const auto batch = [&](int first, int64_t count) {
    return StateCudaBatch{.num_sequences = count,
                          .max_tokens = tokens,
                          .cu_seqlens = d_cu.as<int32_t>() + first,
                          .positions = d_positions.as<int32_t>(),
                          .state_slots = d_slots.as<int32_t>() + first};
  };
  const double together =
      time_us(stream, [&](CudaStream s) { gated_delta_rule_cuda(s, all, batch(0, sequences)); });
  // Rows are counted from where cu_seqlens says, so a request is a step of one sequence.
  const double apart = time_us(
      stream,
      [&](CudaStream s) {
        for (int i = 0; i < sequences; ++i) gated_delta_rule_cuda(s, all, batch(i, 1));
      },
      5);
  std::printf(
      "delta rule, %d sequences of %d rows  together %.1f us, one by one %.1f: %.1f times as "
      "fast\n",
      sequences, tokens, together, apart, apart / together);
}

}  // namespace

void bench_designs(CudaStream stream) {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{16, 8}, {32, 8}})
    for (const int batch : {1, 8, 64})
      for (const int context : {1024, 8192})
        PagingBench(stream, Decode(heads, kv_heads, batch, context)).run();
  for (const int sequences : {1, 8, 64})
    for (const int tokens : {1, 128}) bench_delta_rule(stream, sequences, tokens);
}

}  // namespace quire::ops::cuda_test
