#include "ops/gated_delta_rule/gated_delta_rule_metal.h"

#include "harness.h"
#include "launch.h"
#include "oracles.h"
#include "recurrent_step.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

constexpr int kSlots = 4;

struct Case {
  FloatType type = FloatType::kF32;
  int k_heads = 1, v_heads = 2, k_dim = 64, v_dim = 32;
  std::vector<Chunk> chunks = {};
  bool heads_take_turns = false;

  int qkv_row() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
  int gates_row() const { return 2 * v_heads + 3; }
};

struct Data {
  explicit Data(const Case& c) {
    const int tokens = RecurrentStep(c.chunks).tokens();
    qkv = random_floats(tokens * c.qkv_row(), c.type, 1);
    gates = random_floats(tokens * c.gates_row(), c.type, 2, 2.0f);
    a_log = random_floats(c.v_heads, FloatType::kF32, 3);
    dt_bias = random_floats(c.v_heads, FloatType::kF32, 4, 3.0f);
    state = random_floats(kSlots * c.v_heads * c.v_dim * c.k_dim, FloatType::kF32, 5);
  }
  std::vector<float> qkv, gates, a_log, dt_bias, state;
};

struct Result {
  std::vector<uint8_t> y;
  std::vector<float> state;
};

Result walk(const Case& c, Data data) {
  RecurrentStep step(c.chunks);
  GatedDeltaRuleMetal delta = gated_delta_rule_metal({.type = c.type,
                                                      .k_heads = c.k_heads,
                                                      .v_heads = c.v_heads,
                                                      .k_dim = c.k_dim,
                                                      .v_dim = c.v_dim,
                                                      .heads_take_turns = c.heads_take_turns,
                                                      .gates_row = c.gates_row(),
                                                      .a_column = 1,
                                                      .b_column = c.v_heads + 2},
                                                     static_cast<int64_t>(c.chunks.size()));
  EXPECT_EQ(delta.call.kernel.find(std::string("gated_delta_rule_") + name(c.type)), 0u);
  Result result = {unwritten(step.tokens() * c.v_heads * c.v_dim, c.type), data.state};
  auto qkv = encode(data.qkv, c.type), gates = encode(data.gates, c.type);
  run_in_all_orders(launch_of(delta.call, {{kDeltaParams, buffer_of(delta.params)},
                                           {kDeltaCuSeqlens, buffer_of(step.cu_seqlens)},
                                           {kDeltaPositions, buffer_of(step.positions)},
                                           {kDeltaStateSlots, buffer_of(step.slots)},
                                           {kDeltaQkv, buffer_of(qkv)},
                                           {kDeltaGates, buffer_of(gates)},
                                           {kDeltaALog, buffer_of(data.a_log)},
                                           {kDeltaDtBias, buffer_of(data.dt_bias)},
                                           {kDeltaState, buffer_of(result.state)},
                                           {kDeltaY, buffer_of(result.y)}}));
  return result;
}

std::vector<float> normed(const float* x, int size, double factor) {
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += double{x[i]} * x[i];
  std::vector<float> out(size);
  for (int i = 0; i < size; ++i) out[i] = static_cast<float>(x[i] / std::sqrt(sum + 1e-6) * factor);
  return out;
}

