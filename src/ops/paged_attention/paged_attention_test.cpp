#include "ops/paged_attention/paged_attention.h"

#include <sstream>

#include "base/source_dir.h"
#include "ops/paged_attention/attention_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

AttentionParams scaled(const Heads& heads) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(heads.dim))};
}

// p is rounded to the dtype once (relative u, so at most u max|v| in the mean of the values), the
// result once in the kernel and once in the reference. In float32: a score is a sum of D products,
// off by a few u sqrt(D) |q||k| scale, some 1e-6 at |score| < 6, which is the relative error of p;
// values stay below 5.
Bound bound(mx::Dtype dtype) {
  if (dtype == mx::float32) return {.abs = 1e-5f, .rel = 1e-5f};
  const float u = unit_roundoff(dtype);
  return {.abs = 2.0f * u, .rel = 2.0f * u};
}

void expect_matches(const Sequences& sequences, const std::vector<Segment>& segments,
                    const Paging& paging, const AttentionParams& params) {
  Context context = make_context(2);
  const Step step = sequences.step(segments, paging);
  const AttentionWithLse result = attend_with_lse(context, step, params);
  EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, attention_kernel(sequences.dtype())));
  context.use_reference = true;
  const AttentionWithLse expected = attend_with_lse(context, step, params);
  EXPECT_TRUE(near(result.out, expected.out, bound(sequences.dtype())));
  // Sums of unrounded probabilities: off by what the scores are.
  EXPECT_TRUE(near(result.lse, expected.lse, {.abs = 1e-5f, .rel = 1e-5f}));
  EXPECT_EQ(context.kernels->count("paged_attention", "reference"), 1);
}

// Runs `body` for each instruction set.
template <class Body>
void each_isa(const Body& body) {
  for (const auto& isa : isas_to_test()) {
    SCOPED_TRACE(isa);
    const ForcedIsa forced(isa);
    body();
  }
}

TEST(PagedAttention, MatchesItsReferenceForEveryDtypeAndHeadDim) {
  each_isa([] {
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int dim : {8, 16, 24, 64, 80, 96, 112, 128, 192, 256, 512}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " D " + std::to_string(dim));
        const Heads heads{.heads = 4, .kv_heads = 2, .dim = dim, .value_dim = dim};
        const Sequences sequences(heads, dtype, {37, 261, 70});
        expect_matches(sequences, {{0, 36, 1}, {1, 255, 6}, {2, 0, 70}}, {.order = 3},
                       scaled(heads));
      }
    }
  });
}

TEST(PagedAttention, MatchesItsReferenceForTheUsualBatches) {
  const std::vector<std::vector<std::pair<int, int>>> batches = {// (queries, context)
                                                                 {{1, 523}, {1, 37}, {1, 2011}},
                                                                 {{1, 1}, {1, 128}, {1, 2048}},
                                                                 {{1, 1328}, {5, 18}, {129, 463}},
                                                                 {{8, 128}, {16, 256}},
                                                                 {{32, 512}, {64, 1024}}};
  for (const auto& batch : batches) {
    for (const auto& [heads, kv_heads] : {std::pair(4, 4), std::pair(8, 2)}) {
      const Heads shape{.heads = heads, .kv_heads = kv_heads, .dim = 64, .value_dim = 64};
      std::vector<int> lengths;
      std::vector<Segment> segments;
      for (const auto& [queries, context] : batch) {
        segments.push_back({static_cast<int>(lengths.size()), context - queries, queries});
        lengths.push_back(context);
      }
      const Sequences sequences(shape, mx::bfloat16, lengths);
      for (const int64_t window : {-1, 128}) {
        SCOPED_TRACE(std::to_string(heads) + " heads, window " + std::to_string(window));
        AttentionParams params = scaled(shape);
        params.window_left = window;
        expect_matches(sequences, segments, {.order = 5}, params);
      }
    }
  }
}

