// Where a decode step's time goes: the kernels of a step of Qwen3-0.6B's or 8B's shape as a
// recorded step has them, then without each kind. What a kind adds is more than it computes: a
// kernel waits for the one before, and asks for weights meanwhile.
#include <algorithm>
#include <memory>
#include <numeric>

#include "attention_step.h"
#include "ops/linear/cuda/linear_cuda.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"

namespace quire::ops::cuda_test {
namespace {

constexpr auto kBf16 = FloatType::kBf16;
constexpr int64_t kKvHeads = 8, kDim = 128, kVocabulary = 151936, kBlock = 16;

struct StepShape {
  const char* name;
  int64_t layers, hidden, heads, inner;

  int64_t qkv_rows() const { return (heads + 2 * kKvHeads) * kDim; }
  // What is read once a step but keys and values.
  int64_t weight_bytes() const {
    const int64_t layer = hidden * (qkv_rows() + heads * kDim + 3 * inner);
    return 2 * (layers * layer + kVocabulary * hidden);
  }
};
constexpr StepShape kSmall = {"0.6B", 28, 1024, 16, 3072}, kLarge = {"8B", 36, 4096, 32, 12288};

enum Kind { kQkv, kRope, kAttention, kOut, kGateUp, kDown, kHead, kKinds };
constexpr const char* kNames[] = {
    "qkv", "norm, rope, write", "attention", "output", "gate and up", "down", "logits"};

BatchLayout decode_layout(int batch, int context) {
  BatchLayout layout;
  layout.num_sequences = layout.num_tokens = batch;
  layout.block_size = kBlock;
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  const int64_t blocks = (context + kBlock - 1) / kBlock;
  for (int i = 0; i < batch; ++i) {
    layout.positions.push_back(context - 1);
    layout.cu_seqlens.push_back(i + 1);
    layout.seq_lens.push_back(context);
    layout.block_offsets.push_back((i + 1) * blocks);
  }
  layout.blocks.resize(static_cast<size_t>(batch * blocks));
  std::iota(layout.blocks.begin(), layout.blocks.end(), 0);
  std::shuffle(layout.blocks.begin(), layout.blocks.end(), std::mt19937(1));
  return layout;
}

AttentionKernelParams attention_params(int64_t heads) {
  AttentionKernelParams p = {.q_type = kBf16,
                             .kv_type = KvType::kBf16,
                             .heads = heads,
                             .kv_heads = kKvHeads,
                             .key_dim = kDim,
                             .value_dim = kDim,
                             .block_size = kBlock};
  p.exponent_scale = 0.1f;
  return p;
}

class StepBench {
 public:
  StepBench(CudaStream stream, const StepShape& shape, int batch, int context)
      : stream_(stream),
        shape_(shape),
        batch_(batch),
        layout_(decode_layout(batch, context)),
        attention_(attention_params(shape.heads)),
        up_(layout_, attention_, plan_for_device(attention_, layout_)),
        positions_(layout_.positions),
        slots_(slots()),
        pool_bytes_(layout_.blocks.size() * kBlock * kKvHeads * kDim * 2),
        pools_(shape.layers * 2 * pool_bytes_),
        table_(random_floats(static_cast<size_t>((context + 1) * kDim), FloatType::kF32, 3)),
        norms_(random_floats(static_cast<size_t>((shape.layers + 1) * norms_of_layer()),
                             FloatType::kF32, 4)),
        x_{DeviceBytes(
               encode(random_floats(static_cast<size_t>(batch * shape.hidden), kBf16, 5), kBf16)),
           DeviceBytes(row_bytes(shape.hidden))},
        qkv_(row_bytes(shape.qkv_rows())),
        q_(row_bytes(shape.heads * kDim)),
        attended_(row_bytes(shape.heads * kDim)),
        inner_(row_bytes(shape.inner)),
        logits_(row_bytes(2 * kVocabulary)),
        scratch_(row_bytes(shape.inner)) {
    up_.batch.has_old_keys = true;
    up_.batch.few.max_count =
        most_attention_items(attention_, layout_, {.block_memory = cuda_traits().block_memory},
                             context)
            .few;
    check_cuda(cudaMemset(pools_.get(), 0, pools_.size()), "memset");
    const auto& [name, layers, hidden, heads, inner] = shape;
    for (int64_t i = 0; i < layers; ++i) {
      layers_.push_back({weight(shape.qkv_rows(), hidden), weight(hidden, heads * kDim),
                         weight(2 * inner, hidden, true), weight(hidden, inner)});
    }
    head_ = weight(kVocabulary, hidden);
  }

  // Microseconds of a step; `kinds` are the bits of what it has.
  double time(unsigned kinds) {
    return time_us(stream_, [&](CudaStream) { run(kinds); }, 2);
  }

 private:
  int64_t norms_of_layer() const { return 2 * shape_.hidden + 2 * kDim; }

  struct Matrix {
    CudaWeightLayout layout;
    std::unique_ptr<DeviceBytes> data = nullptr;
  };
  struct Layer {
    Matrix qkv, out, gate_up, down;
  };

