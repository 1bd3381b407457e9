#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

#include <numeric>

#include "ops/layout/kv_test_util.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_reference.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kBlockSize = 8, kMaxPositions = 500;

struct Shape {
  int heads = 4, kv_heads = 2, dim = 64, rotary = 64;
};

BatchLayoutPtr layout_of(int tokens) { return scattered_layout(tokens, kBlockSize, kMaxPositions); }

PagedKv pool(const Shape& s, mx::Dtype dtype, KvStorage storage = KvStorage::kAuto) {
  if (storage != KvStorage::kAuto)
    return filled(make_paged_kv(64, kBlockSize, s.kv_heads, s.dim, dtype, storage));
  return {random_array({64, kBlockSize, s.kv_heads, s.dim}, dtype, 1),
          random_array({64, kBlockSize, s.kv_heads, s.dim}, dtype, 2)};
}

// The hand-written kernel has the same bits as the others.
const char* kernel_of(const Shape& s, mx::Dtype dtype) {
  if (on_cuda()) return "cuda";
  const bool special = cpu_isa() == CpuIsa::kAmx || cpu_isa() == CpuIsa::kAvx512Bf16;
  return special && dtype == mx::bfloat16 && s.dim % 32 == 0 && s.rotary % 64 == 0
             ? "cpu_avx512_bf16"
             : cpu_kernel_name();
}

HeadNorms norms_of(const Shape& s, bool q, bool k) {
  HeadNorms norms{.q = std::nullopt, .k = std::nullopt, .eps = 1e-6f};
  if (q) norms.q = random_array({s.dim}, mx::float32, 3);
  if (k) norms.k = random_array({s.dim}, mx::float32, 4);
  return norms;
}

mx::array projected(const Shape& s, int tokens, mx::Dtype dtype) {
  return random_array({tokens, (s.heads + 2 * s.kv_heads) * s.dim}, dtype, 5, 3.0f);
}

struct Bytes {
  std::vector<uint8_t> q, k, v, scales;
  bool operator==(const Bytes&) const = default;
};
Bytes bytes_of(const RotatedQueries& r) {
  mx::eval(r.q, r.kv.k, r.kv.v);
  Bytes bytes = {to_bytes(r.q), to_bytes(r.kv.k), to_bytes(r.kv.v), {}};
  if (r.kv.k_scale) {
    bytes.scales = to_bytes(*r.kv.k_scale);
    const auto values = to_bytes(*r.kv.v_scale);
    bytes.scales.insert(bytes.scales.end(), values.begin(), values.end());
  }
  return bytes;
}

Bytes fused(const Context& context, const Shape& s, int tokens, mx::Dtype dtype, bool q_norm,
            bool k_norm, KvStorage storage = KvStorage::kAuto) {
  return bytes_of(qk_norm_rope_kv_write(
      context, projected(s, tokens, dtype), norms_of(s, q_norm, k_norm), layout_of(tokens),
      make_rope_table({.rotary_dim = s.rotary}, kMaxPositions), pool(s, dtype, storage)));
}

Bytes composed(const Shape& s, int tokens, mx::Dtype dtype, bool q_norm, bool k_norm,
               KvStorage storage = KvStorage::kAuto) {
  return bytes_of(qk_norm_rope_kv_write_reference(
      make_context(1), projected(s, tokens, dtype), norms_of(s, q_norm, k_norm), layout_of(tokens),
      make_rope_table({.rotary_dim = s.rotary}, kMaxPositions), pool(s, dtype, storage)));
}

TEST(QkNormRopeKvWrite, IsTheOpsOneAfterTheOther) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Shape& s :
           {Shape{}, Shape{16, 8, 128, 128}, Shape{3, 1, 80, 32}, Shape{5, 5, 40, 24},
            Shape{8, 1, 256, 64}, Shape{3, 2, 96, 64}, Shape{70, 40, 64, 64}, Shape{2, 1, 6, 2}}) {
        for (const auto& [q, k] :
             {std::pair(true, true), {false, false}, {true, false}, {false, true}}) {
          const Context context = make_context(2);
          EXPECT_TRUE(fused(context, s, 13, dtype, q, k) == composed(s, 13, dtype, q, k))
              << isa << " " << dtype_name(dtype) << " D " << s.dim << " norms " << q << k;
          EXPECT_TRUE(kernel_ran(context, "qk_norm_rope_kv_write", 1, kernel_of(s, dtype)));
        }
      }
    }
  }
}

