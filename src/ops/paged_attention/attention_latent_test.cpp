#include <cmath>

#include "ops/paged_attention/attention_test_util.h"

// Latent attention: one row a token, for all heads, whose first elements are its value.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// DeepSeek's row of 512 latent and 64 rotated elements, and one that is no multiple of a tile.
constexpr std::pair<int, int> kRows[] = {{576, 512}, {40, 24}};
// Heads that one tile holds, that take two and three, and those of DeepSeek-V3.
constexpr int kGroups[] = {4, 16, 20, 29, 128};

Step latent(Step step, int value_dim) {
  step.kv = latent_kv(step.kv.k, step.kv.k_scale, value_dim);
  return step;
}

// The same rows with their values copied to a pool of their own.
Step copied(Step step, int value_dim) {
  mx::Shape end = step.kv.k.shape();
  end[3] = value_dim;
  mx::array values = mx::contiguous(mx::slice(step.kv.k, {0, 0, 0, 0}, end));
  mx::eval(values);
  step.kv.v = values;
  step.kv.v_scale = step.kv.k_scale;
  return step;
}

template <class Body>
void each_isa(const Body& body) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    SCOPED_TRACE(isa);
    const ForcedIsa forced(isa);
    body();
  }
}

void expect_equals_separate(const Heads& heads, KvStorage storage) {
  const Sequences sequences(heads, mx::bfloat16, {300, 260, 40}, 7, storage);
  const Step step = sequences.step({{0, 299, 1}, {1, 254, 6}, {2, 0, 40}}, {.order = 3});
  each_isa([&] {
    const Context context = make_context(2);
    const auto a = attend_with_lse(context, latent(step, heads.value_dim), plain(heads));
    const auto b = attend_with_lse(context, copied(step, heads.value_dim), plain(heads));
    EXPECT_TRUE(same_bits(a.out, b.out));
    EXPECT_TRUE(same_bits(a.lse, b.lse));
    EXPECT_TRUE(kernel_ran(context, "paged_attention", 2,
                           attention_kernel(mx::bfloat16, storage, heads.dim)));
  });
}

TEST(LatentAttention, EqualsSeparateValuesBitForBit) {
  for (const auto& [dim, value_dim] : kRows)
    for (const int group : kGroups)
      for (const auto storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
        if (on_emulator() && group != 4 && group != 20) continue;  // slow
        if (group == 128 && (dim != 576 || storage != KvStorage::kAuto)) continue;
        SCOPED_TRACE(std::to_string(dim) + " group " + std::to_string(group));
        expect_equals_separate({.heads = group, .kv_heads = 1, .dim = dim, .value_dim = value_dim},
                               storage);
      }
}

// One token's many heads are cut by chunks between threads, prompts by tokens.
TEST(LatentAttention, AnyCutIsTheSame) {
  each_isa([] {
    for (const mx::Dtype dtype : {mx::float32, mx::bfloat16})
      for (const auto storage : {KvStorage::kAuto, KvStorage::kInt8}) {
        const Heads heads{.heads = 29, .kv_heads = 1, .dim = 96, .value_dim = 64};
        const Sequences sequences(heads, dtype, {620}, 7, storage);
        AttentionParams params = plain(heads);
        params.sinks = mx::full({29}, 1.5f);
        const auto rows = [&](int threads, int first, int count) {
          const Step step = latent(sequences.step({{0, first, count}}, {.order = 5}), 64);
          return attend(make_context(threads), step, params);
        };
        const mx::array whole = rows(1, 0, 620);
        for (const int position : {0, 255, 256, 619})
          for (const int threads : {1, 2, 5})
            EXPECT_TRUE(
                same_bits(rows(threads, position, 1), rows_of(whole, position, position + 1)))
                << dtype_name(dtype) << " position " << position << " threads " << threads;
        EXPECT_TRUE(same_bits(rows(3, 500, 37), rows_of(whole, 500, 537)));
      }
  });
}

// Row `r` of an output in double, from the pool's values as they are.
std::vector<double> exact_row(const Step& step, int value_dim, double scale, int token, int head) {
  const std::vector<float> k = to_floats(step.kv.k), q = to_floats(step.q);
  const int dim = step.kv.k.shape(3), heads = step.q.shape(1), block = step.kv.k.shape(1);
  const int context = step.layout->positions[token] + 1;
  std::vector<double> scores, out(static_cast<size_t>(value_dim));
  const auto row = [&](int t) {
    return &k[(int64_t{step.layout->block_table(0)[t / block]} * block + t % block) * dim];
  };
  double peak = -1e300, sum = 0;
  for (int t = 0; t < context; ++t) {
    double score = 0;
    for (int d = 0; d < dim; ++d)
      score += double{row(t)[d]} * q[(int64_t{token} * heads + head) * dim + d];
    scores.push_back(score * scale);
    peak = std::max(peak, scores.back());
  }
  for (int t = 0; t < context; ++t) {
    const double p = std::exp(scores[t] - peak);
    sum += p;
    for (int d = 0; d < value_dim; ++d) out[d] += p * row(t)[d];
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST(LatentAttention, MatchesDoublePrecision) {
  each_isa([] {
    for (const mx::Dtype dtype : float_dtypes()) {
      const Heads heads{.heads = 20, .kv_heads = 1, .dim = 576, .value_dim = 512};
      const Sequences sequences(heads, dtype, {300});
      const Step step = latent(sequences.step({{0, 290, 10}}, {.order = 2}), 512);
      const AttentionParams params = plain(heads);
      const Context context = make_context(2);
      const std::vector<float> out = to_floats(attend(context, step, params));
      EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, attention_kernel(dtype)));
      // Probabilities are rounded to the dtype once, and so is the result; values stay below 5.
      const double bound = dtype == mx::float32 ? 1e-5 : 2 * unit_roundoff(dtype);
      for (const int token : {0, 9})
        for (const int head : {0, 15, 16, 19}) {
          const auto exact = exact_row(step, 512, params.scale, token, head);
          for (int d = 0; d < 512; ++d)
            ASSERT_NEAR(out[(int64_t{token} * 20 + head) * 512 + d], exact[d],
                        bound * (1 + std::abs(exact[d])))
                << dtype_name(dtype) << " token " << token << " head " << head << " d " << d;
        }
    }
  });
}

TEST(LatentAttention, PoolsHoldOneRowAToken) {
  const PagedKv kv = make_latent_kv(3, 16, 576, 512, mx::bfloat16, KvStorage::kInt8);
  EXPECT_EQ(kv.arrays().size(), 2);
  int64_t bytes = 0;
  for (const mx::array& pool : kv.arrays()) bytes += static_cast<int64_t>(pool.nbytes());
  EXPECT_EQ(bytes, 3 * 16 * latent_kv_token_bytes(576, mx::bfloat16, KvStorage::kInt8));
  EXPECT_EQ(latent_kv_token_bytes(576, mx::bfloat16, KvStorage::kAuto), 1152);
  EXPECT_EQ(kv.value_dim(), 512);
}

}  // namespace
}  // namespace quire::ops
