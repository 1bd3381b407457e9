#include <numeric>

#include "attention_step.h"

namespace quire::ops::cuda_test {
namespace {

struct Sequence {
  int tokens, context;  // new ones, all
};

struct Case {
  const char* what;
  FloatType type;
  KvType kv_type;
  int64_t heads, kv_heads, key_dim, value_dim, block_size;
  std::vector<Sequence> sequences;
  int64_t window_left = -1, window_right = 0;
  float softcap = 0;
  bool sinks = false, alibi = false;
};

// A step with its pools on the device, and the values that they stand for.
struct Step {
  Case c;
  BatchLayout layout = {};
  AttentionKernelParams p = {};
  std::vector<float> q = {}, k = {}, v = {}, sinks = {}, slopes = {};  // k, v: [slot][kv head][dim]
  std::vector<float> k_scale = {}, v_scale = {};
  std::vector<uint8_t> k_bytes = {}, v_bytes = {};
};

std::vector<uint8_t> encode_pool(std::vector<float>& x, std::vector<float>& scales, int64_t dim,
                                 KvType type, std::mt19937& random) {
  if (!is_quantised(type)) {
    const FloatType t = type == KvType::kF32
                            ? FloatType::kF32
                            : (type == KvType::kF16 ? FloatType::kF16 : FloatType::kBf16);
    for (float& f : x) f = through(f, t);
    return encode(x, t);
  }
  std::vector<uint8_t> bytes(x.size());
  scales.resize(x.size() / dim);
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = 0.005f + 0.00001f * static_cast<float>(random() % 1000);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto code = static_cast<uint8_t>(random());
    bytes[i] = type == KvType::kFp8 && (code & 0x7F) == 0x7F ? 0x30 : code;
    const float value = type == KvType::kFp8 ? to_float(F8{bytes[i]}) * 0.2f
                                             : to_float(I8{static_cast<int8_t>(bytes[i])});
    x[i] = (type == KvType::kFp8 ? value / 0.2f : value) * scales[i / dim];
  }
  return bytes;
}

Step make_step(const Case& c, uint32_t seed) {
  Step s = {.c = c};
  std::mt19937 random(seed);
  s.layout.num_sequences = static_cast<int64_t>(c.sequences.size());
  s.layout.block_size = c.block_size;
  s.layout.cu_seqlens = {0};
  s.layout.block_offsets = {0};
  int64_t blocks = 3;
  for (const Sequence& q : c.sequences) {
    for (int i = 0; i < q.tokens; ++i) s.layout.positions.push_back(q.context - q.tokens + i);
    s.layout.num_tokens += q.tokens;
    s.layout.cu_seqlens.push_back(static_cast<int32_t>(s.layout.num_tokens));
    s.layout.seq_lens.push_back(q.context);
    for (int64_t b = 0; b * c.block_size < q.context; ++b)
      s.layout.blocks.push_back(static_cast<int32_t>(blocks++));
    s.layout.block_offsets.push_back(static_cast<int64_t>(s.layout.blocks.size()));
  }
  std::vector<int32_t> order(blocks - 3);
  std::iota(order.begin(), order.end(), 3);
  std::shuffle(order.begin(), order.end(), random);
  for (int32_t& b : s.layout.blocks) b = order[b - 3];
  const int64_t rows = blocks * c.block_size * c.kv_heads;
  s.q = random_floats(static_cast<size_t>(s.layout.num_tokens * c.heads * c.key_dim), c.type,
                      seed + 1);
  s.k = random_floats(static_cast<size_t>(rows * c.key_dim), FloatType::kF32, seed + 2);
  s.v = random_floats(static_cast<size_t>(rows * c.value_dim), FloatType::kF32, seed + 3);
  s.k_bytes = encode_pool(s.k, s.k_scale, c.key_dim, c.kv_type, random);
  s.v_bytes = encode_pool(s.v, s.v_scale, c.value_dim, c.kv_type, random);
  s.sinks = random_floats(static_cast<size_t>(c.heads), FloatType::kF32, seed + 4);
  for (int64_t h = 0; h < c.heads; ++h)
    s.slopes.push_back(std::exp2(-static_cast<float>(h % 8 + 1)));
  const double scale = 1 / std::sqrt(static_cast<double>(c.key_dim));
  s.p = {.q_type = c.type,
         .kv_type = c.kv_type,
         .heads = c.heads,
         .kv_heads = c.kv_heads,
         .key_dim = c.key_dim,
         .value_dim = c.value_dim,
         .block_size = c.block_size,
         .window_left = c.window_left,
         .window_right = c.window_right};
  s.p.softcap = c.softcap;
  s.p.softcap_scale = c.softcap > 0 ? static_cast<float>(scale / c.softcap) : 0.0f;
  s.p.score_scale = c.softcap > 0 ? 1.0f : static_cast<float>(scale);
  s.p.exponent_scale =
      static_cast<float>((c.softcap > 0 || c.alibi ? 1.0 : scale) * 1.4426950408889634);
  return s;
}

// Its keys are there before the step.
struct Uploaded : UploadedStep {
  Uploaded(const Step& s, const AttentionCudaPlan& plan) : UploadedStep(s.layout, s.p, plan) {
    batch.has_old_keys = true;
  }
};

struct Result {
  std::vector<uint8_t> out;
  std::vector<float> lse;
};

Result run(CudaStream stream, const Step& s, const AttentionCudaLimits& limits) {
  const AttentionCudaPlan plan = plan_for_device(s.p, s.layout, limits);
  const Uploaded up(s, plan);
  const DeviceBytes q(encode(s.q, s.c.type)), k(s.k_bytes), v(s.v_bytes), ks(s.k_scale),
      vs(s.v_scale);
  const DeviceBytes sinks(s.sinks), slopes(s.slopes);
  const int64_t rows = s.layout.num_tokens * s.c.heads;
  const DeviceBytes out(static_cast<size_t>(rows * s.c.value_dim * float_type_bytes(s.c.type)));
  const DeviceBytes lse(static_cast<size_t>(rows) * 4);
  AttentionKernelParams p = s.p;
  p.q = q.get();
  p.k = k.get();
  p.v = v.get();
  if (is_quantised(s.c.kv_type)) {
    p.k_scale = ks.as<float>();
    p.v_scale = vs.as<float>();
  }
  if (s.c.sinks) p.sinks = sinks.as<float>();
  if (s.c.alibi) p.alibi = slopes.as<float>();
  p.out = out.get();
  p.lse = lse.as<float>();
  p.lse_stride = s.layout.num_tokens;
  paged_attention_cuda(stream, p, up.batch);
  if (!up.counters_are_zero()) report(false, "counters of merges are left as zeros", 1, 0);
  return {out.read<uint8_t>(), lse.read<float>()};
}

void oracle(const Step& s, std::vector<double>& out, std::vector<double>& lse) {
  const Case& c = s.c;
  lse.resize(static_cast<size_t>(c.heads * s.layout.num_tokens));
  for (int64_t n = 0; n < s.layout.num_sequences; ++n)
    for (int64_t t = s.layout.cu_seqlens[n]; t < s.layout.cu_seqlens[n + 1]; ++t)
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t position = s.layout.positions[t];
        std::vector<double> scores, sum(static_cast<size_t>(c.value_dim));
        std::vector<int64_t> slots;
        double peak = c.sinks ? s.sinks[h] : -INFINITY;
        for (int64_t key = 0; key < s.layout.seq_lens[n]; ++key) {
          if (c.window_left >= 0 && key < position - c.window_left) continue;
          if (c.window_right >= 0 && key > position + c.window_right) continue;
          const int64_t block = s.layout.block_table(n)[key / c.block_size];
          const int64_t slot =
              (block * c.block_size + key % c.block_size) * c.kv_heads + h / (c.heads / c.kv_heads);
          double dot = 0;
          for (int64_t d = 0; d < c.key_dim; ++d)
            dot += static_cast<double>(s.q[(t * c.heads + h) * c.key_dim + d]) *
                   s.k[slot * c.key_dim + d];
          dot /= std::sqrt(static_cast<double>(c.key_dim));
          if (c.softcap > 0) dot = c.softcap * std::tanh(dot / c.softcap);
          if (c.alibi)
            dot -= static_cast<double>(s.slopes[h]) * static_cast<double>(std::abs(position - key));
          scores.push_back(dot);
          slots.push_back(slot);
          peak = std::max(peak, dot);
        }
        double total = c.sinks ? std::exp(s.sinks[h] - peak) : 0;
        for (size_t i = 0; i < scores.size(); ++i) {
          const double probability = std::exp(scores[i] - peak);
          total += probability;
          for (int64_t d = 0; d < c.value_dim; ++d)
            sum[d] += probability * s.v[slots[i] * c.value_dim + d];
        }
        for (const double x : sum) out.push_back(total == 0 ? 0 : x / total);
        lse[h * s.layout.num_tokens + t] = total == 0 ? -INFINITY : std::log(total) + peak;
      }
}