// One head of k by hand, in float64, for norms on either side of the rotation.
std::vector<double> by_hand(const std::vector<float>& x, const std::vector<float>& weight,
                            int position, bool follow_rope) {
  const size_t half = x.size() / 2;
  std::vector<double> y(x.begin(), x.end());
  const auto norm = [&] {
    double squares = 0;
    for (const double v : y) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(y.size()) + 1e-6);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= scale * weight[i];
  };
  if (!follow_rope) norm();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * std::pow(10000.0, -static_cast<double>(i) / half);
    const double a = y[i], b = y[half + i];
    y[i] = a * std::cos(angle) - b * std::sin(angle);
    y[half + i] = b * std::cos(angle) + a * std::sin(angle);
  }
  if (follow_rope) norm();
  return y;
}

void expect_heads_by_hand(const Context& context, bool follow_rope) {
  const Shape s{2, 1, 32, 32};
  constexpr int kTokens = 9;
  HeadNorms norms = norms_of(s, true, true);
  norms.follow_rope = follow_rope;
  const mx::array qkv = projected(s, kTokens, mx::float32);
  const auto layout = layout_of(kTokens);
  const RotatedQueries out = qk_norm_rope_kv_write(
      context, qkv, norms, layout, make_rope_table({.rotary_dim = 32}, kMaxPositions),
      pool(s, mx::float32));
  const auto x = to_floats(qkv), q = to_floats(out.q), k = to_floats(out.kv.k);
  for (int t = 0; t < kTokens; ++t) {
    for (int head = 0; head < 3; ++head) {
      const float* from = &x[(t * 4 + head) * 32];
      const int64_t slot = layout->slot_mapping[t];
      if (head == 2 && slot < 0) continue;
      const float* found = head < 2 ? &q[(t * 2 + head) * 32] : &k[slot * 32];
      const auto expected = by_hand({from, from + 32}, to_floats(head < 2 ? *norms.q : *norms.k),
                                    layout->positions[t], follow_rope);
      for (int d = 0; d < 32; ++d)
        ASSERT_NEAR(found[d], expected[d], 2e-4) << "token " << t << " head " << head << " d " << d;
    }
  }
}

TEST(QkNormRopeKvWrite, TheReferenceMatchesFloat64WithNormsOnEitherSide) {
  Context context = make_context(1);
  context.use_reference = true;
  for (const bool follow_rope : {false, true}) expect_heads_by_hand(context, follow_rope);
}

// In the kernels, too, bit for bit the ops one after the other.
TEST(QkNormRopeKvWrite, NormsMayFollowTheRotation) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    expect_heads_by_hand(make_context(2), true);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
        for (const Shape& s : {Shape{}, Shape{16, 8, 128, 128}, Shape{3, 1, 80, 32}}) {
          for (const auto& [q, k] : {std::pair(true, true), {true, false}, {false, true}}) {
            const Context context = make_context(2);
            HeadNorms norms = norms_of(s, q, k);
            norms.follow_rope = true;
            const auto run = [&](const auto& op) {
              return bytes_of(op(context, projected(s, 13, dtype), norms, layout_of(13),
                                 make_rope_table({.rotary_dim = s.rotary}, kMaxPositions),
                                 pool(s, dtype, storage)));
            };
            EXPECT_TRUE(run(qk_norm_rope_kv_write) == run(qk_norm_rope_kv_write_reference))
                << dtype_name(dtype) << " D " << s.dim << " norms " << q << k;
            EXPECT_TRUE(kernel_ran(context, "qk_norm_rope_kv_write", 1,
                                   on_cuda() ? "cuda" : cpu_kernel_name()));
          }
        }
      }
    }
  }
}