  size_t row_bytes(int64_t columns) const { return static_cast<size_t>(batch_ * columns * 2); }
  std::vector<int64_t> slots() const {
    std::vector<int64_t> all;
    for (int i = 0; i < batch_; ++i) {
      const int64_t at = layout_.positions[i];
      all.push_back(layout_.block_table(i)[at / kBlock] * kBlock + at % kBlock);
    }
    return all;
  }
  static Matrix weight(int64_t n, int64_t k, bool interleaved = false) {
    Matrix m = {.layout = {.n = n, .k = k, .type = kBf16, .interleaved = interleaved}};
    m.data = std::make_unique<DeviceBytes>(static_cast<size_t>(m.layout.bytes()));
    check_cuda(cudaMemset(m.data->get(), 0x3C, m.data->size()), "memset");
    return m;
  }

  void linear(const Matrix& m, const DeviceBytes& x, const DeviceBytes& y, const float* norm,
              const DeviceBytes* residual, FloatType out_type = kBf16) {
    LinearCudaParams p = {.layout = m.layout,
                          .out_type = out_type,
                          .rows = batch_,
                          .x = x.get(),
                          .w = m.data->get(),
                          .norm_weight = norm,
                          .norm_eps = 1e-6f,
                          .residual = residual ? residual->get() : nullptr,
                          .y = y.get(),
                          .scratch = scratch_.get()};
    linear_cuda(stream_, p);
  }

  void run(unsigned kinds) {
    const auto has = [&](Kind kind) { return (kinds >> kind & 1u) != 0; };
    for (int64_t i = 0; i < shape_.layers; ++i) {
      const Layer& layer = layers_[i];
      const float* norm = norms_.as<float>() + i * norms_of_layer();
      if (has(kQkv)) linear(layer.qkv, x_[0], qkv_, norm, nullptr);
      char* keys = pools_.as<char>() + i * 2 * pool_bytes_;
      if (has(kRope)) rope(norm + 2 * shape_.hidden, keys);
      if (has(kAttention)) {
        AttentionKernelParams p = attention_;
        p.q = q_.get();
        p.k = keys;
        p.v = keys + pool_bytes_;
        p.out = attended_.get();
        paged_attention_cuda(stream_, p, up_.batch);
      }
      if (has(kOut)) linear(layer.out, attended_, x_[1], nullptr, &x_[0]);
      if (has(kGateUp)) linear(layer.gate_up, x_[1], inner_, norm + shape_.hidden, nullptr);
      if (has(kDown)) linear(layer.down, inner_, x_[0], nullptr, &x_[1]);
    }
    if (has(kHead))
      linear(head_, x_[0], logits_, norms_.as<float>() + shape_.layers * norms_of_layer(), nullptr,
             FloatType::kF32);
  }

  void rope(const float* norms, char* keys) {
    qk_norm_rope_kv_write_cuda(stream_,
                               {.type = kBf16,
                                .kv_type = KvType::kBf16,
                                .heads = shape_.heads,
                                .kv_heads = kKvHeads,
                                .head_dim = kDim,
                                .row = shape_.qkv_rows(),
                                .rotary_dim = kDim,
                                .eps = 1e-6f,
                                .positions = positions_.as<int32_t>(),
                                .slots = slots_.as<int64_t>(),
                                .cos_sin = table_.as<float>(),
                                .q_norm = norms,
                                .k_norm = norms + kDim,
                                .qkv = qkv_.get(),
                                .q = q_.get(),
                                .k = keys,
                                .v = keys + pool_bytes_},
                               batch_);
  }

  CudaStream stream_;
  StepShape shape_;
  int batch_;
  BatchLayout layout_;
  AttentionKernelParams attention_;
  UploadedStep up_;
  DeviceBytes positions_, slots_;
  size_t pool_bytes_;
  DeviceBytes pools_, table_, norms_;
  DeviceBytes x_[2], qkv_, q_, attended_, inner_, logits_, scratch_;
  std::vector<Layer> layers_;
  Matrix head_;
};

}  // namespace

void bench_step(CudaStream stream) {
  constexpr unsigned kAll = (1u << kKinds) - 1;
  const struct {
    StepShape shape;
    int batch, context;
  } cases[] = {{kSmall, 1, 1024},
               {kSmall, 1, 8192},
               {kSmall, 8, 1024},
               {kSmall, 64, 1024},
               {kLarge, 1, 1024}};
  for (const auto& [shape, batch, context] : cases) {
    StepBench bench(stream, shape, batch, context);
    const double all = bench.time(kAll);
    std::printf("step, %s batch %d context %d  %8.1f us, weights of %.2f GB: %.2f TB/s\n",
                shape.name, batch, context, all, 1e-9 * static_cast<double>(shape.weight_bytes()),
                1e-6 * static_cast<double>(shape.weight_bytes()) / all);
    for (int kind = 0; kind < kKinds; ++kind) {
      const double without = bench.time(kAll & ~(1u << kind)), alone = bench.time(1u << kind);
      const double times = kind == kHead ? 1 : static_cast<double>(shape.layers);
      std::printf("  %-18s adds %6.2f us each, alone %6.2f\n", kNames[kind],
                  (all - without) / times, alone / times);
    }
  }
}

}  // namespace quire::ops::cuda_test
