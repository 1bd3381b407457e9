#include <numeric>
#include <optional>

#include "harness.h"
#include "launch.h"
#include "ops/paged_attention/paged_attention_metal.h"
#include "oracles.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Sequence {
  int tokens, context;  // new ones, all
};

struct Case {
  FloatType type = FloatType::kF32;
  int heads = 4, kv_heads = 2, key_dim = 64, value_dim = 64, block_size = 16;
  std::vector<Sequence> sequences = {};
  int64_t window_left = -1, window_right = 0, window_step = 0;
  float softcap = 0;
  bool sinks = false, alibi = false;
  int shift = 0;  // added to positions
  std::optional<KvType> codes = std::nullopt;
  bool values_in_keys = false;
};

// A step in paged memory: blocks in any order, NaNs where nothing was written.
struct Step {
  explicit Step(const Case& test_case) : c(test_case) {
    layout.num_sequences = static_cast<int64_t>(c.sequences.size());
    layout.block_size = c.block_size;
    layout.cu_seqlens = {0};
    layout.block_offsets = {0};
    int blocks = 2;
    for (const Sequence& s : c.sequences) {
      for (int i = 0; i < s.tokens; ++i)
        layout.positions.push_back(s.context - s.tokens + i + c.shift);
      layout.num_tokens += s.tokens;
      layout.cu_seqlens.push_back(static_cast<int32_t>(layout.num_tokens));
      layout.seq_lens.push_back(s.context);
      for (int b = 0; b * c.block_size < s.context; ++b) layout.blocks.push_back(blocks++);
      layout.block_offsets.push_back(static_cast<int64_t>(layout.blocks.size()));
    }
    std::shuffle(layout.blocks.begin(), layout.blocks.end(), std::mt19937(9));
    q = random_floats(size_t(layout.num_tokens) * c.heads * c.key_dim, c.type, 1);
    const size_t slots = size_t(blocks) * c.block_size * c.kv_heads;
    k.assign(slots * c.key_dim, NAN);
    v.assign(slots * c.value_dim, NAN);
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const auto keys = random_floats(size_t(c.sequences[s].context) * c.kv_heads * c.key_dim,
                                      c.type, 10 + static_cast<uint32_t>(s));
      const auto values = random_floats(size_t(c.sequences[s].context) * c.kv_heads * c.value_dim,
                                        c.type, 60 + static_cast<uint32_t>(s));
      for (int t = 0; t < c.sequences[s].context; ++t) {
        const size_t row = size_t(c.kv_heads) * c.key_dim,
                     value_row = size_t(c.kv_heads) * c.value_dim;
        std::copy_n(&keys[t * row], row, &k[slot(s, t) * row]);
        std::copy_n(&values[t * value_row], value_row, &v[slot(s, t) * value_row]);
      }
    }
    take_codes();
    give_up_blocks();
    sinks = random_floats(c.heads, FloatType::kF32, 5);
    for (size_t i = 0; i < c.sequences.size() * c.heads; ++i)
      slopes.push_back(i % 5 == 3 ? -0.01f : 0.03f * static_cast<float>(i % 7));
    const double scale = 1 / std::sqrt(static_cast<double>(c.key_dim));
    params = {.q_type = c.type,
              .kv_type = c.codes.value_or(kv_type_of(c.type)),
              .heads = c.heads,
              .kv_heads = c.kv_heads,
              .key_dim = c.key_dim,
              .value_dim = c.value_dim,
              .values_in_keys = c.values_in_keys,
              .block_size = c.block_size,
              .window_left = c.window_left,
              .window_right = c.window_right,
              .window_step = c.window_step};
    const bool in_units = c.softcap > 0 || c.alibi;
    params.softcap = c.softcap;
    params.softcap_scale = c.softcap > 0 ? static_cast<float>(scale / c.softcap) : 0.0f;
    params.score_scale = c.softcap > 0 ? 1.0f : static_cast<float>(scale);
    params.exponent_scale = static_cast<float>((in_units ? 1.0 : scale) * 1.4426950408889634);
    if (c.sinks) params.sinks = sinks.data();
    if (c.alibi) params.alibi = slopes.data();
    params.alibi_stride = c.alibi ? c.heads : 0;
  }

  void take_codes() {
    if (!c.codes) return;
    k_codes = random_codes(k, c.key_dim, k_scale, 3);
    v_codes = random_codes(v, c.value_dim, v_scale, 4);
  }

  // Codes and a scale in place of each row that was written, whose values the row becomes.
  std::vector<uint8_t> random_codes(std::vector<float>& pool, int dim, std::vector<float>& scale,
                                    uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<uint8_t> codes(pool.size(), c.codes == KvType::kFp8 ? 0x7F : 0x55);
    scale.assign(pool.size() / dim, NAN);
    for (size_t row = 0; row < scale.size(); ++row) {
      if (std::isnan(pool[row * dim])) continue;
      const float most = c.codes == KvType::kFp8 ? kMaxF8 : kMaxI8;
      scale[row] = (1.0f + static_cast<float>(random() % 100) / 50) / most;
      for (int i = 0; i < dim; ++i) {
        uint8_t& code = codes[row * dim + i];
        do code = static_cast<uint8_t>(random());
        while (c.codes == KvType::kFp8 && (code & 0x7F) == 0x7F);
        const float value =
            c.codes == KvType::kFp8 ? to_float(F8{code}) : to_float(I8{static_cast<int8_t>(code)});
        pool[row * dim + i] = value * scale[row];
      }
    }
    return codes;
  }

  // Blocks before a sequence's windows are gone.
  void give_up_blocks() {
    if (c.window_left < 0) return;
    for (int64_t s = 0; s < layout.num_sequences; ++s) {
      const int64_t first = layout.positions[layout.cu_seqlens[s]] - c.window_left;
      for (int64_t b = 0; (b + 1) * c.block_size <= first; ++b)
        layout.blocks[layout.block_offsets[s] + b] = kNoBlock;
    }
  }

  size_t slot(size_t sequence, int position) const {
    const int32_t block =
        layout.block_table(static_cast<int64_t>(sequence))[position / c.block_size];
    return size_t(block) * c.block_size + position % c.block_size;
  }

  Case c;
  BatchLayout layout;
  AttentionKernelParams params;
  std::vector<float> q, k, v, sinks, slopes, k_scale, v_scale;
  std::vector<uint8_t> k_codes, v_codes;
};

