#include "ops/rope/rope.h"

#include <atomic>
#include <map>
#include <numbers>
#include <span>
#include <sstream>
#include <thread>

#include "base/source_dir.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

BatchLayoutPtr layout_at(std::vector<int32_t> positions) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = static_cast<int64_t>(positions.size());
  layout->positions = std::move(positions);
  return layout;
}

// A product and a fused multiply-add against two products and a sum: three roundings of terms below
// |x| sqrt(2) < 8, then one to the dtype on each side.
Bound bound(mx::Dtype dtype) {
  if (dtype == mx::float32) return {.abs = 2e-6f, .rel = 0};
  return {.abs = 2e-6f, .rel = 2 * unit_roundoff(dtype)};
}

TEST(Rope, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [dim, rotary] : {std::pair(8, 8), std::pair(64, 64), std::pair(80, 32),
                                        std::pair(96, 24), std::pair(6, 2), std::pair(128, 128)}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + std::to_string(dim));
        Context context = make_context(2);
        const auto table = make_rope_table({.rotary_dim = rotary}, 300);
        const auto layout = layout_at({0, 1, 299, 17, 18, 19, 0});
        const mx::array x = random_array({7, 3, dim}, dtype, 1);
        const mx::array y = rope(context, x, layout, table);
        context.use_reference = true;
        EXPECT_TRUE(near(y, rope(context, x, layout, table), bound(dtype)));
        EXPECT_TRUE(kernel_ran(context, "rope", 1));
      }
    }
  }
}

TEST(Rope, AgreesWithMlxRope) {
  const auto table = make_rope_table({.rotary_dim = 32, .theta = 5000.0}, 50);
  const mx::array x = random_array({40, 3, 48}, mx::float32, 1);
  std::vector<int32_t> positions(40);
  for (int t = 0; t < 40; ++t) positions[t] = t + 10;
  const mx::array y = rope(make_context(2), x, layout_at(positions), table);
  const mx::array by_head = mx::expand_dims(mx::transpose(x, {1, 0, 2}), 0);  // [1, H, T, D]
  const mx::array expected = mx::fast::rope(by_head, 32, /*traditional=*/false, 5000.0f, 1.0f, 10);
  // Its angles are float32 products too, but its frequencies are computed in another way: 50 u of
  // angle, times |x| < 5.
  EXPECT_TRUE(near(y, mx::transpose(mx::squeeze(expected, 0), {1, 0, 2}), {.abs = 5e-5f}));
}

// The bits contract: a token's bits depend on the token and its position alone.
TEST(Rope, TokensDoNotDependOnTheBatch) {
  const auto table = make_rope_table({.rotary_dim = 40}, 100);
  std::vector<int32_t> positions(64);
  for (int t = 0; t < 64; ++t) positions[t] = (t * 37) % 100;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = random_array({64, 16, 56}, mx::bfloat16, 1);
    const mx::array all = rope(make_context(3), x, layout_at(positions), table);
    for (const int t : {0, 31, 63}) {
      const auto one = [&](const mx::array& a) {
        return mx::contiguous(mx::slice(a, {t, 0, 0}, {t + 1, 16, 56}));
      };
      const mx::array alone = rope(make_context(1), one(x), layout_at({positions[t]}), table);
      EXPECT_TRUE(same_bits(alone, one(all))) << isa << " token " << t;
    }
  }
}

// ---- against transformers ----

struct Golden {
  std::unordered_map<std::string, mx::array> arrays;
  std::unordered_map<std::string, std::string> facts;
  std::string name;
  const mx::array& operator[](const std::string& key) const { return arrays.at(name + "." + key); }
  std::string fact(const std::string& key, const std::string& absent) const {
    const auto it = facts.find(name + "." + key);
    return it == facts.end() ? absent : it->second;
  }
  double number(const std::string& key, double absent) const {
    return std::stod(fact(key, std::to_string(absent)));
  }
};

std::vector<double> numbers(const std::string& list) {
  std::vector<double> values;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) values.push_back(std::stod(item));
  return values;
}

RopeParams params_of(const Golden& golden) {
  using Scaling = RopeParams::Scaling;
  const std::map<std::string, Scaling> types = {{"default", Scaling::kDefault},
                                                {"linear", Scaling::kLinear},
                                                {"llama3", Scaling::kLlama3},
                                                {"yarn", Scaling::kYarn},
                                                {"longrope", Scaling::kLongrope}};
  RopeParams p;
  p.scaling = types.at(golden.fact("rope_type", ""));
  p.rotary_dim = static_cast<int64_t>(golden.number("rotary_dim", 0));
  p.theta = golden.number("rope_theta", 0);
  const double length = golden.number("max_position_embeddings", 0);
  p.original_max_position_embeddings = golden.number("original_max_position_embeddings", length);
  p.factor = golden.number("factor", length / p.original_max_position_embeddings);
  p.low_freq_factor = golden.number("low_freq_factor", p.low_freq_factor);
  p.high_freq_factor = golden.number("high_freq_factor", p.high_freq_factor);
  p.beta_fast = golden.number("beta_fast", p.beta_fast);
  p.beta_slow = golden.number("beta_slow", p.beta_slow);
  p.mscale = golden.number("mscale", 0);
  p.mscale_all_dim = golden.number("mscale_all_dim", 0);
  p.truncate = golden.fact("truncate", "True") == "True";
  p.attention_factor = golden.number("attention_factor", 0);
  const bool beyond = golden.number("seq_len", 0) > p.original_max_position_embeddings;
  p.extension_factors = numbers(golden.fact(beyond ? "long_factor" : "short_factor", ""));
  return p;
}