// The last `tokens` rows of each sequence as a step of its own.
Step tail(const Step& s, int tokens) {
  Case c = s.c;
  for (Sequence& q : c.sequences) q.tokens = std::min(q.tokens, tokens);
  Step t = s;
  t.c = c;
  t.q.clear();
  t.layout.positions.clear();
  t.layout.cu_seqlens = {0};
  for (size_t n = 0; n < c.sequences.size(); ++n) {
    const int64_t end = s.layout.cu_seqlens[n + 1], row = c.heads * c.key_dim;
    for (int64_t i = end - c.sequences[n].tokens; i < end; ++i) {
      t.layout.positions.push_back(s.layout.positions[i]);
      t.q.insert(t.q.end(), s.q.begin() + i * row, s.q.begin() + (i + 1) * row);
    }
    t.layout.cu_seqlens.push_back(static_cast<int32_t>(t.layout.positions.size()));
  }
  t.layout.num_tokens = static_cast<int64_t>(t.layout.positions.size());
  return t;
}

// The rows of `out` that tail() keeps.
std::vector<uint8_t> tail_rows(const Step& s, const std::vector<uint8_t>& out, int tokens) {
  std::vector<uint8_t> kept;
  const int64_t row = s.c.heads * s.c.value_dim * float_type_bytes(s.c.type);
  for (size_t n = 0; n < s.c.sequences.size(); ++n) {
    const int64_t end = s.layout.cu_seqlens[n + 1];
    const int64_t begin = end - std::min(s.c.sequences[n].tokens, tokens);
    kept.insert(kept.end(), out.begin() + begin * row, out.begin() + end * row);
  }
  return kept;
}

