#include <algorithm>

#include "harness.h"
#include "oracles.h"

// MLX's own kernels, as its wheel for Macs has them, run on the emulator and agree with float64. So
// what they use (simd sums and shuffles, barriers, matrices, function constants, attributes,
// bfloat) means here what it means where they are in use.
namespace quire::emulator::testing {
namespace {

struct Sdpa {
  const char* kernel;
  FloatType type;
  int dim;
  bool causal, sinks;
};

TEST(Calibration, SdpaVector) {
  constexpr int kHeads = 4, kGroup = 2, kKeys = 77, kQueries = 3;
  for (const Sdpa& c : {Sdpa{"sdpa_vector_float_128", FloatType::kF32, 128, false, false},
                        Sdpa{"sdpa_vector_bfloat_64", FloatType::kBf16, 64, true, true},
                        Sdpa{"sdpa_vector_half_256", FloatType::kF16, 256, true, false}}) {
    const auto q = random_floats(kHeads * kQueries * c.dim, c.type, 1);
    const auto k = random_floats(kHeads / kGroup * kKeys * c.dim, c.type, 2);
    const auto v = random_floats(k.size(), c.type, 3), sinks = random_floats(kHeads, c.type, 4);
    auto q_bytes = encode(q, c.type), k_bytes = encode(k, c.type), v_bytes = encode(v, c.type),
         sink_bytes = encode(sinks, c.type), out = unwritten(q.size(), c.type);
    int group = kGroup, keys = kKeys, heads = kHeads;
    size_t head_stride = size_t{kKeys} * c.dim, row = c.dim;
    float scale = 1 / std::sqrt(static_cast<float>(c.dim));
    Launch launch = {.kernel = c.kernel, .groups = {kHeads, kQueries}, .threads = {1024}};
    launch.buffers = {
        {0, buffer_of(q_bytes)},     {1, buffer_of(k_bytes)}, {2, buffer_of(v_bytes)},
        {3, buffer_of(out)},         {4, buffer_of(group)},   {5, buffer_of(keys)},
        {6, buffer_of(head_stride)}, {7, buffer_of(row)},     {8, buffer_of(head_stride)},
        {9, buffer_of(row)},         {10, buffer_of(scale)}};
    for (int i = 20; i <= 25; ++i) launch.constants[i] = Constant::of(false);
    launch.constants[26] = Constant::of(1);
    launch.constants[22] = Constant::of(c.causal);
    launch.constants[25] = Constant::of(c.sinks);
    if (c.sinks) launch.buffers.insert({{16, buffer_of(sink_bytes)}, {17, buffer_of(heads)}});
    run_in_all_orders(launch);
    std::vector<double> want;
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kQueries; ++i) {
        const auto row_of = [&](const std::vector<float>& x) {
          return [&x, h, &c](int j) { return &x[(h / kGroup * kKeys + j) * c.dim]; };
        };
        AttentionRow row = {.q = &q[(h * kQueries + i) * c.dim],
                            .dim = c.dim,
                            .value_dim = c.dim,
                            .key = row_of(k),
                            .value = row_of(v),
                            .sees = [&](int j) { return !c.causal || j <= kKeys - kQueries + i; },
                            .scale = scale};
        if (c.sinks) row.sink = sinks[h];
        const auto out_row = attend(row, kKeys);
        want.insert(want.end(), out_row.begin(), out_row.end());
      }
    expect_near(decode(out, c.type), want, c.type == FloatType::kF32 ? 1e-5 : 2 * rounding(c.type),
                0.1);
  }
}

struct Gemv {
  const char* kernel;
  FloatType type;
  int rows;
  uint32_t rows_per_group;
  Size3 threads;
  bool axpby;
};

constexpr int kGemvColumns = 200;

void check_gemv(const Gemv& c) {
  const auto matrix = random_floats(c.rows * kGemvColumns, c.type, 1);
  const auto x = random_floats(kGemvColumns, c.type, 2), bias = random_floats(c.rows, c.type, 3);
  auto m_bytes = encode(matrix, c.type), x_bytes = encode(x, c.type),
       b_bytes = encode(bias, c.type), out = unwritten(c.rows, c.type);
  int columns = kGemvColumns, rows = c.rows, ndim = 1, shape[1] = {1}, bias_stride = 1;
  float alpha = 1.5f, beta = -0.5f;
  int64_t stride[1] = {0};
  Launch launch = {
      .kernel = c.kernel,
      .constants = {{0, Constant::of(false)}, {1, Constant::of(false)}},
      .groups = {(static_cast<uint32_t>(c.rows) + c.rows_per_group - 1) / c.rows_per_group},
      .threads = c.threads};
  launch.buffers = {{0, buffer_of(m_bytes)}, {1, buffer_of(x_bytes)}, {2, buffer_of(b_bytes)},
                    {3, buffer_of(out)},     {4, buffer_of(columns)}, {5, buffer_of(rows)},
                    {6, buffer_of(columns)}, {7, buffer_of(alpha)},   {8, buffer_of(beta)},
                    {9, buffer_of(ndim)},    {10, buffer_of(shape)},  {11, buffer_of(stride)},
                    {12, buffer_of(stride)}, {13, buffer_of(stride)}, {14, buffer_of(bias_stride)}};
  run_in_all_orders(launch);
  std::vector<double> want;
  for (int r = 0; r < c.rows; ++r) {
    double sum = 0;
    for (int i = 0; i < kGemvColumns; ++i) sum += double{matrix[r * kGemvColumns + i]} * x[i];
    want.push_back(c.axpby ? alpha * sum + beta * bias[r] : sum);
  }
  expect_near(decode(out, c.type), want, c.type == FloatType::kF32 ? 1e-5 : 3 * rounding(c.type),
              1);
}

TEST(Calibration, Gemv) {
  check_gemv({"gemv_float", FloatType::kF32, 36, 32, {32, 1, 8}, false});
  check_gemv({"gemv_bfloat", FloatType::kBf16, 36, 16, {32, 1, 4}, false});
  check_gemv({"gemv_half", FloatType::kF16, 64, 128, {32, 1, 4}, true});
}

// Where several simdgroups share rows, the first lane of each alone comes to the barrier. Apple's
// GPUs count simdgroups there; Metal's specification asks for all threads, and so does the
// emulator.
TEST(Calibration, GemvMeetsABarrierWithOneLaneAlone) {
  try {
    check_gemv({"gemv_shared_rows", FloatType::kF32, 36, 4, {32, 8, 1}, false});
    FAIL() << "no fault";
  } catch (const Fault& fault) {
    EXPECT_NE(std::string(fault.what()).find("not all threads come to threadgroup_barrier"),
              std::string::npos)
        << fault.what();
  }
}

TEST(Calibration, GatedDeltaUpdate) {
  constexpr int kTokens = 21, kKeyHeads = 2, kHeads = 4, kKeyDim = 64, kValueDim = 32;
  auto q = random_floats(kTokens * kKeyHeads * kKeyDim, FloatType::kF32, 1, 0.2f);
  auto k = random_floats(q.size(), FloatType::kF32, 2, 0.12f);
  auto v = random_floats(kTokens * kHeads * kValueDim, FloatType::kF32, 3);
  auto state = random_floats(kHeads * kValueDim * kKeyDim, FloatType::kF32, 4);
  std::vector<float> decay(kTokens * kHeads), beta(kTokens * kHeads);
  for (size_t i = 0; i < decay.size(); ++i) {
    decay[i] = 0.5f + 0.5f * static_cast<float>(i * 37 % 101) / 101;
    beta[i] = static_cast<float>(i * 53 % 97) / 97;
  }
  std::vector<double> want(v.size()), states;
  for (int h = 0; h < kHeads; ++h) {
    std::vector<double> s(state.begin() + h * kValueDim * kKeyDim,
                          state.begin() + (h + 1) * kValueDim * kKeyDim);
    for (int t = 0; t < kTokens; ++t) {
      const int key = (t * kKeyHeads + h / 2) * kKeyDim, at = t * kHeads + h;
      const auto out = delta_step(s, kKeyDim, kValueDim,
                                  {&q[key], &k[key], &v[at * kValueDim], decay[at], beta[at]});
      std::copy(out.begin(), out.end(), want.begin() + at * kValueDim);
    }
    states.insert(states.end(), s.begin(), s.end());
  }
  for (const char* kernel : {"gated_delta_seq_float", "gated_delta_chunk_float"}) {
    const bool by_chunks = kernel[12] == 'c';
    std::vector<float> out(v.size(), NAN), after(state.size(), NAN);
    int tokens = kTokens;
    Launch launch = {.kernel = kernel,
                     .constants = {{200, Constant::of(false)}},
                     .groups = {1, by_chunks ? kValueDim / 32u : kValueDim / 4u, kHeads},
                     .threads = {32, 4}};
    launch.buffers = {{0, buffer_of(q)},     {1, buffer_of(k)},     {2, buffer_of(v)},
                      {3, buffer_of(state)}, {4, buffer_of(decay)}, {5, buffer_of(beta)},
                      {6, buffer_of(out)},   {7, buffer_of(after)}, {8, buffer_of(tokens)}};
    run_in_all_orders(launch);
    expect_near(out, want, by_chunks ? 1e-4 : 1e-5, 1);
    expect_near(after, states, by_chunks ? 1e-4 : 1e-5, 1);
  }
}

// Codes of 4 bits, eight in a word, with a scale and a bias for 64 of them.
struct Quantised {
  Quantised(int rows, int columns, FloatType type) {
    std::mt19937 random(5);
    scales = random_floats(rows * columns / 64, type, 6, 0.1f);
    biases = random_floats(scales.size(), type, 7);
    codes.resize(rows * columns / 8);
    for (uint32_t& word : codes) word = random();
    for (int i = 0; i < rows * columns; ++i)
      values.push_back(double{scales[i / 64]} * (codes[i / 8] >> i % 8 * 4 & 15) + biases[i / 64]);
  }
  std::vector<uint32_t> codes;
  std::vector<float> scales, biases;
  std::vector<double> values;
};

void check_quantised(const char* kernel, FloatType type, int rows, bool is_matrix) {
  constexpr int kColumns = 512, kOut = 40;
  const Quantised w(kOut, kColumns, type);
  const auto x = random_floats(rows * kColumns, type, 8);
  auto codes = w.codes;
  auto scales = encode(w.scales, type), biases = encode(w.biases, type), x_bytes = encode(x, type),
       out = unwritten(rows * kOut, type);
  int columns = kColumns, outs = kOut, count = rows, ndims = 0, shape[1] = {1};
  int64_t strides[1] = {0};
  Launch launch = {.kernel = kernel};
  for (int i = 200; i <= 202; ++i) launch.constants[i] = Constant::of(false);
  launch.buffers = {{0, buffer_of(codes)},   {1, buffer_of(scales)}, {2, buffer_of(biases)},
                    {3, buffer_of(x_bytes)}, {4, buffer_of(out)},    {5, buffer_of(columns)},
                    {6, buffer_of(outs)}};
  int at = 7;
  if (is_matrix) launch.buffers[at++] = buffer_of(count);
  launch.buffers[at++] = buffer_of(ndims);
  launch.buffers[at++] = buffer_of(shape);
  launch.buffers[at++] = buffer_of(strides);
  launch.buffers[at++] = buffer_of(ndims);
  launch.buffers[at++] = buffer_of(shape);
  for (int i = 0; i < 3; ++i) launch.buffers[at++] = buffer_of(strides);
  launch.groups = is_matrix ? Size3{(kOut + 31) / 32, static_cast<uint32_t>(rows + 31) / 32, 1}
                            : Size3{static_cast<uint32_t>(rows), kOut / 8, 1};
  launch.threads = is_matrix ? Size3{32, 2, 2} : Size3{32, 2, 1};
  run_in_all_orders(launch);
  std::vector<double> want;
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < kOut; ++o) {
      double sum = 0;
      for (int i = 0; i < kColumns; ++i) sum += w.values[o * kColumns + i] * x[r * kColumns + i];
      want.push_back(sum);
    }
  // Of matrices the weights are rounded to the type first.
  expect_near(decode(out, type), want, (is_matrix ? 4 : 1) * rounding(type) + 1e-5,
              is_matrix ? 20 : 5);
}