TEST(PagedAttention, MatchesItsReferenceForWindowsCapsAndSinks) {
  each_isa([] {
    const Heads heads{.heads = 8, .kv_heads = 2, .dim = 32, .value_dim = 48};
    for (const mx::Dtype dtype : float_dtypes()) {
      const Sequences sequences(heads, dtype, {700, 100, 9});
      const std::vector<Segment> segments = {{1, 99, 1}, {2, 0, 9}, {0, 230, 80}};
      for (const int64_t window : {-1, 0, 1, 31, 32, 100, 256, 10000}) {
        for (const float softcap : {0.0f, 2.0f}) {
          for (const bool sinks : {false, true}) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + " window " + std::to_string(window) +
                         " softcap " + std::to_string(softcap) + (sinks ? " sinks" : ""));
            AttentionParams params = scaled(heads);
            params.window_left = window;
            params.softcap = softcap;
            if (sinks)
              params.sinks = mx::array({0.0f, 2.0f, -5.0f, 1.5f, -1.5f, 8.0f, 0.5f, -90.0f});
            expect_matches(sequences, segments, {.block_size = 8, .order = 9}, params);
          }
        }
      }
    }
  });
}

TEST(PagedAttention, MatchesItsReferenceForRightWindowsBiasesAndRowsThatSeeNothing) {
  each_isa([] {
    const Heads heads{.heads = 8, .kv_heads = 2, .dim = 32, .value_dim = 48};
    for (const mx::Dtype dtype : float_dtypes()) {
      const Sequences sequences(heads, dtype, {300, 100, 9});
      const std::vector<Segment> segments = {{1, 98, 1}, {2, 0, 9}, {0, 230, 30}};
      for (const int shift : {0, -50}) {
        for (const int64_t left : {-1, 40}) {
          for (const int64_t right : {-1, 0, 31, 300}) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + " windows " + std::to_string(left) + " " +
                         std::to_string(right) + " shift " + std::to_string(shift));
            AttentionParams params = scaled(heads);
            params.window_left = left;
            params.window_right = right;
            params.causal = false;
            const Paging paging{.block_size = 8, .order = 9, .whole_context = true, .shift = shift};
            expect_matches(sequences, segments, paging, params);
            params.alibi_slopes = slopes_of(heads.heads);
            params.softcap = right == 31 ? 3.0f : 0.0f;
            if (right == 300) params.sinks = mx::zeros({heads.heads});
            expect_matches(sequences, segments, paging, params);
          }
        }
      }
    }
  });
}

TEST(PagedAttention, EverySequenceMayHaveItsOwnSlopes) {
  const Heads heads{};
  const Sequences sequences(heads, mx::float32, {40, 300});
  const std::vector<Segment> segments = {{0, 39, 1}, {1, 200, 100}};
  AttentionParams params = scaled(heads);
  params.alibi_slopes = mx::concatenate(
      {mx::zeros({1, heads.heads}), mx::reshape(slopes_of(heads.heads), {1, heads.heads})}, 0);
  expect_matches(sequences, segments, {}, params);
  const mx::array both = attend(make_context(2), sequences.step(segments), params);
  params.alibi_slopes = std::nullopt;
  const mx::array none = attend(make_context(2), sequences.step({segments[0]}), params);
  // No slope is no bias, but for the scale's place in the arithmetic.
  EXPECT_TRUE(near(rows_of(both, 0, 1), none, {1e-6f, 1e-6f}));
}

// All of a batch's rows before the first key: zeros, and no key's weight.
TEST(PagedAttention, RowsBeforeTheFirstKeyAreZero) {
  each_isa([] {
    for (const mx::Dtype dtype : float_dtypes()) {
      const Heads heads{};
      const Step step = Sequences(heads, dtype, {90}).step({{0, 0, 90}}, {.shift = -30});
      const AttentionWithLse result = attend_with_lse(make_context(2), step, {.scale = 0.1f});
      for (const float x : to_floats(rows_of(result.out, 0, 30))) ASSERT_EQ(x, 0.0f);
      const auto lse = to_floats(result.lse);
      for (int h = 0; h < heads.heads; ++h)
        for (int t = 0; t < 90; ++t)
          ASSERT_EQ(std::isfinite(lse[h * 90 + t]), t >= 30) << h << " " << t;
    }
  });
}