// The step's sequences several times over, so that other kernels take them: they share blocks.
constexpr int kCrowd = 5;
Step crowd(const Step& s) {
  Step all = s;
  all.layout.num_sequences *= kCrowd;
  all.layout.num_tokens *= kCrowd;
  const auto blocks = static_cast<int64_t>(s.layout.blocks.size());
  const auto repeat = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (int i = 1; i < kCrowd; ++i) {
    all.c.sequences.insert(all.c.sequences.end(), s.c.sequences.begin(), s.c.sequences.end());
    repeat(all.q, s.q);
    repeat(all.layout.positions, s.layout.positions);
    repeat(all.layout.seq_lens, s.layout.seq_lens);
    repeat(all.layout.blocks, s.layout.blocks);
    for (int64_t n = 1; n <= s.layout.num_sequences; ++n) {
      all.layout.cu_seqlens.push_back(
          static_cast<int32_t>(i * s.layout.num_tokens + s.layout.cu_seqlens[n]));
      all.layout.block_offsets.push_back(i * blocks + s.layout.block_offsets[n]);
    }
  }
  return all;
}

void check(CudaStream stream, const Case& c, uint32_t seed) {
  const Step s = make_step(c, seed);
  const Result got = run(stream, s, {});
  std::vector<double> out, lse;
  oracle(s, out, lse);
  const std::string what = std::string("attention ") + c.what;
  // Probabilities are rounded once, to bfloat16 where pools hold codes.
  const bool wide = c.type == FloatType::kF32 && true;
  const double step = wide ? 2e-6 : rounding(is_quantised(c.kv_type) ? FloatType::kBf16 : c.type);
  compare(what, decode(got.out, c.type), out, 3 * step + 2e-6, is_quantised(c.kv_type) ? 0.5 : 0.3);
  double worst = 0;
  for (size_t i = 0; i < lse.size(); ++i)
    if (!(got.lse[i] == lse[i]))
      worst = std::max(worst, std::abs(got.lse[i] - lse[i]) / (1 + std::abs(lse[i])));
  report(worst < 1e-5, what + " lse", worst, 1e-5);
  const Result whole = run(stream, s, {.max_partial_rows = 0}),
               split = run(stream, s, {.multiprocessors = 1000000});
  compare_bits(what + " unsplit", whole.out, got.out);
  compare_bits(what + " split", split.out, got.out);
  for (const int tokens : {1, 2, 5, 17}) {
    const Step last = tail(s, tokens);
    const std::vector<uint8_t> rows = tail_rows(s, got.out, tokens);
    const std::string which = what + " last " + std::to_string(tokens);
    compare_bits(which, run(stream, last, {}).out, rows);
    std::vector<uint8_t> of_all;
    for (int i = 0; i < kCrowd; ++i) of_all.insert(of_all.end(), rows.begin(), rows.end());
    compare_bits(which + " among others", run(stream, crowd(last), {}).out, of_all);
  }
}

}  // namespace