struct Result {
  std::vector<uint8_t> out;
  std::vector<float> lse;
};

// As the op will do it: both kernels, then the merge.
Result attend_on_emulator(Step& step, bool all_orders = true) {
  const Case& c = step.c;
  Result result = {unwritten(size_t(step.layout.num_tokens) * c.heads * c.value_dim, c.type),
                   std::vector<float>(size_t(step.layout.num_tokens) * c.heads, NAN)};
  step.params.lse = result.lse.data();
  AttentionMetalPlan plan = plan_attention_metal(step.params, step.layout);
  AttentionMetal attention = attention_metal(step.params, step.layout, plan);
  EXPECT_EQ(attention.few.kernel.find(std::string("paged_attention_") + name(c.type)), 0u);
  auto q = encode(step.q, c.type);
  auto k = c.codes ? step.k_codes : encode(step.k, c.type);
  auto v = c.codes ? step.v_codes : encode(step.v, c.type);
  std::vector<float> partials(size_t(plan.partials) * c.kv_heads * (c.value_dim + 2), NAN);
  const auto launch = [&](const MetalCall& call, Buffer items, bool is_merge) {
    if (call.groups.x == 0) return;
    Launch l = launch_of(call, {{kAttentionParams, buffer_of(attention.params)},
                                {kAttentionItems, items},
                                {kAttentionPartials, buffer_of(partials)},
                                {kAttentionOut, buffer_of(result.out)},
                                {kAttentionLse, buffer_of(result.lse)}});
    if (c.sinks) l.buffers[kAttentionSinks] = buffer_of(step.sinks);
    if (!is_merge) {
      l.buffers.insert({{kAttentionBlocks, buffer_of(step.layout.blocks)},
                        {kAttentionQ, buffer_of(q)},
                        {kAttentionK, buffer_of(k)},
                        {kAttentionV, buffer_of(c.values_in_keys ? k : v)}});
      if (c.codes)
        l.buffers.insert(
            {{kAttentionKScale, buffer_of(step.k_scale)},
             {kAttentionVScale, buffer_of(c.values_in_keys ? step.k_scale : step.v_scale)}});
      if (c.alibi) l.buffers[kAttentionAlibi] = buffer_of(step.slopes);
    }
    all_orders ? run_in_all_orders(l) : run(l, Order::kShuffled);
  };
  launch(attention.few, buffer_of(plan.few), false);
  launch(attention.many, buffer_of(plan.many), false);
  launch(attention.merge, buffer_of(plan.merges), true);
  return result;
}