TEST(PagedAttention, MatchesItsReferenceForEveryGroupAndBlockSize) {
  for (const auto& [heads, kv_heads] :
       {std::pair(1, 1), std::pair(3, 1), std::pair(6, 2), std::pair(5, 5), std::pair(16, 1),
        std::pair(40, 8), std::pair(160, 1)}) {
    for (const int block_size : {1, 3, 16, 256, 1024}) {
      SCOPED_TRACE(std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads, block size " +
                   std::to_string(block_size));
      const Heads shape{.heads = heads, .kv_heads = kv_heads, .dim = 16, .value_dim = 24};
      const Sequences sequences(shape, mx::float32, {70, 300});
      expect_matches(sequences, {{1, 299, 1}, {0, 0, 70}, {1, 280, 3}},
                     {.block_size = block_size, .order = 2, .spare_blocks = 1}, scaled(shape));
    }
  }
}

// The third side of the triangle: MLX's own attention over the same keys, contiguous.
TEST(PagedAttention, AgreesWithMlxAttention) {
  const Heads heads{.heads = 8, .kv_heads = 2, .dim = 64, .value_dim = 64};
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int count : {1, 40, 300}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " queries " + std::to_string(count));
      const Sequences sequences(heads, dtype, {300});
      // One block holds the whole sequence, so that the pool is the tensor.
      const Step step =
          sequences.step({{0, 300 - count, count}}, {.block_size = 300, .spare_blocks = 0});
      const auto by_head = [](const mx::array& x) {
        return mx::astype(mx::transpose(x, {0, 2, 1, 3}), mx::float32);
      };
      AttentionParams params = scaled(heads);
      params.sinks = mx::array({0.0f, 1.0f, -1.0f, 0.5f, 2.0f, 0.0f, 3.0f, -4.0f});
      const mx::array expected = mx::fast::scaled_dot_product_attention(
          by_head(mx::expand_dims(step.q, 0)), by_head(step.kv.k), by_head(step.kv.v), params.scale,
          "causal", {}, params.sinks);
      const mx::array out = attend(make_context(2), step, params);
      EXPECT_TRUE(near(out, mx::squeeze(mx::transpose(expected, {0, 2, 1, 3}), 0), bound(dtype)));
    }
  }
}

TEST(PagedAttention, ASinkIsCountedOnce) {
  // One key of value 1 and score 0 beside a sink of logit 0: half the weight each.
  const Sequences zeros({.heads = 1, .kv_heads = 1, .dim = 8, .value_dim = 8}, mx::float32, {600});
  Step step = zeros.step({{0, 599, 1}});
  step.q = mx::zeros_like(step.q);
  step.kv.v = mx::ones_like(step.kv.v);
  AttentionParams params{.scale = 1.0f, .sinks = mx::array({std::log(600.0f)})};
  EXPECT_TRUE(near(attend(make_context(2), step, params), mx::full({1, 1, 8}, 0.5f), {1e-6f, 0}));
}

TEST(PagedAttention, LargeScoresStayFinite) {
  const Heads heads{};
  const Sequences sequences(heads, mx::float32, {600});
  AttentionParams params{.scale = 300.0f};  // scores to +-10^4
  const Step step = sequences.step({{0, 500, 100}});
  for (const float x : to_floats(attend(make_context(2), step, params)))
    ASSERT_TRUE(std::isfinite(x));
}

