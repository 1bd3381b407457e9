// Adapters (LoRA) that fit a model, and those that are refused by the tensor's name.
#include "models/adapters.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "base/source_dir.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/model_size.h"

namespace quire::models {
namespace {

using formats::testing::load_error;
using formats::testing::safetensors_bytes;
using formats::testing::TempDir;
using testing::HasSubstr;

formats::Checkpoint open(const std::string& name) {
  return formats::Checkpoint::open(source_dir() + "/tests/parity/models/" + name);
}

formats::LoraAdapter parity_adapter(const std::string& name) {
  return formats::LoraAdapter::open(source_dir() + "/tests/parity/adapters/" + name);
}

std::unique_ptr<Model> load(const std::string& checkpoint,
                            const std::vector<formats::LoraAdapter>& adapters) {
  return load_model(ops::make_context(1), open(checkpoint),
                    {.dtype = {}, .progress = {}, .adapters = adapters});
}

// Of rank 2, for one module, of zeros but for its last value, of b.
formats::LoraAdapter adapter_of(const TempDir& dir, const std::string& module, int64_t n, int64_t k,
                                float last = 0) {
  dir.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2})");
  const std::string name = "base_model.model." + module;
  const int64_t middle = 2 * k * 4, end = middle + n * 2 * 4;
  const auto entry = [&](const char* end_of_name, int64_t rows, int64_t columns, int64_t from,
                         int64_t to) {
    return "\"" + name + end_of_name + R"(": {"dtype": "F32", "shape": [)" + std::to_string(rows) +
           ", " + std::to_string(columns) + R"(], "data_offsets": [)" + std::to_string(from) +
           ", " + std::to_string(to) + "]}";
  };
  std::string values(static_cast<size_t>(end), '\0');
  std::memcpy(&values[values.size() - sizeof last], &last, sizeof last);
  dir.write("adapter_model.safetensors",
            safetensors_bytes("{" + entry(".lora_A.weight", 2, k, 0, middle) + ", " +
                                  entry(".lora_B.weight", n, 2, middle, end) + "}",
                              0) +
                values);
  return formats::LoraAdapter::open(dir.path());
}

std::string error_for(const std::string& checkpoint, const std::string& module, int64_t n,
                      int64_t k) {
  const TempDir dir;
  std::vector<formats::LoraAdapter> adapters;
  adapters.push_back(adapter_of(dir, module, n, k));
  return load_error([&] { load(checkpoint, adapters); });
}

TEST(Adapters, CountAmongTheWeights) {
  std::vector<formats::LoraAdapter> adapters;
  adapters.push_back(parity_adapter("qwen3/all"));
  adapters.push_back(parity_adapter("qwen3/some"));
  const auto with = load("qwen3", adapters), without = load("qwen3", {});
  EXPECT_EQ(with->num_adapters(), 2);
  EXPECT_EQ(without->num_adapters(), 0);
  EXPECT_GT(with->weight_bytes(), without->weight_bytes() + 50'000);
  const auto size = [](const LoadOptions& options) {
    return measure_model(open("qwen3"), options).weights;
  };
  EXPECT_EQ(size({.dtype = {}, .progress = {}, .adapters = adapters}) -
                size({.dtype = {}, .progress = {}}),
            adapter_bytes(adapters, mx::float32));
}

TEST(Adapters, MayBeOfTheModelInsideItsWrapper) {
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model.", ""}) {
    const TempDir dir;
    std::vector<formats::LoraAdapter> adapters;
    adapters.push_back(adapter_of(dir, std::string(prefix) + "layers.1.mlp.up_proj", 96, 64));
    EXPECT_EQ(load("qwen3", adapters)->num_adapters(), 1) << prefix;
  }
}

TEST(Adapters, OfAnotherShapeAreRefused) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  EXPECT_THAT(error_for("qwen3", module, 128, 60),
              HasSubstr(module + ".lora_A.weight has shape [2, 60], but " + module +
                        " of this model has 64 inputs: the adapter is of another model"));
  EXPECT_THAT(error_for("qwen3", module, 64, 64),
              HasSubstr(module + ".lora_B.weight has shape [64, 2], but " + module +
                        " of this model has 128 outputs"));
  // A part of a fused tensor is no module of that model.
  EXPECT_THAT(error_for("phi3", module, 64, 64),
              HasSubstr(module + ".lora_A.weight is of a layer that this model does not have"));
}

TEST(Adapters, OfLayersThatTakeNoneAreRefused) {
  const auto expect = [](const char* checkpoint, const std::string& module, int64_t n, int64_t k) {
    EXPECT_THAT(error_for(checkpoint, module, n, k),
                HasSubstr(module + ".lora_A.weight is of a layer that takes no adapter here"))
        << checkpoint;
  };
  expect("qwen3-moe", "model.layers.0.mlp.gate", 8, 64);
  expect("qwen2-moe", "model.layers.1.mlp.shared_expert_gate", 1, 64);
  expect("deepseek-v2", "model.layers.0.self_attn.kv_b_proj", 256, 32);
  expect("llama3", "lm_head", 331, 64);
  expect("qwen3", "model.embed_tokens", 320, 64);
  EXPECT_THAT(error_for("qwen3", "model.layers.7.mlp.up_proj", 96, 64),
              HasSubstr("model.layers.7.mlp.up_proj.lora_A.weight is of a layer that this model "
                        "does not have"));
  EXPECT_THAT(error_for("qwen3-moe", "model.layers.0.mlp.experts.0.up_proj", 32, 64),
              HasSubstr("experts.0.up_proj.lora_A.weight is of a layer that"));
}

TEST(Adapters, WithValuesThatTheDtypeLacksAreRefused) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  const auto error_of = [&](float last, mx::Dtype dtype) {
    const TempDir dir;
    std::vector<formats::LoraAdapter> adapters;
    adapters.push_back(adapter_of(dir, module, 128, 64, last));
    return load_error([&] {
      load_model(ops::make_context(1), open("qwen3"),
                 {.dtype = dtype, .progress = {}, .adapters = adapters});
    });
  };
  for (const float last : {std::nanf(""), -HUGE_VALF})
    EXPECT_THAT(error_of(last, mx::float32),
                HasSubstr(module + ".lora_B.weight holds a value that is no number or infinite"));
  // Halfway between the largest value and what would come next.
  EXPECT_THAT(error_of(65520, mx::float16),
              HasSubstr(module + ".lora_B.weight holds a value that is too large"));
  EXPECT_THAT(error_of(0x1.FFp127f, mx::bfloat16), HasSubstr("too large"));
  const TempDir dir;
  std::vector<formats::LoraAdapter> adapters;
  adapters.push_back(adapter_of(dir, module, 128, 64, std::nextafter(65520.0f, 0.0f)));
  EXPECT_EQ(load_model(ops::make_context(1), open("qwen3"),
                       {.dtype = mx::float16, .progress = {}, .adapters = adapters})
                ->num_adapters(),
            1);
}

// The files have value heads in another order than the modules.
TEST(Adapters, OfDeltaNetsDoNotFitGgufFiles) {
  EXPECT_THAT(error_for("qwen35-gguf-bf16", "model.layers.0.linear_attn.out_proj", 64, 128),
              HasSubstr("out_proj.lora_A.weight is of a layer that takes no adapter here"));
}

}  // namespace
}  // namespace quire::models