namespace {

constexpr auto bf16 = FloatType::kBf16, f16 = FloatType::kF16, f32 = FloatType::kF32;
const Case kCases[] = {
    {"bf16 16/8 D128",
     bf16,
     KvType::kBf16,
     16,
     8,
     128,
     128,
     16,
     {{1, 700}, {1, 1}, {1, 256}, {1, 257}}},
    {"bf16 32/8 D128 mixed",
     bf16,
     KvType::kBf16,
     32,
     8,
     128,
     128,
     16,
     {{1, 1500}, {40, 900}, {130, 130}, {3, 515}}},
    {"bf16 6/2 D64", bf16, KvType::kBf16, 6, 2, 64, 64, 16, {{1, 300}, {20, 600}}},
    {"bf16 8/2 D128 P8", bf16, KvType::kBf16, 8, 2, 128, 128, 8, {{200, 500}, {130, 133}}},
    {"bf16 4/4 D128 P64", bf16, KvType::kBf16, 4, 4, 128, 128, 64, {{300, 1100}, {33, 290}}},
    {"bf16 4/1 D64 P32", bf16, KvType::kBf16, 4, 1, 64, 64, 32, {{64, 64}, {150, 650}, {1, 70}}},
    {"bf16 8/1 D64 P128", bf16, KvType::kBf16, 8, 1, 64, 64, 128, {{300, 300}, {17, 400}}},
    {"bf16 4/2 D128 P24", bf16, KvType::kBf16, 4, 2, 128, 128, 24, {{200, 500}}},
    {"bf16 4/2 D128 window",
     bf16,
     KvType::kBf16,
     4,
     2,
     128,
     128,
     16,
     {{600, 1500}, {90, 90}},
     200,
     0},
    {"bf16 8/2 D128 softcap sinks",
     bf16,
     KvType::kBf16,
     8,
     2,
     128,
     128,
     16,
     {{1, 900}, {300, 700}},
     -1,
     0,
     20.0f,
     true},
    {"bf16 4/4 D80 P8", bf16, KvType::kBf16, 4, 4, 80, 80, 8, {{1, 300}, {33, 290}}},
    {"bf16 8/2 D256", bf16, KvType::kBf16, 8, 2, 256, 256, 32, {{1, 520}, {19, 300}}},
    {"bf16 2/1 D512", bf16, KvType::kBf16, 2, 1, 512, 512, 16, {{1, 300}, {12, 280}}},
    {"bf16 4/1 D24 Dv 40", bf16, KvType::kBf16, 4, 1, 24, 40, 5, {{1, 270}, {12, 280}}},
    {"bf16 window softcap sinks",
     bf16,
     KvType::kBf16,
     8,
     2,
     64,
     64,
     16,
     {{1, 900}, {50, 700}},
     300,
     0,
     20.0f,
     true},
    {"bf16 window 4+7 alibi",
     bf16,
     KvType::kBf16,
     8,
     8,
     64,
     64,
     16,
     {{3, 900}, {50, 700}},
     4,
     7,
     0,
     true,
     true},
    {"f16 8/2 D128", f16, KvType::kF16, 8, 2, 128, 128, 16, {{1, 900}, {50, 700}}},
    {"bf16 over int8", bf16, KvType::kInt8, 8, 2, 128, 128, 16, {{1, 900}, {50, 300}}},
    {"bf16 over fp8", bf16, KvType::kFp8, 8, 2, 128, 128, 16, {{1, 900}, {50, 300}}},
    {"f32 4/2 D64", f32, KvType::kF32, 4, 2, 64, 64, 16, {{1, 600}, {20, 300}}},
    {"f32 over int8 D72", f32, KvType::kInt8, 4, 2, 72, 72, 16, {{1, 600}, {20, 300}}},
    {"f16 over fp8",
     f16,
     KvType::kFp8,
     4,
     2,
     64,
     64,
     16,
     {{1, 600}, {20, 300}},
     100,
     3,
     0,
     true,
     true},
    {"bf16 over f32", bf16, KvType::kF32, 4, 2, 64, 64, 16, {{1, 600}, {20, 300}}},
};

}  // namespace

