#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_metal.h"

#include "harness.h"
#include "launch.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Case {
  FloatType type;
  int heads, kv_heads, dim, rotary_dim, gates = 0;
  bool q_norm = true, k_norm = true, norms_follow = false;
};

constexpr int kTokens = 6, kPositions = 50, kSlots = 40;

// In float64, rounded to the type where the header says so.
struct Oracle {
  const Case& c;
  const std::vector<float>& cos_sin;

  void norm(std::vector<double>& head, const std::vector<float>& weight) const {
    double sum = 0;
    for (const double x : head) sum += x * x;
    const double scale = 1 / std::sqrt(sum / c.dim + 1e-6);
    for (int i = 0; i < c.dim; ++i)
      head[i] = round_through(static_cast<float>(head[i] * scale * weight[i]), c.type);
  }
  void turn(std::vector<double>& head, int position) const {
    const int half = c.rotary_dim / 2;
    const float* row = &cos_sin[size_t(position) * c.rotary_dim];
    for (int i = 0; i < half; ++i) {
      const double a = head[i], b = head[i + half];
      head[i] = round_through(static_cast<float>(a * row[i] - b * row[half + i]), c.type);
      head[i + half] = round_through(static_cast<float>(b * row[i] + a * row[half + i]), c.type);
    }
  }
  std::vector<double> head(const float* x, const std::vector<float>* weight, int position) const {
    std::vector<double> values(x, x + c.dim);
    if (weight != nullptr && !c.norms_follow) norm(values, *weight);
    turn(values, position);
    if (weight != nullptr && c.norms_follow) norm(values, *weight);
    return values;
  }
};

// [kPositions][2][rotary_dim / 2]: cosines, then sines.
std::vector<float> rope_table(int rotary_dim) {
  std::vector<float> table;
  for (int position = 0; position < kPositions; ++position)
    for (const bool is_sine : {false, true})
      for (int i = 0; i < rotary_dim / 2; ++i) {
        const double angle = position * std::pow(10000.0, -2.0 * i / rotary_dim);
        table.push_back(static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle)));
      }
  return table;
}

void check(const Case& c) {
  const int row = (c.heads + 2 * c.kv_heads + c.gates) * c.dim;
  const auto qkv = random_floats(size_t(kTokens) * row, c.type, 1);
  auto q_norm = random_floats(c.dim, FloatType::kF32, 2);
  auto k_norm = random_floats(c.dim, FloatType::kF32, 3);
  std::vector<float> cos_sin = rope_table(c.rotary_dim);
  std::vector<int32_t> positions = {3, 49, 0, 17, 18, 30};
  std::vector<int64_t> slots = {7, 0, -1, 39, 20, 21};
  QkNormRopeKvWriteParams params = {.type = c.type,
                                    .kv_type = kv_type_of(c.type),
                                    .heads = c.heads,
                                    .kv_heads = c.kv_heads,
                                    .head_dim = c.dim,
                                    .row = row,
                                    .rotary_dim = c.rotary_dim,
                                    .eps = 1e-6f,
                                    .norms_follow = c.norms_follow};
  if (c.q_norm) params.q_norm = q_norm.data();
  if (c.k_norm) params.k_norm = k_norm.data();
  QkNormRopeKvWriteMetal write = qk_norm_rope_kv_write_metal(params, kTokens);
  EXPECT_EQ(write.call.kernel, std::string("qk_norm_rope_kv_write_") + name(c.type));
  const auto old = random_floats(size_t(kSlots) * c.kv_heads * c.dim, c.type, 4);
  auto qkv_bytes = encode(qkv, c.type), k_pool = encode(old, c.type), v_pool = k_pool;
  auto q = unwritten(size_t(kTokens) * c.heads * c.dim, c.type);
  Launch launch = launch_of(write.call, {{kQkRopeParams, buffer_of(write.params)},
                                         {kQkRopePositions, buffer_of(positions)},
                                         {kQkRopeSlots, buffer_of(slots)},
                                         {kQkRopeCosSin, buffer_of(cos_sin)},
                                         {kQkRopeQkv, buffer_of(qkv_bytes)},
                                         {kQkRopeQ, buffer_of(q)},
                                         {kQkRopeKeyPool, buffer_of(k_pool)},
                                         {kQkRopeValuePool, buffer_of(v_pool)}});
  if (c.q_norm) launch.buffers[kQkRopeQNorm] = buffer_of(q_norm);
  if (c.k_norm) launch.buffers[kQkRopeKNorm] = buffer_of(k_norm);
  run_in_all_orders(launch);

  const Oracle oracle = {c, cos_sin};
  std::vector<double> want_q, want_k(old.begin(), old.end());
  std::vector<float> want_v = old;
  for (int t = 0; t < kTokens; ++t) {
    const float* x = &qkv[size_t(t) * row];
    for (int h = 0; h < c.heads; ++h) {
      const auto head = oracle.head(x + h * c.dim, c.q_norm ? &q_norm : nullptr, positions[t]);
      want_q.insert(want_q.end(), head.begin(), head.end());
    }
    for (int h = 0; h < c.kv_heads && slots[t] >= 0; ++h) {
      const float* k = x + (c.heads + h) * c.dim;
      const auto head = oracle.head(k, c.k_norm ? &k_norm : nullptr, positions[t]);
      const size_t to = size_t(slots[t] * c.kv_heads + h) * c.dim;
      std::copy(head.begin(), head.end(), want_k.begin() + to);
      std::copy_n(k + c.kv_heads * c.dim, c.dim, want_v.begin() + to);
    }
  }
  // Two roundings, each of which may fall to the other side.
  const double bound = 4 * rounding(c.type) + 1e-6;
  expect_near(decode(q, c.type), want_q, bound, 0.5);
  expect_near(decode(k_pool, c.type), want_k, bound, 0.5);
  EXPECT_TRUE(decode(v_pool, c.type) == want_v);
}

