#include "formats/lora_adapter.h"

#include <gmock/gmock.h>

#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::HasSubstr;
using testing::load_error;
using testing::safetensors_bytes;
using testing::TempDir;

constexpr const char* kA = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
constexpr const char* kB = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";

// What PEFT 0.21 writes, and more keys.
std::string config_text(const std::string& more = "", int rank = 2) {
  return R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": )" + std::to_string(rank) +
         R"(, "lora_alpha": 3, "bias": "none", "target_modules": ["q_proj"], "lora_dropout": 0.1,
    "fan_in_fan_out": false, "use_rslora": false, "modules_to_save": null, "rank_pattern": {},
    "alpha_pattern": {}, "use_dora": false, "init_lora_weights": true, "megatron_core":
    "megatron.core", "loftq_config": {}, "qalora_group_size": 16, "inference_mode": true)" +
         (more.empty() ? "" : ", " + more) + "}";
}

// A tensor of float32 zeros and more.
std::string entry(const std::string& name, const std::string& shape, int begin, int end,
                  const std::string& dtype = "F32") {
  return "\"" + name + R"(": {"dtype": ")" + dtype + R"(", "shape": )" + shape +
         R"(, "data_offsets": [)" + std::to_string(begin) + ", " + std::to_string(end) + "]}";
}

void write_tensors(const TempDir& dir, const std::vector<std::string>& entries, size_t bytes) {
  std::string header = "{";
  for (const std::string& text : entries) header += (header == "{" ? "" : ", ") + text;
  dir.write("adapter_model.safetensors", safetensors_bytes(header + "}", bytes));
}

void write_pair(const TempDir& dir, const char* a_shape = "[2, 3]") {
  write_tensors(dir, {entry(kA, a_shape, 0, 24), entry(kB, "[4, 2]", 24, 56)}, 56);
}

std::string open_error(const TempDir& dir, int64_t max_rank = 0) {
  return load_error([&] { LoraAdapter::open(dir.path(), max_rank); });
}