void check(const Case& c) {
  Step step(c);
  const Result got = attend_on_emulator(step);
  std::vector<double> want, want_lse(got.lse.size());
  for (size_t s = 0; s < c.sequences.size(); ++s)
    for (int t = step.layout.cu_seqlens[s]; t < step.layout.cu_seqlens[s + 1]; ++t)
      for (int h = 0; h < c.heads; ++h) {
        const int kv_head = h / (c.heads / c.kv_heads), position = step.layout.positions[t];
        const auto row_of = [&](const std::vector<float>& pool, int dim) {
          return [&pool, dim, s, kv_head, &c, &step](int j) {
            return &pool[(step.slot(s, j) * c.kv_heads + kv_head) * dim];
          };
        };
        const auto values =
            c.values_in_keys ? row_of(step.k, c.key_dim) : row_of(step.v, c.value_dim);
        AttentionRow row = {.q = &step.q[(size_t(t) * c.heads + h) * c.key_dim],
                            .dim = c.key_dim,
                            .value_dim = c.value_dim,
                            .key = row_of(step.k, c.key_dim),
                            .value = values,
                            .sees =
                                [&](int j) {
                                  if (c.window_left >= 0 && j < position - c.window_left)
                                    return false;
                                  if (c.window_right >= 0 && j > position + c.window_right)
                                    return false;
                                  return c.window_step == 0 ||
                                         j >= position / c.window_step * c.window_step;
                                },
                            .scale = 1 / std::sqrt(static_cast<double>(c.key_dim)),
                            .softcap = c.softcap,
                            .slope = c.alibi ? step.slopes[s * c.heads + h] : 0.0,
                            .position = position};
        if (c.sinks) row.sink = step.sinks[h];
        const auto out =
            attend(row, c.sequences[s].context, &want_lse[size_t(h) * step.layout.num_tokens + t]);
        want.insert(want.end(), out.begin(), out.end());
      }
  expect_near(decode(got.out, c.type), want, rounding(c.type) + 2e-5, 0.05);
  for (size_t i = 0; i < want_lse.size(); ++i) {
    if (want_lse[i] == -INFINITY)
      EXPECT_EQ(got.lse[i], -INFINITY);
    else
      EXPECT_NEAR(got.lse[i], want_lse[i], 1e-4);
  }
}

TEST(MetalPagedAttention, HeadDimensionsAndTypes) {
  for (const FloatType type : kTypes)
    for (const int dim : {64, 72, 128, 256})
      check({.type = type, .key_dim = dim, .value_dim = dim, .sequences = {{1, 40}, {1, 300}}});
  check({.key_dim = 192, .value_dim = 128, .sequences = {{1, 33}}});
  check({.key_dim = 96, .value_dim = 96, .sequences = {{1, 33}}});
  check({.key_dim = 8, .value_dim = 256, .sequences = {{1, 33}}});
  check({.key_dim = 256, .value_dim = 8, .sequences = {{1, 33}}});
}

TEST(MetalPagedAttention, Prompts) {
  for (const FloatType type : kTypes)
    for (const int dim : {64, 128, 256})
      check({.type = type, .key_dim = dim, .value_dim = dim, .sequences = {{21, 70}}});
  check({.heads = 6,
         .kv_heads = 2,
         .key_dim = 72,
         .value_dim = 40,
         .sequences = {{40, 290}, {1, 9}}});
  check({.heads = 2, .kv_heads = 1, .sequences = {{300, 300}}, .window_left = 100});
  check({.heads = 2,
         .kv_heads = 1,
         .block_size = 7,
         .sequences = {{30, 600}},
         .window_left = 20,
         .softcap = 3.0f,
         .sinks = true,
         .alibi = true});
}

TEST(MetalPagedAttention, GroupsOfHeads) {
  const std::vector<Sequence> sequences = {{1, 270}};
  check({.heads = 1, .kv_heads = 1, .sequences = sequences});
  check({.heads = 6, .kv_heads = 2, .sequences = sequences});
  check({.heads = 8, .kv_heads = 1, .sequences = sequences});
  check(
      {.heads = 20, .kv_heads = 2, .sequences = {{1, 30}}});  // ten: items of eight and of two rows
}

TEST(MetalPagedAttention, ContextsOnBothSidesOfEdges) {
  for (const int context : {1, 2, 255, 256, 257, 512, 513, 700})
    check({.heads = 2, .kv_heads = 1, .sequences = {{1, context}}});
}

TEST(MetalPagedAttention, BlockSizes) {
  for (const int block_size : {1, 3, 7, 16, 32, 100, 544})
    check({.heads = 2, .kv_heads = 2, .block_size = block_size, .sequences = {{1, 280}, {2, 19}}});
}

TEST(MetalPagedAttention, WindowsAndChunksOfTheContext) {
  for (const int64_t left : {0, 1, 5, 255, 256, 300})
    check({.heads = 2, .kv_heads = 1, .sequences = {{1, 600}, {1, 3}}, .window_left = left});
  for (const int64_t step : {1, 100, 256, 300})
    check({.heads = 2, .kv_heads = 1, .sequences = {{1, 601}, {1, 3}}, .window_step = step});
}