TEST(MetalQkNormRopeKvWrite, AgreesWithFloat64) {
  for (const FloatType type : kTypes) {
    check({type, 4, 2, 64, 64});
    check({.type = type, .heads = 3, .kv_heads = 1, .dim = 40, .rotary_dim = 20, .gates = 2});
    check({.type = type,
           .heads = 2,
           .kv_heads = 2,
           .dim = 128,
           .rotary_dim = 128,
           .q_norm = false,
           .k_norm = false});
    check({.type = type,
           .heads = 2,
           .kv_heads = 1,
           .dim = 256,
           .rotary_dim = 64,
           .norms_follow = true});
    check({.type = type, .heads = 5, .kv_heads = 1, .dim = 8, .rotary_dim = 2, .q_norm = false});
  }
  check({FloatType::kBf16, 1, 1, 1024, 1024});
}

// Whatever else is in the call: each token alone has the bits that it has among others.
TEST(MetalQkNormRopeKvWrite, RowsHaveTheirBitsAlone) {
  constexpr int kDim = 96, kRow = 4 * kDim;
  const auto qkv = random_floats(3 * kRow, FloatType::kF32, 1);
  auto norm = random_floats(kDim, FloatType::kF32, 2);
  auto cos_sin = random_floats(size_t(4) * kDim, FloatType::kF32, 3);
  const auto queries = [&](int first, int count) {
    std::vector<float> x(qkv.begin() + first * kRow, qkv.begin() + (first + count) * kRow);
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int t = first; t < first + count; ++t) {
      positions.push_back(t + 1);
      slots.push_back(2 - t);
    }
    const QkNormRopeKvWriteParams params = {.heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = kDim,
                                            .row = kRow,
                                            .rotary_dim = kDim,
                                            .eps = 1e-5f,
                                            .q_norm = norm.data(),
                                            .k_norm = norm.data()};
    QkNormRopeKvWriteMetal write = qk_norm_rope_kv_write_metal(params, count);
    std::vector<float> q(count * 2 * kDim), k(3 * kDim), v(3 * kDim);
    run(launch_of(write.call, {{kQkRopeParams, buffer_of(write.params)},
                               {kQkRopePositions, buffer_of(positions)},
                               {kQkRopeSlots, buffer_of(slots)},
                               {kQkRopeCosSin, buffer_of(cos_sin)},
                               {kQkRopeQNorm, buffer_of(norm)},
                               {kQkRopeKNorm, buffer_of(norm)},
                               {kQkRopeQkv, buffer_of(x)},
                               {kQkRopeQ, buffer_of(q)},
                               {kQkRopeKeyPool, buffer_of(k)},
                               {kQkRopeValuePool, buffer_of(v)}}));
    return q;
  };
  const auto all = queries(0, 3);
  for (int t = 0; t < 3; ++t) {
    const auto alone = queries(t, 1);
    EXPECT_EQ(std::memcmp(&all[t * 2 * kDim], alone.data(), alone.size() * 4), 0) << t;
  }
}

