#include "ops/causal_conv1d/causal_conv1d_metal.h"

#include "harness.h"
#include "launch.h"
#include "recurrent_step.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

constexpr int kSlots = 5;

struct Case {
  FloatType type = FloatType::kF32;
  int taps = 4, channels = 40, row = 48;
  std::vector<Chunk> chunks = {};
};

struct Data {
  explicit Data(const Case& c)
      : x(random_floats(RecurrentStep(c.chunks).tokens() * c.row, c.type, 1)),
        weight(random_floats(c.taps * c.channels, FloatType::kF32, 2)),
        state(random_floats(kSlots * (c.taps - 1) * c.channels, c.type, 3)) {}
  std::vector<float> x, weight, state;
};

// y and the state after the step.
struct Result {
  std::vector<uint8_t> y, state;
};

Result convolve(const Case& c, const Data& data) {
  RecurrentStep step(c.chunks);
  CausalConv1dMetal conv =
      causal_conv1d_metal({.type = c.type, .kernel = c.taps, .channels = c.channels, .row = c.row},
                          static_cast<int64_t>(c.chunks.size()), step.longest);
  EXPECT_EQ(conv.call.kernel, std::string("causal_conv1d_") + name(c.type));
  Result result = {unwritten(step.tokens() * c.channels, c.type), encode(data.state, c.type)};
  auto x = encode(data.x, c.type);
  auto weight = data.weight;
  run_in_all_orders(launch_of(conv.call, {{kConvParams, buffer_of(conv.params)},
                                          {kConvCuSeqlens, buffer_of(step.cu_seqlens)},
                                          {kConvPositions, buffer_of(step.positions)},
                                          {kConvStateSlots, buffer_of(step.slots)},
                                          {kConvX, buffer_of(x)},
                                          {kConvWeight, buffer_of(weight)},
                                          {kConvY, buffer_of(result.y)},
                                          {kConvState, buffer_of(result.state)}}));
  return result;
}

void check(const Case& c) {
  const Data data(c);
  const RecurrentStep step(c.chunks);
  const Result got = convolve(c, data);
  const auto y = decode(got.y, c.type);
  auto state = data.state;
  std::vector<float> own;
  std::vector<double> want;
  for (size_t s = 0; s < c.chunks.size(); ++s) {
    const Chunk& chunk = c.chunks[s];
    const int begin = step.cu_seqlens[s];
    if (chunk.slot < 0) continue;
    for (int ch = 0; ch < c.channels; ++ch) {
      std::vector<float> inputs;  // the history first
      for (int j = 0; j + 1 < c.taps; ++j)
        inputs.push_back(chunk.context == 0
                             ? 0.0f
                             : data.state[(chunk.slot * (c.taps - 1) + j) * c.channels + ch]);
      for (int t = 0; t < chunk.tokens; ++t) inputs.push_back(data.x[(begin + t) * c.row + ch]);
      for (int t = 0; t < chunk.tokens; ++t) {
        double sum = 0;
        for (int j = 0; j < c.taps; ++j)
          sum += double{data.weight[j * c.channels + ch]} * inputs[t + j];
        want.push_back(sum / (1 + std::exp(-sum)));
        own.push_back(y[(begin + t) * c.channels + ch]);
      }
      for (int j = 0; j + 1 < c.taps; ++j)
        state[(chunk.slot * (c.taps - 1) + j) * c.channels + ch] = inputs[chunk.tokens + j];
    }
  }
  expect_near(own, want, rounding(c.type) + 4e-6, 0.5);  // sums of eight products
  EXPECT_TRUE(decode(got.state, c.type) == state);
}

TEST(MetalCausalConv1d, AgreesWithFloat64) {
  const std::vector<Chunk> mixed = {{1, 7, 2}, {3, 0, 0}, {130, 5, 4}, {64, 0, 3}, {2, 1, 1}};
  for (const FloatType type : kTypes) check({.type = type, .chunks = mixed});
  for (const int taps : {2, 3, 8}) check({.taps = taps, .chunks = mixed});
  check({.channels = 300, .row = 300, .chunks = {{1, 3, 0}, {65, 0, 1}}});
  check({.chunks = {{1, 3, 0}, {5, 3, -1}, {1, 0, 2}}});  // a sequence that pads
}

// However a prompt is cut.
TEST(MetalCausalConv1d, CutsChangeNoBits) {
  const Case whole = {.type = FloatType::kBf16, .chunks = {{9, 0, 1}}};
  const Data data(whole);
  const Result at_once = convolve(whole, data);
  Data rest = data;
  std::vector<uint8_t> y;
  int done = 0;
  for (const int tokens : {2, 1, 6}) {
    const Case part = {.type = FloatType::kBf16, .chunks = {{tokens, done, 1}}};
    Data now = rest;
    now.x.assign(data.x.begin() + done * whole.row, data.x.begin() + (done + tokens) * whole.row);
    const Result result = convolve(part, now);
    y.insert(y.end(), result.y.begin(), result.y.end());
    rest.state = decode(result.state, part.type);
    done += tokens;
  }
  EXPECT_TRUE(y == at_once.y);
  EXPECT_TRUE(encode(rest.state, whole.type) == at_once.state);
}

}  // namespace
}  // namespace quire::emulator::testing
