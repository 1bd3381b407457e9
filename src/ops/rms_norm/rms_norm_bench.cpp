#include "bench/ops/op_bench.h"
#include "bench/random.h"
#include "ops/gated_activation/gated_activation.h"
#include "ops/kv_write/kv_write.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample.h"

namespace quire::bench {
namespace {

constexpr int kHidden = 1024, kIntermediate = 3072, kHeads = 16, kKvHeads = 8, kDim = 128;
constexpr int kVocab = 151936;
constexpr int kRows[] = {1, 32, 2048};
constexpr double kCacheBytes = 1 << 20;  // less than this a model finds in its caches

OpWork work_of(double bytes) { return {.bytes = bytes, .in_cache = bytes < kCacheBytes}; }

void bench_elementwise(OpBench& bench, int rows) {
  const std::string size = "/T=" + std::to_string(rows);
  const double bytes = 2.0 * rows;  // of a column in bfloat16
  const mx::array weight = mx::ones({kHidden});
  const mx::array x = random_bf16({rows, kHidden});
  mx::eval(weight);
  if (bench.wants("rms_norm" + size))
    bench.measure("rms_norm" + size, work_of(2 * bytes * kHidden),
                  [&](int64_t) -> std::vector<mx::array> {
                    return {ops::rms_norm(bench.context(), x, weight, 1e-6f)};
                  });
  if (bench.wants("add_rms_norm" + size))
    bench.measure("add_rms_norm" + size, work_of(4 * bytes * kHidden),
                  [&](int64_t) -> std::vector<mx::array> {
                    const auto [y, sum] = ops::add_rms_norm(bench.context(), x, x, weight, 1e-6f);
                    return {y, sum};
                  });
  const mx::array gate_up = random_bf16({rows, 2 * kIntermediate});
  if (bench.wants("gated_activation" + size))
    bench.measure("gated_activation" + size, work_of(3 * bytes * kIntermediate),
                  [&](int64_t) -> std::vector<mx::array> {
                    return {ops::gated_activation(bench.context(), gate_up)};
                  });
}

// One prompt of `rows` tokens.
ops::BatchLayoutPtr prompt_layout(int rows) {
  auto layout = std::make_shared<ops::BatchLayout>();
  layout->num_tokens = rows;
  layout->num_sequences = 1;
  layout->block_size = 16;
  for (int i = 0; i < rows; ++i) {
    layout->positions.push_back(i);
    layout->slot_mapping.push_back(i);
  }
  layout->cu_seqlens = {0, rows};
  layout->seq_lens = {rows};
  for (int b = 0; b * 16 < rows; ++b) layout->blocks.push_back(b);
  layout->block_offsets = {0, static_cast<int64_t>(layout->blocks.size())};
  return layout;
}

void bench_positions(OpBench& bench, int rows) {
  const std::string size = "/T=" + std::to_string(rows);
  const double bytes = 2.0 * rows;
  const auto layout = prompt_layout(rows);
  if (bench.wants("rope" + size)) {
    const mx::array q = random_bf16({rows, kHeads, kDim});
    const auto table = ops::make_rope_table({.rotary_dim = kDim, .theta = 1e6}, 4096);
    bench.measure("rope" + size, work_of(2 * bytes * kHeads * kDim),
                  [&](int64_t) -> std::vector<mx::array> {
                    return {ops::rope(bench.context(), q, layout, table)};
                  });
  }
  if (bench.wants("kv_write" + size)) {
    const mx::array k = random_bf16({rows, kKvHeads, kDim});
    ops::PagedKv kv = ops::make_paged_kv(128, 16, kKvHeads, kDim, mx::bfloat16);
    bench.measure("kv_write" + size, work_of(4 * bytes * kKvHeads * kDim),
                  [&](int64_t) -> std::vector<mx::array> {
                    kv = ops::kv_write(bench.context(), k, k, kv, layout);
                    return {kv.k, kv.v};
                  });
  }
}

struct SampleCase {
  const char* name;
  ops::SampleRow row;
};

// Logits spread as a language model's: some hundred tokens matter.
void bench_sampler(OpBench& bench, int rows) {
  const SampleCase cases[] = {
      {"greedy", {}},
      {"top_k=50,top_p=0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}},
      {"top_p=0.9", {.temperature = 0.8f, .top_p = 0.9f}}};
  std::optional<mx::array> logits;
  for (const SampleCase& c : cases) {
    const std::string name = std::string("sample/") + c.name + "/R=" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    if (!logits) {
      Random random(3, 0);
      std::vector<float> values(static_cast<size_t>(rows) * kVocab);
      for (float& value : values) value = static_cast<float>(3 * random.normal());
      logits = mx::array(values.data(), {rows, kVocab}, mx::float32);
    }
    auto params = std::make_shared<std::vector<ops::SampleRow>>(rows, c.row);
    for (int r = 0; r < rows; ++r) (*params)[r].position = r;
    bench.measure(name, work_of(4.0 * rows * kVocab), [&](int64_t) -> std::vector<mx::array> {
      const auto out = ops::sample(bench.context(), *logits, params, std::nullopt);
      return {out.tokens, out.logprobs, out.ranks, out.top_ids, out.top_logprobs};
    });
  }
}

}  // namespace

void bench_rows(OpBench& bench) {
  for (const int rows : kRows) bench_elementwise(bench, rows);
  for (const int rows : kRows) bench_positions(bench, rows);
  for (const int rows : {1, 32}) bench_sampler(bench, rows);
}

}  // namespace quire::bench