void check(const Case& c) {
  const Data data(c);
  const RecurrentStep step(c.chunks);
  const Result got = walk(c, data);
  const auto y = decode(got.y, c.type);
  std::vector<float> own, own_state;
  std::vector<double> want, want_state;
  std::vector<float> untouched = data.state;
  for (size_t s = 0; s < c.chunks.size(); ++s) {
    if (c.chunks[s].slot < 0 || c.chunks[s].tokens == 0) continue;
    for (int h = 0; h < c.v_heads; ++h) {
      const size_t at = size_t(c.chunks[s].slot * c.v_heads + h) * c.v_dim * c.k_dim;
      const size_t size = size_t(c.v_dim) * c.k_dim;
      std::vector<double> state(data.state.begin() + at, data.state.begin() + at + size);
      if (c.chunks[s].context == 0) state.assign(size, 0.0);
      for (int t = step.cu_seqlens[s]; t < step.cu_seqlens[s + 1]; ++t) {
        const float* row = &data.qkv[size_t(t) * c.qkv_row()];
        const int key_head = c.heads_take_turns ? h % c.k_heads : h / (c.v_heads / c.k_heads);
        const auto q = normed(row + key_head * c.k_dim, c.k_dim, 1 / std::sqrt(double(c.k_dim)));
        const auto k = normed(row + (c.k_heads + key_head) * c.k_dim, c.k_dim, 1);
        const float* gates = &data.gates[size_t(t) * c.gates_row()];
        const double raw = double{gates[1 + h]} + data.dt_bias[h];
        const double decay = std::exp(-std::exp(double{data.a_log[h]}) * std::log1p(std::exp(raw)));
        const double beta = 1 / (1 + std::exp(-double{gates[c.v_heads + 2 + h]}));
        const auto out = delta_step(
            state, c.k_dim, c.v_dim,
            {q.data(), k.data(), row + 2 * c.k_heads * c.k_dim + h * c.v_dim, decay, beta});
        want.insert(want.end(), out.begin(), out.end());
        for (int i = 0; i < c.v_dim; ++i) own.push_back(y[(t * c.v_heads + h) * c.v_dim + i]);
      }
      want_state.insert(want_state.end(), state.begin(), state.end());
      own_state.insert(own_state.end(), got.state.begin() + at, got.state.begin() + at + size);
      std::copy_n(got.state.begin() + at, size, untouched.begin() + at);
    }
  }
  expect_near(own, want, rounding(c.type) + 1e-5, 0.1);
  expect_near(own_state, want_state, 1e-5, 0.5);
  EXPECT_TRUE(got.state == untouched) << "slots of other sequences were written";
}

TEST(MetalGatedDeltaRule, AgreesWithFloat64) {
  const std::vector<Chunk> mixed = {{1, 9, 2}, {5, 0, 0}, {3, 4, 3}};
  for (const FloatType type : kTypes) check({.type = type, .chunks = mixed});
  check({.k_heads = 2, .v_heads = 4, .k_dim = 128, .v_dim = 128, .chunks = {{2, 3, 1}, {1, 0, 0}}});
  check({.k_heads = 2, .v_heads = 6, .k_dim = 8, .chunks = mixed, .heads_take_turns = true});
  check({.k_dim = 256, .v_dim = 40, .chunks = mixed});
  check({.v_heads = 3, .k_dim = 36, .v_dim = 20, .chunks = mixed});
  check({.k_dim = 4, .v_dim = 8, .chunks = mixed});
  check({.chunks = {{2, 3, 1}, {2, 5, -1}, {1, 0, 0}}});  // a sequence that pads
  check({.v_heads = 1, .chunks = {{40, 0, 1}}});
}

// However a prompt is cut.
TEST(MetalGatedDeltaRule, CutsChangeNoBits) {
  const Case whole = {.type = FloatType::kF16, .v_dim = 40, .chunks = {{7, 0, 1}}};
  const Data data(whole);
  const Result at_once = walk(whole, data);
  std::vector<uint8_t> y;
  std::vector<float> state = data.state;
  int done = 0;
  for (const int tokens : {3, 1, 3}) {
    Case part = whole;
    part.chunks = {{tokens, done, 1}};
    Data now = data;
    const auto rows = [&](const std::vector<float>& all, int row) {
      return std::vector<float>(all.begin() + done * row, all.begin() + (done + tokens) * row);
    };
    now.qkv = rows(data.qkv, whole.qkv_row());
    now.gates = rows(data.gates, whole.gates_row());
    now.state = state;
    const Result result = walk(part, now);
    y.insert(y.end(), result.y.begin(), result.y.end());
    state = result.state;
    done += tokens;
  }
  EXPECT_TRUE(y == at_once.y);
  EXPECT_EQ(std::memcmp(state.data(), at_once.state.data(), state.size() * 4), 0);
}

TEST(MetalGatedDeltaRule, RefusesKeysThatItHasNoKernelFor) {
  for (const int64_t dim : {0, 6, 260})
    EXPECT_THROW(gated_delta_rule_metal({.k_dim = dim}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace quire::emulator::testing
