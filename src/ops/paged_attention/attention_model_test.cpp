#include "base/parallel.h"
#include "ops/cpu/half.h"
#include "ops/paged_attention/attention_test_util.h"
#include "ops/runtime/shape_check.h"

// The arithmetic of the bits contract, one operation at a time: any kernel with fused multiply-adds
// must give these bits, so that one can replace another.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kLog2E = 1.44269504088896340736f;

float power_of_two(float x) {
  if (x < -125.0f) return 0.0f;
  const float n = std::nearbyint(x), f = x - n;
  float y = 0x1.41fbbcp-13f;
  for (const float c :
       {0x1.5f3e54p-10f, 0x1.3b2d4cp-7f, 0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e43p-1f, 1.0f})
    y = std::fma(y, f, c);
  return y * std::ldexp(1.0f, static_cast<int>(n));
}

float hyperbolic_tangent(float x) {
  const float z = x * x;
  if (std::abs(x) < 0.625f) {
    float y = -5.70498872745e-3f;
    for (const float c :
         {2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f})
      y = std::fma(y, z, c);
    return std::fma(y * z, x, x);
  }
  const float t = power_of_two(std::abs(x) * (-2.0f * kLog2E));
  return std::copysign((1.0f - t) / (1.0f + t), x);
}

// The sum over [begin, end) as linear() has it: per block of 32 a chain of the even and one of the
// odd; add(i, chain) is the chain with product i.
template <class Product>
float chained(int begin, int end, const Product& add) {
  float sum = 0;
  for (int block = begin / 32; block * 32 < end; ++block) {
    float even = 0, odd = 0;
    for (int i = std::max(begin, block * 32); i < std::min(end, block * 32 + 32); ++i)
      (i % 2 == 0 ? even : odd) = add(i, i % 2 == 0 ? even : odd);
    sum += even + odd;
  }
  return sum;
}

// The same in the order of `vdpbf16ps`: one chain over pairs, the odd product of each first.
template <class Product>
float chained_pairs(int begin, int end, const Product& add) {
  float sum = 0;
  for (int i = begin / 2 * 2; i < end; i += 2) {
    if (i + 1 < end) sum = add(i + 1, sum);
    if (i >= begin) sum = add(i, sum);
  }
  return sum;
}

struct Model {
  const Heads& heads;
  const AttentionParams& params;
  FloatType type;
  const float *q, *k, *v;  // [H, D], [C, K, D], [C, K, Dv], already rounded to `type`
  int length;              // C
  bool pairs;              // the order of vdpbf16ps

  template <class Product>
  float sum_of(int begin, int end, const Product& add) const {
    return pairs ? chained_pairs(begin, end, add) : chained(begin, end, add);
  }