// Frequencies, tables and rotated heads, for every kind of scaling. cos and sin are within 1e-6 (of
// float32 angles, which are exact here) where the frequencies have the same bits. Torch's
// vectorised power is off by one unit in the last place for a few, and their angles by that times
// the position.
mx::array table_bound(const RopeFrequencies& frequencies, const mx::array& golden,
                      const std::vector<int32_t>& positions) {
  const auto expected = to_floats(golden);
  std::vector<float> bounds;
  for (const int32_t position : positions) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const float off = std::abs(frequencies.inv_freq[i] - expected[i]);
      bounds.push_back(1e-6f + 1.5f * off * static_cast<float>(position));
    }
  }
  return mx::array(bounds.begin(), {static_cast<int>(bounds.size())});
}

size_t different_bits(const std::vector<float>& a, const std::vector<float>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

// |a - b| / bounds <= 1.
::testing::AssertionResult within(const std::vector<float>& a, const mx::array& b,
                                  const mx::array& bounds) {
  const mx::array x(a.begin(), {static_cast<int>(a.size())});
  return near((x - mx::flatten(b)) / bounds, mx::zeros_like(x), {.abs = 1.0f});
}

TEST(Rope, MatchesTransformers) {
  Golden golden;
  std::tie(golden.arrays, golden.facts) =
      mx::load_safetensors(source_dir() + "/tests/parity/ops/rope.safetensors");
  std::istringstream names(golden.facts.at("cases"));
  int cases = 0;
  while (std::getline(names, golden.name, ',')) {
    SCOPED_TRACE(golden.name);
    const RopeParams params = params_of(golden);
    const RopeFrequencies frequencies = rope_frequencies(params);
    const int half = static_cast<int>(params.rotary_dim / 2);
    const mx::array inv_freq(frequencies.inv_freq.begin(), {half});
    EXPECT_TRUE(near(inv_freq, golden["inv_freq"], {.rel = 1.2e-7f}));
    EXPECT_LE(different_bits(frequencies.inv_freq, to_floats(golden["inv_freq"])), 2u);
    EXPECT_FLOAT_EQ(frequencies.attention_factor,
                    static_cast<float>(golden.number("attention_scaling", 0)));
    std::vector<int32_t> positions;
    for (const float p : to_floats(golden["positions"])) positions.push_back(static_cast<int>(p));
    const auto table =
        make_rope_table(params, *std::max_element(positions.begin(), positions.end()) + 1);
    std::vector<float> cos, sin;
    for (const int64_t p : positions) {
      const float* row = table->all_rows().data() + p * params.rotary_dim;
      cos.insert(cos.end(), row, row + half);
      sin.insert(sin.end(), row + half, row + 2 * half);
    }
    const mx::array bounds = table_bound(frequencies, golden["inv_freq"], positions);
    EXPECT_TRUE(within(cos, golden["cos"], bounds));
    EXPECT_TRUE(within(sin, golden["sin"], bounds));
    const Context context = make_context(2);
    for (const std::string x : {"q", "k"}) {
      const mx::array y = rope(context, golden[x], layout_at(positions), table);
      EXPECT_TRUE(near(y, golden[x + "_out"], {.abs = 5e-6f}));
    }
    ++cases;
  }
  EXPECT_GE(cases, 16);
}

// Whoever asks first and for how many: the bits of a table that was computed at once.
TEST(Rope, RowsAreComputedWhenTheyAreAskedFor) {
  const RopeParams params = {.rotary_dim = 32};
  const int64_t positions = 1000;  // no multiple of what is computed at once
  const auto whole = make_rope_table(params, positions), grown = make_rope_table(params, positions);
  const std::span<const float> expected = whole->all_rows();
  const auto same_until = [&](int64_t end) {
    const float* rows = grown->rows_until(end);
    return std::memcmp(rows, expected.data(), static_cast<size_t>(end * 32) * sizeof(float)) == 0;
  };
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (int first = 1; first <= 4; ++first)
    threads.emplace_back([&, first] {
      for (int64_t end = first; end <= positions; end += 37) different += !same_until(end);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
  EXPECT_TRUE(same_until(positions));
  EXPECT_EQ(grown->rows_until(1), grown->all_rows().data());
}

// The pairs that turn do so as if all did; the others stay.
TEST(Rope, OnlySomePairsTurn) {
  const RopeParams all = {.rotary_dim = 32, .theta = 5000.0};
  RopeParams some = all;
  some.turning_pairs = 5;
  const std::vector<float> expected = rope_frequencies(all).inv_freq;
  const std::vector<float> actual = rope_frequencies(some).inv_freq;
  ASSERT_EQ(actual.size(), 16u);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i], i < 5 ? expected[i] : 0.0f) << i;
  const mx::array x = random_array({2, 3, 40}, mx::float32, 3, 4.0f);
  const auto turned = [&](const RopeParams& params) {
    const mx::array y = rope(make_context(2), x, layout_at({7, 39}), make_rope_table(params, 40));
    return mx::contiguous(y);
  };
  // Pairs are (i, i + 16).
  const auto columns = [](const mx::array& a, int begin, int end) {
    return mx::contiguous(mx::slice(a, {0, 0, begin}, {2, 3, end}));
  };
  const mx::array y = turned(some), whole = turned(all);
  for (const int first : {0, 16}) {
    EXPECT_TRUE(same_bits(columns(y, first, first + 5), columns(whole, first, first + 5)));
    EXPECT_TRUE(same_bits(columns(y, first + 5, first + 16), columns(x, first + 5, first + 16)));
  }
  EXPECT_TRUE(same_bits(columns(y, 32, 40), columns(x, 32, 40)));
  some.turning_pairs = 17;
  EXPECT_THROW(rope_frequencies(some), std::invalid_argument);
}

// Llama 4 Scout's bounds are equal: frequencies are kept or divided, and none is blended.
TEST(Rope, Llama3OfEqualBoundsBlendsNothing) {
  RopeParams p;
  p.scaling = RopeParams::Scaling::kLlama3;
  p.rotary_dim = 128;
  p.theta = 5e5;
  p.factor = 16;
  p.low_freq_factor = p.high_freq_factor = 1;
  p.original_max_position_embeddings = 8192;
  const auto found = rope_frequencies(p).inv_freq;
  for (int i = 0; i < 64; ++i) {
    const double plain = std::pow(5e5, -i / 64.0);
    const double expected = 2 * M_PI / plain < 8192 ? plain : plain / 16;
    EXPECT_NEAR(found[i], expected, 1e-6 * expected) << i;
  }
  // A context as long as one of the waves, to the last bit.
  p.original_max_position_embeddings = 1.0f / found[20] * static_cast<float>(2 * std::numbers::pi);
  EXPECT_FLOAT_EQ(rope_frequencies(p).inv_freq[20], found[20] / 16);
}

TEST(Rope, RefusesParametersThatCannotBe) {
  using Scaling = RopeParams::Scaling;
  EXPECT_THROW(rope_frequencies({}), std::invalid_argument);
  EXPECT_THROW(rope_frequencies({.rotary_dim = 7}), std::invalid_argument);
  EXPECT_THROW(rope_frequencies({.rotary_dim = 8, .theta = 0}), std::invalid_argument);
  EXPECT_THROW(rope_frequencies({.scaling = Scaling::kLinear, .rotary_dim = 8, .factor = 0}),
               std::invalid_argument);
  EXPECT_THROW(rope_frequencies({.scaling = Scaling::kYarn, .rotary_dim = 8}),
               std::invalid_argument);
  RopeParams longrope{.scaling = Scaling::kLongrope, .rotary_dim = 8};
  longrope.original_max_position_embeddings = 100;
  longrope.extension_factors = {1, 2, 3};
  EXPECT_THROW(rope_frequencies(longrope), std::invalid_argument);
  EXPECT_THROW(make_rope_table({.rotary_dim = 8}, 0), std::invalid_argument);
}

TEST(Rope, NamesTheArgumentThatDoesNotFit) {
  const auto table = make_rope_table({.rotary_dim = 8}, 4);
  const auto refused = [&](const mx::array& x, const std::vector<int32_t>& positions) {
    try {
      rope(make_context(1), x, layout_at(positions), table);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused(mx::zeros({2, 1, 8}), {0, 3}), "accepted");
  EXPECT_NE(refused(mx::zeros({3, 1, 8}), {0, 3}).find("rope: x has shape"), std::string::npos);
  EXPECT_NE(refused(mx::zeros({2, 8}), {0, 3}).find("rope: x has shape"), std::string::npos);
  EXPECT_NE(refused(mx::zeros({2, 1, 6}), {0, 3}).find("rope: x has shape"), std::string::npos);
  EXPECT_NE(refused(mx::zeros({2, 1, 8}, mx::int32), {0, 3}).find("rope: x is"), std::string::npos);
  EXPECT_NE(refused(mx::zeros({2, 1, 8}), {0, 4}).find("layout"), std::string::npos);
  EXPECT_NE(refused(mx::zeros({2, 1, 8}), {-1, 0}).find("layout"), std::string::npos);
}

// Of layers that do not rotate: the same bits, whatever the head and the position.
TEST(Rope, AStillTableLeavesHeadsAsTheyAre) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int dim : {8, 24, 64, 200}) {
        const auto table = make_still_rope_table(dim, 40);
        const mx::array x = random_array({3, 2, dim}, dtype, 1, 4.0f);
        EXPECT_TRUE(same_bits(rope(make_context(2), x, layout_at({0, 7, 39}), table), x))
            << isa << " " << dim;
      }
    }
  }
  EXPECT_THROW(make_still_rope_table(8, 0), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