TEST(Calibration, QuantisedProducts) {
  check_quantised("qmv_fast_float", FloatType::kF32, 3, false);
  check_quantised("qmv_fast_bfloat", FloatType::kBf16, 1, false);
  check_quantised("qmm_t_half", FloatType::kF16, 35, true);
}

// As steel/attn/params.h has it.
struct AttnParams {
  int B, H, D, qL, kL, gqa_factor;
  float scale;
  int NQ, NK, NQ_aligned, NK_aligned, qL_rem, kL_rem, qL_off;
  int64_t Q_strides[3], K_strides[3], V_strides[3], O_strides[3];
};

void check_steel_attention(const char* kernel, FloatType type, int dim) {
  constexpr int kHeads = 2, kQueries = 45, kKeys = 70, kBQ = 32, kBK = 16;
  const auto q = random_floats(kHeads * kQueries * dim, type, 1);
  const auto k = random_floats(kKeys * dim, type, 2), v = random_floats(kKeys * dim, type, 3);
  auto q_bytes = encode(q, type), k_bytes = encode(k, type), v_bytes = encode(v, type),
       out = unwritten(q.size(), type);
  const int64_t d = dim;
  AttnParams params = {.B = 1,
                       .H = kHeads,
                       .D = dim,
                       .qL = kQueries,
                       .kL = kKeys,
                       .gqa_factor = kHeads,
                       .scale = 1 / std::sqrt(static_cast<float>(dim)),
                       .NQ = (kQueries + kBQ - 1) / kBQ,
                       .NK = (kKeys + kBK - 1) / kBK,
                       .NQ_aligned = kQueries / kBQ,
                       .NK_aligned = kKeys / kBK,
                       .qL_rem = kQueries % kBQ,
                       .kL_rem = kKeys % kBK,
                       .qL_off = kKeys - kQueries,
                       .Q_strides = {0, kQueries * d, d},
                       .K_strides = {0, kKeys * d, d},
                       .V_strides = {0, kKeys * d, d},
                       .O_strides = {0, kQueries * d, d}};
  Launch launch = {.kernel = kernel, .groups = {2, kHeads, 1}, .threads = {32, 4, 1}};
  launch.constants = {{200, Constant::of(false)}, {201, Constant::of(false)},
                      {300, Constant::of(false)}, {301, Constant::of(true)},
                      {302, Constant::of(false)}, {303, Constant::of(false)}};
  launch.buffers = {{0, buffer_of(q_bytes)},
                    {1, buffer_of(k_bytes)},
                    {2, buffer_of(v_bytes)},
                    {3, buffer_of(out)},
                    {4, buffer_of(params)}};
  run_in_all_orders(launch);
  std::vector<double> want;
  for (int i = 0; i < kHeads * kQueries; ++i) {
    const auto row = attend({.q = &q[i * dim],
                             .dim = dim,
                             .value_dim = dim,
                             .key = [&](int j) { return &k[j * dim]; },
                             .value = [&](int j) { return &v[j * dim]; },
                             .sees = [&](int j) { return j <= kKeys - kQueries + i % kQueries; },
                             .scale = params.scale},
                            kKeys);
    want.insert(want.end(), row.begin(), row.end());
  }
  expect_near(decode(out, type), want, type == FloatType::kF32 ? 1e-5 : 2 * rounding(type), 0.2);
}

TEST(Calibration, SteelAttention) {
  check_steel_attention("steel_attention_float_64", FloatType::kF32, 64);
  check_steel_attention("steel_attention_bfloat_128", FloatType::kBf16, 128);
}

}  // namespace
}  // namespace quire::emulator::testing
