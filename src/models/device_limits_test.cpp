#include "models/device_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"
#include "ops/runtime/test_device.h"

namespace quire::models {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

ModelSpec spec_of(int64_t vocab, int64_t experts, int64_t choices) {
  ModelSpec spec;
  spec.vocab = vocab;
  spec.layers.emplace_back();
  spec.layers[0].ffn = MoeSpec{};
  std::get<MoeSpec>(spec.layers[0].ffn).num_experts = experts;
  std::get<MoeSpec>(spec.layers[0].ffn).route.top_k = choices;
  return spec;
}

TEST(DeviceLimits, WhatAGpuCannotRunIsRefusedByName) {
  const ops::testing::TestDevice gpu("cuda");
  check_device_limits(spec_of(1 << 20, 4096, 256), gpu);
  const auto refusal = [&](const ModelSpec& spec) {
    return [&] { check_device_limits(spec, gpu); };
  };
  EXPECT_THAT(refusal(spec_of((1 << 20) + 1, 1, 1)),
              ThrowsMessage<LoadError>(HasSubstr("1048577 tokens in its vocabulary")));
  EXPECT_THAT(refusal(spec_of(1000, 4097, 1)),
              ThrowsMessage<LoadError>(HasSubstr("4097 experts in a layer")));
  EXPECT_THAT(refusal(spec_of(1000, 4096, 257)),
              ThrowsMessage<LoadError>(HasSubstr("257 experts for a token")));
}

TEST(DeviceLimits, ASwitchThatNoGpuKernelKnowsIsRefusedByName) {
  const ops::testing::TestDevice gpu("cuda");
  const auto expect_refused = [&](const char* name, const auto& turn_on) {
    ModelSpec spec = spec_of(1000, 1, 1);
    spec.layers[0].ffn = MlpSpec{};
    check_device_limits(spec, gpu);
    turn_on(spec);
    EXPECT_THAT([&] { check_device_limits(spec, gpu); }, ThrowsMessage<LoadError>(HasSubstr(name)));
    check_device_limits(spec, *ops::make_cpu_device());
  };
  const auto attention = [](ModelSpec& spec) -> AttentionSpec& {
    return std::get<AttentionSpec>(spec.layers[0].mixer);
  };
  expect_refused("gelu_tanh gates", [](ModelSpec& spec) {
    std::get<MlpSpec>(spec.layers[0].ffn).gate.kind = ops::Gate::Kind::kGeluTanh;
  });
  expect_refused("MLPs without a gate", [](ModelSpec& spec) {
    std::get<MlpSpec>(spec.layers[0].ffn) = {.gate = {.kind = ops::Gate::Kind::kRelu2},
                                             .has_gate = false};
  });
  const NormSpec layer_norm = {.weight = "a", .kind = NormSpec::Kind::kLayer};
  expect_refused("layer norms",
                 [&](ModelSpec& spec) { spec.layers[0].mixer_input_norm = layer_norm; });
  expect_refused("layer norms",
                 [&](ModelSpec& spec) { spec.layers[0].ffn_input_norm = layer_norm; });
  expect_refused("layer norms", [&](ModelSpec& spec) { spec.final_norm = layer_norm; });
  expect_refused("norms of what a part of a layer makes",
                 [](ModelSpec& spec) { spec.layers[0].ffn_output_norm = NormSpec{"a"}; });
  expect_refused("a residual multiplier",
                 [](ModelSpec& spec) { spec.layers[0].residual_multiplier = 0.5f; });
  expect_refused("a scale of a layer's output",
                 [](ModelSpec& spec) { spec.layers[0].output_scale = "a"; });
  expect_refused("norms of all heads", [&](ModelSpec& spec) {
    attention(spec).q_norm = NormSpec{"a"};
    attention(spec).norms_span_heads = true;
  });
  expect_refused("norms of values", [&](ModelSpec& spec) { attention(spec).v_norm = NormSpec{}; });
  expect_refused("chunked attention", [&](ModelSpec& spec) { attention(spec).window_step = 8; });
  expect_refused("queries scaled by position",
                 [&](ModelSpec& spec) { attention(spec).q_scale = PositionScaleSpec{}; });
  expect_refused("latent attention", [](ModelSpec& spec) { spec.layers[0].mixer = MlaSpec{}; });
  expect_refused("an embedding multiplier", [](ModelSpec& spec) { spec.embed_multiplier = 8; });
  expect_refused("a logits multiplier", [](ModelSpec& spec) { spec.logits_multiplier = 8; });
  expect_refused("capped logits", [](ModelSpec& spec) { spec.logits_softcap = 30; });
}

TEST(DeviceLimits, RoutersAndExpertsThatNoGpuKernelKnowsAreRefusedByName) {
  const ops::testing::TestDevice gpu("cuda");
  const auto expect_refused = [&](const char* name, const auto& turn_on) {
    ModelSpec spec = spec_of(1000, 8, 2);
    turn_on(std::get<MoeSpec>(spec.layers[0].ffn));
    EXPECT_THAT([&] { check_device_limits(spec, gpu); }, ThrowsMessage<LoadError>(HasSubstr(name)));
    check_device_limits(spec, *ops::make_cpu_device());
  };
  expect_refused("sigmoid routers",
                 [](MoeSpec& moe) { moe.route.score = ops::MoeScore::kSigmoid; });
  expect_refused("sparse-mixer routers",
                 [](MoeSpec& moe) { moe.route.score = ops::MoeScore::kSparseMixer; });
  expect_refused("groups of experts", [](MoeSpec& moe) { moe.route.groups = 2; });
  expect_refused("capped router logits", [](MoeSpec& moe) { moe.route.softcap = 30; });
  expect_refused("a correction", [](MoeSpec& moe) { moe.correction = "a"; });
  expect_refused("scaled routing weights", [](MoeSpec& moe) { moe.route.scale = 2; });
  expect_refused("scaled routing weights", [](MoeSpec& moe) { moe.expert_scale = "a"; });
  expect_refused("bounds of routing weights", [](MoeSpec& moe) { moe.route.least_sum = 1; });
  expect_refused("gelu_tanh experts",
                 [](MoeSpec& moe) { moe.gate.kind = ops::Gate::Kind::kGeluTanh; });
  expect_refused("relu2 shared experts", [](MoeSpec& moe) {
    moe.shared = MlpSpec{.gate = {.kind = ops::Gate::Kind::kRelu2}};
    moe.shared_gate = "a";
  });
  expect_refused("weighed inputs", [](MoeSpec& moe) { moe.weigh_input = true; });
  expect_refused("shared experts without a gate", [](MoeSpec& moe) { moe.shared = MlpSpec{}; });
}

TEST(DeviceLimits, TheCpuHasNone) {
  check_device_limits(spec_of(1 << 22, 10'000, 1000), *ops::make_cpu_device());
}

TEST(DeviceLimits, ACheckpointSaysWhatOfItNoGpuRuns) {
  const auto beyond = [](const std::string& name) {
    return beyond_cuda(formats::Checkpoint::open(source_dir() + "/tests/parity/models/" + name),
                       {});
  };
  EXPECT_THAT(beyond("qwen3-mxfp4"), IsEmpty());
  EXPECT_THAT(beyond("qwen3-4bit"), IsEmpty());
  EXPECT_THAT(beyond("qwen35-moe"), IsEmpty());
  EXPECT_THAT(beyond("mixtral"), IsEmpty());
  EXPECT_THAT(beyond("dots1"), Contains("sigmoid routers"));
}

}  // namespace
}  // namespace quire::models