TEST(LoraAdapter, ReadsWhatPeftWrites) {
  const TempDir dir;
  dir.write("adapter_config.json", config_text());
  write_pair(dir);
  const LoraAdapter adapter = LoraAdapter::open(dir.path(), 2);
  EXPECT_EQ(adapter.rank(), 2);
  EXPECT_EQ(adapter.scaling(), 1.5f);
  ASSERT_EQ(adapter.modules().size(), 1u);
  const auto& [name, module] = *adapter.modules().begin();
  EXPECT_EQ(name, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(module.a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(module.b->shape, (std::vector<int64_t>{4, 2}));
}

TEST(LoraAdapter, DividesByTheRootOfTheRankWithRslora) {
  const TempDir dir;
  dir.write("adapter_config.json", config_text(R"("use_rslora": true)"));
  write_pair(dir);
  EXPECT_FLOAT_EQ(LoraAdapter::open(dir.path()).scaling(), 3 / std::sqrt(2.0f));
}

TEST(LoraAdapter, RefusesKeysThatChangeWhatItDoes) {
  const char* const cases[][2] = {
      {R"("use_dora": true)", "\"use_dora\" is set: DoRA"},
      {R"("bias": "all")", "\"bias\" is \"all\""},
      {R"("modules_to_save": ["lm_head"])", "\"modules_to_save\" names modules"},
      {R"("rank_pattern": {"q_proj": 8})", "\"rank_pattern\" gives"},
      {R"("alpha_pattern": {"q_proj": 8})", "\"alpha_pattern\" gives"},
      {R"("lora_bias": true)", "\"lora_bias\" is set"},
      {R"("fan_in_fan_out": true)", "\"fan_in_fan_out\" is set"},
      {R"("init_lora_weights": "pissa_niter_4")", "\"init_lora_weights\" is \"pissa_niter_4\""},
      {R"("trainable_token_indices": [1])", "\"trainable_token_indices\" changes"},
      {R"("layer_replication": [[0, 1]])", "\"layer_replication\" changes"},
      {R"("target_parameters": ["mlp.experts"])", "\"target_parameters\" changes"},
      {R"("alora_invocation_tokens": [5])", "\"alora_invocation_tokens\" changes"},
      {R"("a_key_of_the_future": 1)", "\"a_key_of_the_future\" changes"},
      {R"("peft_type": "IA3")", "\"peft_type\" is \"IA3\"; supported is LORA"},
      {R"("r": 0)", "\"r\""},
      {R"("lora_alpha": "8")", "\"lora_alpha\""},
      {R"("lora_alpha": 1e308)", "\"lora_alpha\" is 1e+308, too large"},
  };
  for (const auto& [key, message] : cases) {
    const TempDir dir;
    dir.write("adapter_config.json", config_text(key));
    write_pair(dir);
    EXPECT_THAT(open_error(dir), HasSubstr(message)) << key;
    EXPECT_THAT(open_error(dir), HasSubstr("adapter_config.json")) << key;
  }
}

TEST(LoraAdapter, TakesKeysThatSayNothing) {
  const TempDir dir;
  dir.write("adapter_config.json",
            config_text(R"("a_key_of_the_future": false, "init_lora_weights": "gaussian")"));
  write_pair(dir);
  EXPECT_EQ(LoraAdapter::open(dir.path()).rank(), 2);
}

TEST(LoraAdapter, RefusesRanksByKeyAndTensor) {
  const TempDir dir;
  dir.write("adapter_config.json", config_text());
  write_pair(dir);
  EXPECT_THAT(open_error(dir, 1), HasSubstr("\"r\" is 2, over --max-lora-rank 1"));
  write_pair(dir, "[3, 2]");
  EXPECT_THAT(open_error(dir), HasSubstr(std::string(kA) + "\" has rank 3, but r"));
}

TEST(LoraAdapter, RefusesTensorsByName) {
  const TempDir dir;
  dir.write("adapter_config.json", config_text());
  const std::string magnitude = "base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector";
  const std::string head = "base_model.model.lm_head.weight";
  const std::string no_module = "base_model.model.lora_A.weight";
  for (const std::string& name : {magnitude, head, no_module}) {
    write_tensors(dir, {entry(name, "[2, 3]", 0, 24)}, 24);
    EXPECT_THAT(open_error(dir), HasSubstr(name + "\" is no lora_A or lora_B"));
  }
  write_tensors(dir, {entry(kA, "[2, 3]", 0, 24)}, 24);
  EXPECT_THAT(open_error(dir), HasSubstr(std::string(kA) + "\": its lora_B is missing"));
  write_tensors(dir, {entry(kA, "[2, 3, 1, 1]", 0, 24)}, 24);
  EXPECT_THAT(open_error(dir), HasSubstr(std::string(kA) + "\" is no matrix"));
  write_tensors(dir, {entry(kA, "[2, 3]", 0, 48, "F64")}, 48);
  EXPECT_THAT(open_error(dir), HasSubstr("has dtype F64"));
  write_tensors(dir, {}, 0);
  EXPECT_THAT(open_error(dir), HasSubstr("there is no tensor"));
}

TEST(LoraAdapter, SaysWhatAFolderLacks) {
  const TempDir dir;
  EXPECT_THAT(open_error(dir), HasSubstr("there is no adapter_config.json"));
  dir.write("adapter_config.json", config_text());
  EXPECT_THAT(open_error(dir), HasSubstr("adapter_model.safetensors"));
  dir.write("adapter_model.bin", "pickle");
  EXPECT_THAT(open_error(dir), HasSubstr("safe_serialization=True"));
}

TEST(LoraAdapter, HasADigestOfBytesAndFactor) {
  const TempDir dir, other;
  dir.write("adapter_config.json", config_text());
  write_pair(dir);
  const std::string digest = LoraAdapter::open(dir.path()).digest();
  other.write("adapter_config.json", config_text(R"("lora_alpha": 4)"));
  write_pair(other);
  EXPECT_NE(LoraAdapter::open(other.path()).digest(), digest);
  other.write("adapter_config.json", config_text());
  EXPECT_EQ(LoraAdapter::open(other.path()).digest(), digest);
  write_tensors(other, {entry(kB, "[4, 2]", 0, 32), entry(kA, "[2, 3]", 32, 56)}, 56);
  EXPECT_NE(LoraAdapter::open(other.path()).digest(), digest);
}

}  // namespace
}  // namespace quire::formats