// Gates behind v are left alone: with and without them the rest is the same.
TEST(QkNormRopeKvWrite, LeavesGatesAlone) {
  const Shape s{4, 2, 64, 16};
  constexpr int kTokens = 7;
  const mx::array qkv = projected(s, kTokens, mx::bfloat16);
  const mx::array gates = random_array({kTokens, s.heads * s.dim}, mx::bfloat16, 9);
  const mx::array both = mx::contiguous(mx::concatenate({qkv, gates}, 1));
  HeadNorms norms = norms_of(s, true, true);
  norms.gate_heads = s.heads;
  const auto table = make_rope_table({.rotary_dim = s.rotary}, kMaxPositions);
  const Context context = make_context(1);
  const auto expected = fused(context, s, kTokens, mx::bfloat16, true, true);
  const auto layout = layout_of(kTokens);
  EXPECT_TRUE(bytes_of(qk_norm_rope_kv_write(context, both, norms, layout, table,
                                             pool(s, mx::bfloat16))) == expected);
  EXPECT_TRUE(bytes_of(qk_norm_rope_kv_write_reference(context, both, norms, layout, table,
                                                       pool(s, mx::bfloat16))) == expected);
  norms.gate_heads = 9;
  EXPECT_THROW(qk_norm_rope_kv_write(context, both, norms, layout, table, pool(s, mx::bfloat16)),
               std::invalid_argument);
}

TEST(QkNormRopeKvWrite, QuantisesAsKvWriteDoes) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const KvStorage storage : {KvStorage::kInt8, KvStorage::kFp8}) {
        for (const Shape& s : {Shape{}, Shape{16, 8, 128, 128}, Shape{3, 1, 80, 32}}) {
          const Context context = make_context(2);
          EXPECT_TRUE(fused(context, s, 13, dtype, true, true, storage) ==
                      composed(s, 13, dtype, true, true, storage))
              << isa << " " << dtype_name(dtype) << " D " << s.dim;
          EXPECT_TRUE(kernel_ran(context, "qk_norm_rope_kv_write", 1));
        }
      }
    }
  }
}

TEST(QkNormRopeKvWrite, AnyNumberOfTokensOnAnyNumberOfThreads) {
  const Shape s{8, 4, 64, 64};
  for (const int tokens : {0, 1, 2, 7, 31, 64, 300})
    for (const int threads : {1, 2, 3})
      EXPECT_TRUE(fused(make_context(threads), s, tokens, mx::bfloat16, true, true) ==
                  composed(s, tokens, mx::bfloat16, true, true))
          << tokens << " tokens, " << threads << " threads";
}

// More than caches hold: results go past them.
TEST(QkNormRopeKvWrite, ManyTokens) {
  const Shape s{32, 16, 256, 256};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(2);
    EXPECT_TRUE(fused(context, s, 200, mx::bfloat16, true, true) ==
                composed(s, 200, mx::bfloat16, true, true))
        << isa;
    EXPECT_TRUE(kernel_ran(context, "qk_norm_rope_kv_write", 1, kernel_of(s, mx::bfloat16)));
  }
}

// Every bfloat16 that is finite: denormals count as 0, squares of large ones overflow.
TEST(QkNormRopeKvWrite, EveryFiniteValue) {
  const Shape s{4, 2, 64, 64};
  std::vector<uint16_t> bits;
  for (uint32_t b = 0; b < 65536; ++b)
    if ((b & 0x7F80) != 0x7F80) bits.push_back(static_cast<uint16_t>(b));
  bits.resize(127 * 512, 0);
  const mx::array qkv(reinterpret_cast<const mx::bfloat16_t*>(bits.data()), {127, 512},
                      mx::bfloat16);
  for (const bool norm : {true, false}) {
    const auto run = [&](const auto& op) {
      return bytes_of(op(make_context(1), qkv, norms_of(s, norm, norm), layout_of(127),
                         make_rope_table({.rotary_dim = 64}, kMaxPositions),
                         pool(s, mx::bfloat16)));
    };
    EXPECT_TRUE(run(qk_norm_rope_kv_write) == run(qk_norm_rope_kv_write_reference)) << norm;
  }
}

