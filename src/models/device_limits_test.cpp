#include "models/device_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"
#include "ops/runtime/test_device.h"

namespace quire::models {
namespace {

using ::testing::ElementsAre;
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
  const ops::DeviceLimits gpu = ops::limits_of(ops::testing::TestDevice("cuda"));
  check_device_limits(spec_of(1 << 20, 4096, 256), gpu);
  const auto refusal = [&](const ModelSpec& spec) {
    return [&] { check_device_limits(spec, gpu); };
  };
  EXPECT_THAT(refusal(spec_of((1 << 20) + 1, 1, 1)),
              ThrowsMessage<LoadError>(HasSubstr("1048577 tokens in its vocabulary")));
  EXPECT_THAT(refusal(spec_of(1000, 4097, 1)),
              ThrowsMessage<LoadError>(HasSubstr("4097 experts in a layer")));
  EXPECT_THAT(refusal(spec_of(1000, 4096, 257)),
              ThrowsMessage<LoadError>("the model has 257 experts for a token, but the kernels for "
                                       "NVIDIA GPUs take 256; --device cpu runs it"));
}

TEST(DeviceLimits, WhatAnAppleGpuCannotRunIsRefusedByName) {
  const ops::DeviceLimits gpu = ops::limits_of(ops::testing::TestDevice("metal"));
  ModelSpec spec;
  spec.vocab = 1 << 20;
  spec.layers.emplace_back();
  const auto heads_of = [](int64_t dim) {
    AttentionSpec attention;
    attention.head_dim = dim;
    return attention;
  };
  spec.layers[0].mixer = heads_of(576);
  check_device_limits(spec, gpu);
  const auto expect_refused = [&](const char* what) {
    EXPECT_THAT([&] { check_device_limits(spec, gpu); }, ThrowsMessage<LoadError>(HasSubstr(what)));
  };
  spec.layers[0].mixer = heads_of(584);
  expect_refused("heads of 584 elements");
  expect_refused("--device cpu runs it");
  spec.layers[0].mixer = MlaSpec{};
  check_device_limits(spec, gpu);
  spec.vocab += 1;
  expect_refused("1048577 tokens in its vocabulary");
  check_device_limits(spec_of(1000, 8192, 512), gpu);  // as many experts as there may be
}

TEST(DeviceLimits, TheCpuHasNone) {
  check_device_limits(spec_of(1 << 22, 10'000, 1000), ops::limits_of(*ops::make_cpu_device()));
}

TEST(DeviceLimits, ACheckpointSaysWhatOfItNoGpuRuns) {
  const auto beyond = [](const std::string& name) {
    return beyond_limits(formats::Checkpoint::open(source_dir() + "/tests/parity/models/" + name),
                         {}, ops::cuda_limits());
  };
  EXPECT_THAT(beyond("qwen3-mxfp4"), IsEmpty());
  EXPECT_THAT(beyond("qwen3-4bit"), IsEmpty());
  EXPECT_THAT(beyond("qwen35-moe"), IsEmpty());
  EXPECT_THAT(beyond("mixtral"), IsEmpty());
  EXPECT_THAT(beyond("dots1"), IsEmpty());
  EXPECT_THAT(beyond("gemma3"), IsEmpty());
  EXPECT_THAT(beyond("gemma4-31b"), IsEmpty());
  EXPECT_THAT(beyond("hunyuan"), IsEmpty());
  EXPECT_THAT(beyond("qwen3-packed-bf16"), IsEmpty());
  EXPECT_THAT(beyond("qwen3-w8a8-bf16"), ElementsAre(HasSubstr("activations of 8 bits")));
}

}  // namespace
}  // namespace quire::models