TEST(PagedAttention, EmptyStepsAndSequencesAreFine) {
  const Heads heads{};
  const Sequences sequences(heads, mx::float32, {5, 5});
  const mx::array none = attend(make_context(2), sequences.step({}), scaled(heads));
  EXPECT_EQ(none.shape(), (mx::Shape{0, heads.heads, heads.value_dim}));
  Step step = sequences.step({{0, 4, 1}, {1, 0, 0}, {1, 0, 5}});
  Context context = make_context(2);
  const mx::array out = attend(context, step, scaled(heads));
  context.use_reference = true;
  EXPECT_TRUE(near(out, attend(context, step, scaled(heads)), bound(mx::float32)));
  // A row that sees no key is 0.
  auto layout = std::make_shared<BatchLayout>(*step.layout);
  layout->seq_lens[0] = 0;
  step.layout = layout;
  context.use_reference = false;
  for (const float x : to_floats(rows_of(attend(context, step, scaled(heads)), 0, 1)))
    EXPECT_EQ(x, 0.0f);
}

// The key and value pool may be of another dtype than the queries.
TEST(PagedAttention, QueriesHaveTheirOwnDtype) {
  if (on_metal()) GTEST_SKIP() << "Metal kernels read floats of the queries' dtype alone";
  const Heads heads{};
  const Sequences sequences(heads, mx::bfloat16, {300});
  Step step = sequences.step({{0, 290, 10}});
  step.q = mx::astype(step.q, mx::float32);
  Context context = make_context(2);
  const mx::array out = attend(context, step, scaled(heads));
  EXPECT_EQ(out.dtype(), mx::float32);
  context.use_reference = true;
  EXPECT_TRUE(near(out, attend(context, step, scaled(heads)), bound(mx::bfloat16)));
}

