#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "bench/ops/op_bench.h"
#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/gated_delta_rule/gated_delta_rule.h"
#include "ops/gated_rms_norm/gated_rms_norm.h"

namespace quire::bench {
namespace {

constexpr int kKeyHeads = 16, kTaps = 4;
constexpr int64_t kPoolBytes = int64_t{1} << 30;  // no cache holds it

// A layer of Qwen3.5 or Qwen3-Next; `batch` sequences of `count` new tokens each.
struct GdnCase {
  int heads, dim, batch, count;

  int key_heads() const { return std::min(kKeyHeads, heads); }
  int width() const { return (2 * key_heads() + heads) * dim; }
  double rows() const { return double{1} * batch * count; }
  std::string name(const std::string& op) const {
    return op + "/H=" + std::to_string(heads) + "/D=" + std::to_string(dim) +
           (count == 1 ? "/B=" + std::to_string(batch) : "/T=" + std::to_string(count));
  }
};

// Bytes read and written per second when memory is scaled in place: what one token's update of
// states could reach at best.
double in_place_rate(const ops::Context& context, mx::array& memory) {
  using Four = float __attribute__((vector_size(16)));
  auto* data = reinterpret_cast<Four*>(memory.data<float>());
  const auto size = static_cast<int64_t>(memory.size() / 4);
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    const TimePoint start = Clock::now();
    ops::parallel_blocks(*context.pool, size, int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] *= 0.99f;
    });
    best = std::min(best, seconds_since(start));
  }
  return 2.0 * static_cast<double>(memory.nbytes()) / best;
}

class GdnBench {
 public:
  explicit GdnBench(OpBench& bench) : bench_(bench) {}

  void run(const GdnCase& c) {
    if (bench_.wants(c.name("causal_conv1d"))) convolve(c);
    if (bench_.wants(c.name("gated_delta_rule"))) advance(c);
  }

  void normalise(int rows) {
    constexpr int kHeads = 16, kDim = 128, kWidth = kHeads * kDim;
    const std::string name = "gated_rms_norm/T=" + std::to_string(rows);
    if (!bench_.wants(name)) return;
    const mx::array x = random_bf16({rows, kHeads, kDim}), z = random_bf16({rows, 2 * kWidth});
    const mx::array weight = mx::ones({kDim});
    mx::eval(weight);
    const double bytes = 6.0 * rows * kWidth;
    bench_.measure(name, {.bytes = bytes, .in_cache = bytes < (1 << 20)},
                   [&](int64_t) -> std::vector<mx::array> {
                     return {ops::gated_rms_norm(bench_.context(), x,
                                                 {.matrix = z, .first = kWidth}, weight, 1e-6f)};
                   });
  }

 private:
  // States of the layer, committed; other slots in each run, so that they are met cold.
  ops::RecurrentState& pool_of(const GdnCase& c) {
    const ops::RecurrentStateShape shape = {.conv_dim = c.width(),
                                            .conv_kernel = kTaps,
                                            .v_heads = c.heads,
                                            .v_dim = c.dim,
                                            .k_dim = c.dim};
    if (pool_ && shape == shape_) return *pool_;
    pool_.reset();
    pool_ = ops::make_recurrent_state(kPoolBytes / shape.recurrent_bytes(), shape, mx::bfloat16);
    shape_ = shape;
    mx::eval(pool_->recurrent, pool_->conv);
    for (mx::array* array : {&pool_->recurrent, &pool_->conv})
      std::memset(array->data<char>(), 0, array->nbytes());
    if (in_place_rate_ == 0) {
      in_place_rate_ = in_place_rate(bench_.context(), pool_->recurrent);
      std::printf("  memory scaled in place: %.1f GB/s, read and written\n", in_place_rate_ / 1e9);
    }
    return *pool_;
  }

  // Sequences that go on, in the slots after those of the run before.
  ops::BatchLayoutPtr layout_of(const GdnCase& c, int64_t run) const {
    auto layout = std::make_shared<ops::BatchLayout>();
    layout->num_sequences = c.batch;
    layout->num_tokens = int64_t{c.batch} * c.count;
    layout->cu_seqlens = {0};
    for (int s = 0; s < c.batch; ++s) {
      for (int t = 0; t < c.count; ++t) layout->positions.push_back(t + 1);
      layout->cu_seqlens.push_back((s + 1) * c.count);
      layout->state_slots.push_back(
          static_cast<int32_t>((run * c.batch + s) % pool_->recurrent.shape(0)));
    }
    return layout;
  }

  void convolve(const GdnCase& c) {
    ops::RecurrentState& pool = pool_of(c);
    const int rows = c.batch * c.count;
    const mx::array x = random_bf16({rows, c.width()});
    const mx::array weight = mx::full({kTaps, c.width()}, 0.25f);
    mx::eval(weight);
    const double bytes = 2.0 * c.width() * (2.0 * rows + 2.0 * (kTaps - 1) * c.batch);
    bench_.measure(c.name("causal_conv1d"), {.bytes = bytes, .bytes_per_second = in_place_rate_},
                   [&](int64_t run) -> std::vector<mx::array> {
                     auto result = ops::causal_conv1d(bench_.context(), x, weight, pool.conv,
                                                      layout_of(c, run));
                     pool.conv = result.state;
                     return {result.y, result.state};
                   });
  }

  void advance(const GdnCase& c) {
    ops::RecurrentState& pool = pool_of(c);
    const int rows = c.batch * c.count;
    const mx::array qkv = random_bf16({rows, c.width()});
    const mx::array gates = random_bf16({rows, 2 * c.heads});
    const mx::array a_log = mx::zeros({c.heads}), dt_bias = mx::zeros({c.heads});
    mx::eval(a_log, dt_bias);
    const double elements = double{1} * c.heads * c.dim * c.dim;
    bench_.measure(c.name("gated_delta_rule"),
                   {.bytes = 8 * elements * c.batch,
                    .flops = 7 * elements * rows,
                    .bytes_per_second = in_place_rate_,
                    .in_float32 = true},
                   [&](int64_t run) -> std::vector<mx::array> {
                     auto result = ops::gated_delta_rule(bench_.context(), qkv,
                                                         {.projected = gates,
                                                          .a_column = 0,
                                                          .b_column = c.heads,
                                                          .a_log = a_log,
                                                          .dt_bias = dt_bias},
                                                         pool.recurrent, layout_of(c, run));
                     pool.recurrent = result.state;
                     return {result.y, result.state};
                   });
  }

  OpBench& bench_;
  std::optional<ops::RecurrentState> pool_;
  ops::RecurrentStateShape shape_;
  double in_place_rate_ = 0;
};

}  // namespace

void bench_gdn(OpBench& bench) {
  GdnBench gdn(bench);
  for (const auto& [heads, dim] : {std::pair(16, 128), {32, 128}, {16, 64}, {16, 256}}) {
    for (const int batch : {1, 8, 32, 64}) gdn.run({heads, dim, batch, 1});
    for (const int tokens : {64, 512, 2048}) gdn.run({heads, dim, 1, tokens});
  }
  for (const int rows : {1, 32, 2048}) gdn.normalise(rows);
}

}  // namespace quire::bench
