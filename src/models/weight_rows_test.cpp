// Rows that a loader puts together from several matrices.
#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "models/weights.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using namespace quire::ops::testing;

formats::Checkpoint open(const std::string& name) {
  return formats::Checkpoint::open(source_dir() + "/tests/parity/models/" + name);
}

// Of the products apart, bit for bit.
TEST(WeightRows, WithoutABiasBesideOthersWithOne) {
  const auto checkpoint = open("deepseek-v3");
  const ops::Context context = ops::make_context(1);
  WeightLoader weights(context, checkpoint, mx::bfloat16, {});
  const std::string part = "model.layers.0.self_attn.";
  const WeightRows q = {.weight = part + "q_a_proj.weight", .count = 40},
                   kv = {.weight = part + "kv_a_proj_with_mqa.weight",
                         .count = 48,
                         .bias = part + "kv_a_proj_with_mqa.bias"};
  const mx::array x = random_array({3, 64}, mx::bfloat16, 2);
  const auto product = [&](const std::vector<WeightRows>& rows) {
    return ops::linear(context, x, weights.linear(rows, 64));
  };
  const mx::array both = product({q, kv});
  const mx::array apart = mx::concatenate({product({q}), product({kv})}, 1);
  EXPECT_TRUE(same_bits(both, mx::contiguous(apart)));
}

TEST(WeightRows, AreOfOneFormat) {
  const ops::Context context = ops::make_context(1);
  const auto plain = open("deepseek-v3"), mixed = open("qwen3-4bit");
  const std::string part = "model.layers.0.self_attn.";
  const WeightLoader dense(context, plain, mx::float32, {});
  EXPECT_TRUE(dense.have_one_format(part + "q_a_proj.weight", part + "o_proj.weight"));
  const WeightLoader quantised(context, mixed, mx::float32, {});
  const auto alike = [&](const char* a, const char* b) {
    const auto name = [](const char* end) {
      return std::string("model.layers.") + end + ".weight";
    };
    return quantised.have_one_format(name(a), name(b));
  };
  EXPECT_TRUE(alike("0.self_attn.v_proj", "1.self_attn.k_proj"));
  EXPECT_FALSE(alike("0.self_attn.q_proj", "0.self_attn.v_proj"));  // 8 bits and 4
  EXPECT_FALSE(alike("0.self_attn.k_proj", "0.self_attn.v_proj"));  // groups of 64 and 32
  EXPECT_FALSE(alike("1.mlp.up_proj", "1.mlp.gate_proj"));          // one is dense
  const auto blocks = open("qwen3-moe-gguf-q5");
  const WeightLoader gguf(context, blocks, mx::float32, {});
  EXPECT_TRUE(gguf.have_one_format(part + "q_proj.weight", part + "o_proj.weight"));
  EXPECT_FALSE(gguf.have_one_format(part + "q_proj.weight", part + "k_proj.weight"));
  const auto floats = open("qwen3-mixed-bf16");
  const WeightLoader folder(context, floats, mx::float32, {});
  EXPECT_TRUE(folder.have_one_format(part + "q_proj.weight", part + "o_proj.weight"));
  // Scales by rows, and one for all, of 8-bit floats.
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  EXPECT_FALSE(folder.have_one_format(part + "q_proj.weight", down));
  // 8 bits by a rule, and 4.
  const auto rules = open("qwen3-gptq-dynamic-bf16");
  const WeightLoader gptq(context, rules, mx::float32, {});
  EXPECT_TRUE(gptq.have_one_format(part + "v_proj.weight", part + "k_proj.weight"));
  EXPECT_FALSE(gptq.have_one_format(part + "q_proj.weight", part + "k_proj.weight"));
}

}  // namespace
}  // namespace quire::models