  // One query head at `position`.
  std::vector<float> attend(int head, int position) const {
    const bool capped = params.softcap > 0, biased = params.alibi_slopes.has_value();
    const float scale =
        static_cast<float>((capped || biased ? 1.0 : double{params.scale}) * 1.4426950408889634);
    const float slope = biased ? to_floats(*params.alibi_slopes)[head] : 0.0f;
    const int right = params.causal ? 0 : static_cast<int>(params.window_right);
    const int stop = right < 0 ? length : std::min(length, position + right + 1);
    const float inverse_cap =
        capped ? static_cast<float>(double{params.scale} / double{params.softcap}) : 0.0f;
    const int kv_head = head / (heads.heads / heads.kv_heads);
    const int step = static_cast<int>(params.window_step);
    const int first =
        std::max({0, step > 0 ? position - position % step : 0,
                  params.window_left < 0 ? 0 : position - static_cast<int>(params.window_left)});
    float peak = -std::numeric_limits<float>::infinity(), total = 0;
    if (params.sinks) peak = to_floats(*params.sinks)[head] * kLog2E, total = 1;
    std::vector<float> out(heads.value_dim, 0.0f);
    for (int chunk = first / 256 * 256; chunk < stop; chunk += 256) {
      const int begin = std::max(first, chunk), end = std::min(stop, chunk + 256);
      std::vector<float> p(256);
      for (int t = begin; t < end; ++t) {
        p[t - chunk] = sum_of(0, heads.dim, [&](int d, float sum) {
          return std::fma(k[(t * heads.kv_heads + kv_head) * heads.dim + d],
                          q[head * heads.dim + d], sum);
        });
        if (capped) p[t - chunk] = hyperbolic_tangent(p[t - chunk] * inverse_cap) * params.softcap;
        if (biased)
          p[t - chunk] = std::fma(-slope, std::abs(static_cast<float>(position - t)),
                                  p[t - chunk] * (capped ? 1.0f : params.scale));
      }
      const float m = *std::max_element(&p[begin - chunk], &p[0] + (end - chunk));
      float lanes[16] = {};
      for (int t = begin; t < end; ++t) {
        const float probability = power_of_two((p[t - chunk] - m) * scale);
        lanes[t % 16] += probability;
        p[t - chunk] = round_through(probability, type);
      }
      for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      const float now = m * scale, next = std::max(peak, now);
      const float keep = power_of_two(peak - next), add = power_of_two(now - next);
      for (int d = 0; d < heads.value_dim; ++d) {
        const float sum = sum_of(begin, end, [&](int t, float chain) {
          return std::fma(v[(t * heads.kv_heads + kv_head) * heads.value_dim + d], p[t - chunk],
                          chain);
        });
        out[d] = std::fma(sum, add, out[d] * keep);
      }
      total = std::fma(lanes[0], add, total * keep);
      peak = next;
    }
    for (float& x : out) x = round_through(x / total, type);
    return out;
  }
};

TEST(PagedAttentionBits, AreThoseOfTheScalarModel) {
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 40, .value_dim = 24};
  const int length = 600;
  std::vector<float> sinks = {0.0f, 1.0f, -2.0f, 3.0f, 0.5f, -60.0f};
  for (const auto& isa : isas_to_test()) {
    if (isa == "portable") continue;  // has no fused multiply-add
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Sequences sequences(heads, dtype, {length});
      const Step step = sequences.step({{0, 0, length}}, {.block_size = length, .spare_blocks = 0});
      const auto q = to_floats(step.q), k = to_floats(step.kv.k), v = to_floats(step.kv.v);
      for (const AttentionParams& params :
           {AttentionParams{.scale = 0.158f}, AttentionParams{.scale = 0.3f, .window_left = 290},
            AttentionParams{.scale = 0.2f, .causal = false},
            AttentionParams{.scale = 0.25f, .window_step = 290},
            AttentionParams{.scale = 0.2f,
                            .window_left = 70,
                            .window_right = 33,
                            .causal = false,
                            .softcap = 3.0f,
                            .alibi_slopes = slopes_of(heads.heads)},
            AttentionParams{.scale = 0.2f, .alibi_slopes = slopes_of(heads.heads)},
            AttentionParams{.scale = 0.9f,
                            .softcap = 2.0f,
                            .sinks = mx::array(sinks.begin(), {heads.heads})}}) {
        const Context context = make_context(2);
        const auto out = to_floats(attend(context, step, params));
        const char* const kernel = attention_kernel(dtype);
        EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, kernel));
        const DenormalsAreZero as_in_kernels;
        for (const int position : {0, 1, 30, 31, 32, 255, 256, 300, 511, 512, 599}) {
          const Model model{heads,
                            params,
                            check_float("", "", dtype),
                            q.data() + int64_t{position} * heads.heads * heads.dim,
                            k.data(),
                            v.data(),
                            length,
                            kernel == std::string("cpu_avx512_bf16")};
          for (int head = 0; head < heads.heads; ++head) {
            const auto expected = model.attend(head, position);
            for (int d = 0; d < heads.value_dim; ++d)
              ASSERT_EQ(out[(position * heads.heads + head) * heads.value_dim + d], expected[d])
                  << isa << " " << dtype_name(dtype) << " position " << position << " head " << head
                  << " d " << d << " softcap " << params.softcap;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