void expect_refused(const std::string& what, const Step& step, const AttentionParams& params) {
  try {
    paged_attention(make_context(1), step.q, step.kv, step.layout, params);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TEST(PagedAttention, NamesTheArgumentThatDoesNotFit) {
  const Sequences sequences({}, mx::float32, {20});
  const Step good = sequences.step({{0, 10, 10}});
  const auto with = [&](auto change) {
    Step step = good;
    change(step);
    return step;
  };
  expect_refused("q has shape", with([](Step& s) { s.q = mx::zeros({9, 4, 64}); }), {});
  expect_refused("q is", with([](Step& s) { s.q = mx::zeros({10, 4, 64}, mx::int32); }), {});
  expect_refused("q has 3 heads", with([](Step& s) { s.q = mx::zeros({10, 3, 64}); }), {});
  expect_refused("kv.k has shape", with([](Step& s) { s.q = mx::zeros({10, 4, 32}); }), {});
  expect_refused("kv.v is", with([](Step& s) { s.kv.v = mx::astype(s.kv.v, mx::float16); }), {});
  expect_refused("kv.v has shape", with([](Step& s) { s.kv.v = mx::zeros({1, 2, 3, 4}); }), {});
  expect_refused("head_dim 4", with([](Step& s) {
                   s.q = mx::zeros({10, 4, 4});
                   s.kv = {mx::zeros({5, 16, 2, 4}), mx::zeros({5, 16, 2, 4})};
                 }),
                 {});
  expect_refused("layout", with([](Step& s) {
                   auto layout = std::make_shared<BatchLayout>(*s.layout);
                   layout->positions[0] = 3;
                   s.layout = layout;
                 }),
                 {});
  expect_refused("scale", good, {.scale = -1.0f});
  expect_refused("scale", good, {.scale = NAN});
  expect_refused("softcap", good, {.softcap = -1.0f});
  expect_refused("sinks has shape", good, {.sinks = mx::zeros({3})});
  expect_refused("alibi_slopes has shape", good, {.alibi_slopes = mx::zeros({3})});
  expect_refused("alibi_slopes has shape", good, {.alibi_slopes = mx::zeros({2, 4})});
  expect_refused("alibi_slopes is", good, {.alibi_slopes = mx::zeros({4}, mx::float16)});
  expect_refused("window", good, {.window_right = -2});
  expect_refused("sinks is", good, {.sinks = mx::zeros({4}, mx::float16)});
}

// ---- against transformers ----

struct Golden {
  std::unordered_map<std::string, mx::array> arrays;
  std::unordered_map<std::string, std::string> facts;
  std::string name;
  bool has(const std::string& key) const { return arrays.count(name + "." + key) != 0; }
  const mx::array& operator[](const std::string& key) const { return arrays.at(name + "." + key); }
  float number(const std::string& key, float absent) const {
    const auto it = facts.find(name + "." + key);
    return it == facts.end() ? absent : std::stof(it->second);
  }
};

std::vector<int> integers(const mx::array& x) {
  std::vector<int> values;
  for (const float value : to_floats(x)) values.push_back(static_cast<int>(value));
  return values;
}

// The golden keys, written into a pool through its slots; what is left of the pool is NaN.
Step golden_step(const Golden& golden, mx::Dtype dtype) {
  const auto queries = integers(golden["cu_seqlens_q"]), keys = integers(golden["cu_seqlens_k"]);
  const int block_size = 4, sequences = static_cast<int>(queries.size()) - 1;
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = queries.back();
  layout->num_sequences = sequences;
  layout->block_size = block_size;
  layout->cu_seqlens.assign(queries.begin(), queries.end());
  layout->block_offsets = {0};
  std::vector<int> slots;
  int blocks = 0;
  for (int s = 0; s < sequences; ++s) {
    const int context = keys[s + 1] - keys[s], count = queries[s + 1] - queries[s];
    for (int i = 0; i < count; ++i) layout->positions.push_back(context - count + i);
    for (int t = 0; t < context; ++t) slots.push_back(blocks * block_size + t);
    layout->seq_lens.push_back(context);
    for (int t = 0; t < context; t += block_size) layout->blocks.push_back(blocks++);
    layout->block_offsets.push_back(blocks);
  }
  const auto pool = [&](const mx::array& rows) {
    const auto from = to_floats(rows);
    const int heads = rows.shape(1), dim = rows.shape(2);
    std::vector<float> values(int64_t{blocks} * block_size * heads * dim, NAN);
    for (size_t t = 0; t < slots.size(); ++t)
      std::copy_n(from.begin() + t * heads * dim, heads * dim,
                  values.begin() + int64_t{slots[t]} * heads * dim);
    return mx::astype(mx::array(values.begin(), {blocks, block_size, heads, dim}), dtype);
  };
  return {mx::astype(golden["q"], dtype), {pool(golden["k"]), pool(golden["v"])}, layout};
}

TEST(PagedAttention, MatchesTransformers) {
  Golden golden;
  std::tie(golden.arrays, golden.facts) =
      mx::load_safetensors(source_dir() + "/tests/parity/ops/attention.safetensors");
  int cases = 0;
  std::istringstream names(golden.facts.at("cases"));
  while (std::getline(names, golden.name, ',')) {
    SCOPED_TRACE(golden.name);
    AttentionParams params{.scale = golden.number("scale", 1),
                           // Theirs counts the query itself.
                           .window_left = static_cast<int64_t>(golden.number("window", 0)) - 1,
                           .softcap = golden.number("softcap", 0)};
    if (golden.has("sinks")) params.sinks = golden["sinks"];
    const Step step = golden_step(golden, mx::float32);
    // Scores of +-100 are known to 100 u at best, and so is the logarithm of p.
    const float tolerance = golden.name == "large_scores" ? 1e-5f : 2e-6f;
    each_isa([&] {
      const mx::array out = attend(make_context(2), step, params);
      EXPECT_TRUE(near(out, golden["out"], {tolerance, tolerance}));
    });
    Context reference = make_context(1);
    reference.use_reference = true;
    EXPECT_TRUE(near(attend(reference, step, params), golden["out"], {tolerance, tolerance}));
    ++cases;
  }
  EXPECT_GE(cases, 19);
}

}  // namespace
}  // namespace quire::ops