// Where the triangle begins: rows before all keys, rows that see all, keys after the row.
TEST(MetalPagedAttention, Triangles) {
  check({.heads = 2, .kv_heads = 1, .sequences = {{9, 9}, {5, 260}, {12, 520}}});
  check({.heads = 2, .kv_heads = 1, .sequences = {{6, 6}}, .shift = -3});
  check({.heads = 2, .kv_heads = 1, .sequences = {{3, 300}}, .window_right = -1});
  check({.heads = 2,
         .kv_heads = 1,
         .sequences = {{4, 300}},
         .window_left = 20,
         .window_right = 3,
         .shift = -10});
}

TEST(MetalPagedAttention, SinksSoftcapsAndSlopes) {
  const std::vector<Sequence> sequences = {{1, 290}, {2, 50}};
  check({.sequences = sequences, .sinks = true});
  check({.sequences = sequences, .softcap = 2.0f});
  check({.sequences = sequences, .alibi = true});
  check({.type = FloatType::kBf16,
         .sequences = sequences,
         .window_left = 30,
         .softcap = 2.0f,
         .sinks = true,
         .alibi = true});
  check({.sequences = {{3, 3}}, .sinks = true, .shift = -2});  // rows that see the sink alone
}

// Rows have the bits that they have alone, whatever else is in the step, however a prompt is cut,
// and whichever of the two kernels has them: of 60 tokens 32 rows at a time, of one 2.
TEST(MetalPagedAttention, RowsHaveTheirBitsAlone) {
  for (const FloatType type : {FloatType::kF32, FloatType::kBf16}) {
    const std::vector<Sequence> sequences = {{1, 300}, {60, 280}, {3, 20}, {2, 513}};
    Step all({.type = type, .sequences = sequences, .sinks = true});
    const Result together = attend_on_emulator(all, false);
    const size_t row = size_t(all.c.heads) * all.c.value_dim * float_type_bytes(type);
    for (const int t : {0, 1, 2, 30, 36, 37, 60, 61, 63, 64, 65}) {
      Step one = all;
      const int s = t < 1 ? 0 : (t < 61 ? 1 : (t < 64 ? 2 : 3));
      one.layout.num_tokens = one.layout.num_sequences = 1;
      one.layout.positions = {all.layout.positions[t]};
      one.layout.cu_seqlens = {0, 1};
      one.layout.seq_lens = {all.layout.seq_lens[s]};
      one.layout.block_offsets = {all.layout.block_offsets[s], all.layout.block_offsets[s + 1]};
      one.q.assign(all.q.begin() + t * 256, all.q.begin() + (t + 1) * 256);
      one.params.sinks = one.sinks.data();
      const Result alone = attend_on_emulator(one, false);
      EXPECT_EQ(std::memcmp(alone.out.data(), &together.out[t * row], row), 0) << t;
    }
  }
}

TEST(MetalPagedAttention, Codes) {
  for (const KvType codes : {KvType::kInt8, KvType::kFp8})
    for (const FloatType type : kTypes) {
      check({.type = type, .sequences = {{1, 300}, {9, 40}}, .codes = codes});
      check({.type = type,
             .key_dim = 128,
             .value_dim = 72,
             .sequences = {{30, 290}},
             .codes = codes});
    }
  check({.sequences = {{1, 290}, {20, 50}},
         .window_left = 30,
         .softcap = 2.0f,
         .sinks = true,
         .alibi = true,
         .codes = KvType::kInt8});
}

// One token's many heads of a group are shared out by chunks, as few rows are.
TEST(MetalPagedAttention, WideHeadsAndLatents) {
  for (const FloatType type : kTypes) {
    check({.type = type, .key_dim = 512, .value_dim = 512, .sequences = {{1, 40}, {5, 20}}});
    check({.type = type,
           .heads = 20,
           .kv_heads = 1,
           .key_dim = 576,
           .value_dim = 512,
           .sequences = {{1, 300}, {3, 20}},
           .values_in_keys = true});
  }
  check({.key_dim = 576, .value_dim = 264, .sequences = {{1, 33}}});
  check({.heads = 3,
         .kv_heads = 1,
         .key_dim = 40,
         .value_dim = 24,
         .sequences = {{1, 33}, {8, 8}},
         .codes = KvType::kFp8,
         .values_in_keys = true});
}

TEST(MetalPagedAttention, RefusesWhatItHasNoKernelFor) {
  const Step step({.sequences = {{1, 4}}});
  const auto refuses = [&](auto change) {
    AttentionKernelParams params = step.params;
    change(params);
    EXPECT_THROW(attention_metal(params, step.layout, {}), std::invalid_argument);
  };
  refuses([](auto& p) { p.kv_type = KvType::kBf16; });
  refuses([](auto& p) { p.key_dim = 584; });
  refuses([](auto& p) { p.value_dim = 60; });
}

}  // namespace
}  // namespace quire::emulator::testing