void check_attention(CudaStream stream) {
  uint32_t seed = 5000;
  const auto is_small = [](const Case& c) {
    return std::all_of(c.sequences.begin(), c.sequences.end(),
                       [](const Sequence& s) { return s.context <= 600; });
  };
  for (const Case& c : kCases)
    if (!few || is_small(c)) check(stream, c, seed += 10);
}

namespace {

void bench_decode(CudaStream stream) {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{16, 8}, {32, 8}})
    for (const int batch : {1, 8, 64})
      for (const int context : {1024, 8192}) {
        Case c = {"", bf16, KvType::kBf16, heads, kv_heads, 128, 128, 16, {}};
        for (int i = 0; i < batch; ++i) c.sequences.push_back({1, context});
        Step s = {.c = c};
        s.layout.num_sequences = s.layout.num_tokens = batch;
        s.layout.block_size = 16;
        s.layout.cu_seqlens = {0};
        s.layout.block_offsets = {0};
        for (int i = 0; i < batch; ++i) {
          s.layout.positions.push_back(context - 1);
          s.layout.cu_seqlens.push_back(i + 1);
          s.layout.seq_lens.push_back(context);
          for (int b = 0; b < context / 16; ++b) s.layout.blocks.push_back(i * (context / 16) + b);
          s.layout.block_offsets.push_back(static_cast<int64_t>(s.layout.blocks.size()));
        }
        std::shuffle(s.layout.blocks.begin(), s.layout.blocks.end(), std::mt19937(1));
        s.p = {.q_type = bf16,
               .kv_type = KvType::kBf16,
               .heads = heads,
               .kv_heads = kv_heads,
               .key_dim = 128,
               .value_dim = 128,
               .block_size = 16};
        s.p.exponent_scale = 0.1f;
        const AttentionCudaPlan plan = plan_for_device(s.p, s.layout);
        const Uploaded up(s, plan);
        const size_t pool = static_cast<size_t>(batch) * context * kv_heads * 128 * 2;
        const size_t copies = std::max<size_t>(1, (size_t{300} << 20) / (2 * pool));
        const DeviceBytes k(pool * copies), v(pool * copies);
        cudaMemset(k.get(), 0, pool * copies);
        cudaMemset(v.get(), 0, pool * copies);
        const DeviceBytes q(static_cast<size_t>(batch * heads * 256)),
            out(static_cast<size_t>(batch * heads * 256));
        cudaMemset(q.get(), 0, q.size());
        size_t next = 0;
        const double us = time_us(stream, [&](CudaStream st) {
          AttentionKernelParams p = s.p;
          p.q = q.get();
          p.k = k.as<uint8_t>() + next % copies * pool;
          p.v = v.as<uint8_t>() + next++ % copies * pool;
          p.out = out.get();
          paged_attention_cuda(st, p, up.batch);
        });
        std::printf("decode %ld/%ld batch %d context %d  %8.1f us  %5.2f TB/s (%zu items)\n", heads,
                    kv_heads, batch, context, us, 2.0 * static_cast<double>(pool) / us * 1e-6,
                    plan.few.size());
      }
}

void bench_prefill_of(CudaStream stream, int tokens, int64_t dim, int64_t block_size) {
  Case c = {"", bf16, KvType::kBf16, 32, 8, dim, dim, block_size, {{tokens, tokens}}};
  const Step s = make_step(c, 1);
  const AttentionCudaPlan plan = plan_for_device(s.p, s.layout);
  const Uploaded up(s, plan);
  const DeviceBytes q(encode(s.q, bf16)), k(s.k_bytes), v(s.v_bytes), out(s.q.size() * 2);
  const double us = time_us(
      stream,
      [&](CudaStream st) {
        AttentionKernelParams p = s.p;
        p.q = q.get();
        p.k = k.get();
        p.v = v.get();
        p.out = out.get();
        paged_attention_cuda(st, p, up.batch);
      },
      3);
  std::printf("prefill 32/8 D%ld P%ld %d tokens  %8.1f us  %6.1f TFLOP/s (half counted)\n", dim,
              block_size, tokens, us,
              2.0 * 32 * static_cast<double>(dim) * tokens * tokens / us * 1e-6);
}

void bench_prefill(CudaStream stream) {
  for (const int tokens : {512, 2048, 8192}) bench_prefill_of(stream, tokens, 128, 16);
  bench_prefill_of(stream, 8192, 128, 64);
  bench_prefill_of(stream, 8192, 64, 16);
}

}  // namespace

void bench_attention(CudaStream stream) {
  bench_decode(stream);
  bench_prefill(stream);
}

}  // namespace quire::ops::cuda_test