TEST(QkNormRopeKvWrite, WritesInPlaceAndOnlyItsSlots) {
  const Shape s;
  const PagedKv before = pool(s, mx::bfloat16);
  const auto old = to_bytes(before.k);
  const void* address = before.k.data<char>();
  const RotatedQueries r = qk_norm_rope_kv_write(
      make_context(2), projected(s, 20, mx::bfloat16), norms_of(s, true, true), layout_of(20),
      make_rope_table({.rotary_dim = 64}, kMaxPositions), before);
  mx::eval(r.q, r.kv.k, r.kv.v);
  EXPECT_EQ(r.kv.k.data<char>(), address);
  const auto now = to_bytes(r.kv.k);
  const auto layout = layout_of(20);
  const size_t row = old.size() / 512;
  for (int64_t slot = 0; slot < 512; ++slot) {
    const bool written = std::find(layout->slot_mapping.begin(), layout->slot_mapping.end(),
                                   slot) != layout->slot_mapping.end();
    EXPECT_EQ(written, std::memcmp(&old[slot * row], &now[slot * row], row) != 0) << slot;
  }
}

TEST(QkNormRopeKvWrite, TheReferenceIsNear) {
  const Shape s;
  Context context = make_context(1);
  const auto run = [&] {
    return qk_norm_rope_kv_write(context, projected(s, 9, mx::float32), norms_of(s, true, true),
                                 layout_of(9), make_rope_table({.rotary_dim = 64}, kMaxPositions),
                                 pool(s, mx::float32));
  };
  const RotatedQueries kernel = run();
  mx::eval(kernel.q, kernel.kv.k);
  context.use_reference = true;
  const RotatedQueries reference = run();
  EXPECT_TRUE(near(kernel.q, reference.q, {.abs = 1e-5f, .rel = 1e-5f}));
  EXPECT_TRUE(near(kernel.kv.k, reference.kv.k, {.abs = 1e-5f, .rel = 1e-5f}));
  EXPECT_EQ(context.kernels->count("qk_norm_rope_kv_write", "reference"), 1);
}

TEST(QkNormRopeKvWrite, NamesTheArgumentThatDoesNotFit) {
  const Shape s;
  const auto refused = [&](const std::string& what, const mx::array& qkv, const HeadNorms& norms,
                           BatchLayoutPtr layout, int rotary = 64) {
    try {
      qk_norm_rope_kv_write(make_context(1), qkv, norms, layout,
                            make_rope_table({.rotary_dim = rotary}, kMaxPositions),
                            pool(s, mx::float32));
      ADD_FAILURE() << "accepted: " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  const HeadNorms norms = norms_of(s, true, true);
  refused("qkv is", projected(s, 4, mx::float16), norms, layout_of(4));
  refused("qkv has shape", projected(s, 5, mx::float32), norms, layout_of(4));
  refused("qkv has shape", mx::zeros({4, 256}), norms, layout_of(4));
  refused("qkv has shape", mx::zeros({4, 500}), norms, layout_of(4));
  refused("head_dim 64", projected(s, 4, mx::float32), norms, layout_of(4), 96);
  refused("norms.q", projected(s, 4, mx::float32), {.q = mx::zeros({32}), .k = {}}, layout_of(4));
  refused("norms.k", projected(s, 4, mx::float32), {.q = {}, .k = mx::zeros({64}, mx::bfloat16)},
          layout_of(4));
  auto far = std::make_shared<BatchLayout>(*layout_of(4));
  far->positions[2] = kMaxPositions;
  refused("position 500", projected(s, 4, mx::float32), norms, far);
}

}  // namespace
}  // namespace quire::ops