// Slots 0, 2 and 5 have codes of these values, of rows of 2 * 96, to half a code; others are as
// they were.
void expect_codes(const std::vector<float>& values, const std::vector<uint8_t>& bytes,
                  const std::vector<float>& scale, KvType codes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t slot = i / (2 * 96);
    if (slot != 0 && slot != 2 && slot != 5) {
      EXPECT_EQ(bytes[i], 0x55);
      EXPECT_EQ(scale[i / 96], -1.0f);
      continue;
    }
    const float code = codes == KvType::kFp8 ? to_float(F8{bytes[i]})
                                             : to_float(I8{static_cast<int8_t>(bytes[i])});
    const float x = values[i] / scale[i / 96];
    // Half a code: of FP8 a sixteenth of the value, or half of the least.
    const float half = codes == KvType::kFp8 ? std::max(std::abs(x) / 16, 0x1p-10f) : 0.5f;
    ASSERT_NEAR(code, x, half * 1.001f) << i;
  }
}

// Keys and values as codes are those that stand for what the other pools get, to half a code.
TEST(MetalQkNormRopeKvWrite, PoolsOfCodes) {
  constexpr int kHeads = 2, kKvHeads = 2, kDim = 96, kCount = 4,
                kRow = (kHeads + 2 * kKvHeads) * kDim;
  for (const FloatType type : kTypes)
    for (const KvType codes : {KvType::kInt8, KvType::kFp8}) {
      auto qkv = encode(random_floats(size_t(kCount) * kRow, type, 1), type);
      auto norm = random_floats(kDim, FloatType::kF32, 2);
      auto cos_sin = rope_table(kDim);
      std::vector<int32_t> positions = {3, 49, 0, 17};
      std::vector<int64_t> slots = {5, 0, -1, 2};
      QkNormRopeKvWriteParams params = {.type = type,
                                        .kv_type = kv_type_of(type),
                                        .heads = kHeads,
                                        .kv_heads = kKvHeads,
                                        .head_dim = kDim,
                                        .row = kRow,
                                        .rotary_dim = kDim,
                                        .eps = 1e-6f,
                                        .k_norm = norm.data()};
      std::vector<float> k_scale(6 * kKvHeads, -1.0f), v_scale = k_scale;
      const auto write = [&](std::vector<uint8_t>& k_pool, std::vector<uint8_t>& v_pool) {
        QkNormRopeKvWriteMetal call = qk_norm_rope_kv_write_metal(params, kCount);
        auto q = unwritten(size_t(kCount) * kHeads * kDim, type);
        Launch launch = launch_of(call.call, {{kQkRopeParams, buffer_of(call.params)},
                                              {kQkRopePositions, buffer_of(positions)},
                                              {kQkRopeSlots, buffer_of(slots)},
                                              {kQkRopeCosSin, buffer_of(cos_sin)},
                                              {kQkRopeKNorm, buffer_of(norm)},
                                              {kQkRopeQkv, buffer_of(qkv)},
                                              {kQkRopeQ, buffer_of(q)},
                                              {kQkRopeKeyPool, buffer_of(k_pool)},
                                              {kQkRopeValuePool, buffer_of(v_pool)}});
        if (is_quantised(params.kv_type))
          launch.buffers.insert(
              {{kQkRopeKeyScale, buffer_of(k_scale)}, {kQkRopeValueScale, buffer_of(v_scale)}});
        run_in_all_orders(launch);
        return q;
      };
      auto k_floats = unwritten(6 * kKvHeads * kDim, type), v_floats = k_floats;
      const auto q = write(k_floats, v_floats);
      params.kv_type = codes;
      std::vector<uint8_t> k_codes(6 * kKvHeads * kDim, 0x55), v_codes = k_codes;
      EXPECT_TRUE(write(k_codes, v_codes) == q);
      expect_codes(decode(k_floats, type), k_codes, k_scale, codes);
      expect_codes(decode(v_floats, type), v_codes, v_scale, codes);
    }
}

}  // namespace
}  // namespace quire::emulator::testing
