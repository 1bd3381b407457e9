#include "formats/folder_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/folder_configs.h"

namespace quire::formats {
namespace {

using namespace quire::formats::testing;

const std::string kAwq =
    R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm",
        "modules_to_not_convert":["mlp.gate","lm_head"]})";
const std::string kGptq = R"({"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true})";

TEST(FolderQuantization, ReadsAwq) {
  const FolderQuantization q = read(kAwq);
  EXPECT_EQ(q.title(), "4-bit awq in groups of 128");
  EXPECT_EQ(q.of_layer("lm_head"), nullptr);
  EXPECT_EQ(q.of_layer("model.layers.0.mlp.gate"), nullptr);
  EXPECT_EQ(q.of_layer("model.layers.0.pre_mlp.gate.mlp.gate"), nullptr);
  EXPECT_NE(q.of_layer("model.layers.0.pre_mlp.gate"), nullptr);
  ASSERT_NE(q.of_layer("model.layers.0.mlp.gate_proj"), nullptr);
  EXPECT_EQ(q.of_layer("model.layers.0.mlp.gate_proj")->bits, 4);
  EXPECT_FALSE(read_quantization_config(config_with(kAwq)).has_value());
}

TEST(FolderQuantization, ReadsBothVersionsOfGptq) {
  EXPECT_TRUE(read(kGptq).of_layer("x")->zeros_less_one);
  const FolderQuantization second = read(
      R"({"quant_method":"gptq","bits":8,"group_size":-1,"checkpoint_format":"gptq_v2",
          "dynamic":{}})");
  EXPECT_FALSE(second.of_layer("x")->zeros_less_one);
  EXPECT_EQ(second.of_layer("x")->group_size, 0);
}

// Rules of layers, of which the first that fits counts.
TEST(FolderQuantization, ReadsDynamicRules) {
  // As Qwen3.5's config.json has them.
  const FolderQuantization only = read(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true,"desc_act":false,"dynamic":{
          "lm_head":{},"model.language_model.embed_tokens":{},"-:.*attn.*":{},
          "-:.*shared_expert.*":{},"-:.*mtp.*":{},"-:.*visual.*":{}}})");
  const std::string stem = "model.language_model.layers.0.";
  EXPECT_EQ(only.of_layer(stem + "linear_attn.in_proj_qkv"), nullptr);
  EXPECT_EQ(only.of_layer(stem + "mlp.shared_expert_gate"), nullptr);
  ASSERT_NE(only.of_layer(stem + "mlp.experts.0.up_proj"), nullptr);
  EXPECT_EQ(*only.of_layer(stem + "mlp.experts.0.up_proj"), only.groups.front().scheme);
  EXPECT_EQ(only.title(), "4-bit gptq in groups of 128");

  const FolderQuantization rules = read(
      R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true,"dynamic":{
          "model.layers.1.mlp.down_proj":{},"-:model.layers.2":{"bits":8},
          "+:.*down_proj":{"bits":8,"group_size":-1,"sym":false,"desc_act":true},
          ".*down_proj":{"bits":2},"layers.5":{"bits":3}}})");
  const FolderScheme* wide = rules.of_layer("model.layers.0.mlp.down_proj");
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->bits, 8);
  EXPECT_EQ(wide->group_size, 0);
  EXPECT_FALSE(wide->symmetric);
  EXPECT_TRUE(wide->any_order);
  EXPECT_TRUE(wide->zeros_less_one);
  EXPECT_EQ(rules.of_layer("model.layers.1.mlp.down_proj")->bits, 4);
  EXPECT_EQ(rules.of_layer("model.layers.2.mlp.down_proj"), nullptr);
  EXPECT_EQ(rules.of_layer("model.layers.5.mlp.up_proj")->bits, 4);
  EXPECT_EQ(read(R"({"quant_method":"awq","bits":4,"group_size":128,
                     "dynamic":{"-:.*mlp\\.gate$":{}}})")
                .of_layer("model.layers.0.mlp.gate"),
            nullptr);
}

// As GPTQModel and AutoRound write the config beside weights that other programs lay out so, too.
TEST(FolderQuantization, ReadsOtherProgramsKeys) {
  const FolderQuantization model = read(
      R"({"quant_method":"awq","method":"awq","bits":4,"group_size":128,"desc_act":true,
          "lm_head":false,"format":"gemm","checkpoint_format":"gemm","version":"gemm",
          "pack_dtype":"int32","zero_point":true,"meta":{"quantizer":["gptqmodel:5.6.12"]}})");
  EXPECT_FALSE(model.of_layer("x")->symmetric);
  const FolderQuantization round = read(
      R"({"quant_method":"awq","provider":"auto-round","autoround_version":"0.8.0","bits":4,
          "data_type":"int","group_size":128,"sym":true,"zero_point":false,"version":"gemm",
          "batch_size":4,"iters":1000,"lr":0.002,"nsamples":512,"seqlen":2048,
          "enable_quanted_input":true,"low_gpu_mem_usage":true,"dataset":"pile",
          "block_name_to_quantize":"model.layers","modules_to_not_convert":["lm_head"]})");
  EXPECT_TRUE(round.of_layer("x")->symmetric);
  EXPECT_EQ(round.of_layer("lm_head"), nullptr);
  EXPECT_EQ(round.title(), "4-bit awq in groups of 128");
  const FolderQuantization gptq = read(
      R"({"quant_method":"gptq","act_bits":16,"act_data_type":"int","act_dynamic":true,
          "act_group_size":128,"act_sym":true,"amp":true,"autoround_version":"0.5.1",
          "batch_size":8,"bits":4,"damp_percent":0.01,"data_type":"int","desc_act":false,
          "enable_minmax_tuning":true,"enable_norm_bias_tuning":false,
          "enable_quanted_input":true,"gradient_accumulate_steps":1,"group_size":128,
          "iters":1000,"low_gpu_mem_usage":true,"lr":0.001,"minmax_lr":0.001,"nsamples":512,
          "scale_dtype":"torch.float16","seqlen":2048,"super_bits":null,
          "super_group_size":null,"sym":true,"to_quant_block_names":null,
          "true_sequential":false})");
  EXPECT_TRUE(gptq.of_layer("x")->symmetric);
  EXPECT_TRUE(gptq.of_layer("x")->zeros_less_one);
  EXPECT_FALSE(read(R"({"quant_method":"gptq","method":"gptq","bits":4,"group_size":32,
                        "format":"gptq_v2","checkpoint_format":"gptq_v2"})")
                   .of_layer("x")
                   ->zeros_less_one);
  EXPECT_EQ(read(packed(kWeights, "", R"(,"quantization_status":"frozen")")).groups.size(), 1);
  EXPECT_EQ(read(packed(kWeights, "", R"(,"provider":"auto-round")")).groups.size(), 1);
}

// transformers writes AWQ with all that it has of GPTQ.
TEST(FolderQuantization, ReadsAwqOfTransformers) {
  const FolderQuantization awq = read(
      R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"sym":true,
          "format":"gemm","version":"gemm","backend":"auto","damp_percent":0.1,"desc_act":false,
          "act_group_aware":true,"true_sequential":true,"batch_size":1,"cache_block_outputs":true,
          "tokenizer":null,"dataset":null,"meta":null,"model_seqlen":null,"pad_token_id":null,
          "modules_to_not_convert":null,"modules_in_block_to_quantize":null})");
  EXPECT_FALSE(awq.of_layer("x")->symmetric);
}

TEST(FolderQuantization, ReadsAutoRound) {
  const auto with = [](const std::string& packing, const std::string& more = "") {
    return read(R"({"quant_method":"auto-round","autoround_version":"0.12.3","bits":4,
                    "data_type":"int","group_size":128,"sym":true,"iters":0,"seqlen":512,
                    "model_free":true,"block_name_to_quantize":"model.language_model.layers",
                    "packing_format":")" +
                packing + "\"" + more + "}");
  };
  const FolderQuantization gptq = with("auto_round:auto_gptq");
  EXPECT_EQ(gptq.title(), "4-bit auto-round in groups of 128");
  EXPECT_EQ(*gptq.of_layer("x"),
            *read(R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true})").of_layer("x"));
  EXPECT_EQ(*with("auto_round:auto_awq").of_layer("x"),
            *read(R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":false})")
                 .of_layer("x"));
  // Zero points that are not the middle are stored as they are.
  for (const char* packing : {"auto_round", "auto_round:gptqmodel"})
    EXPECT_EQ(*with(packing).of_layer("x"),
              *read(R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":true,
                        "checkpoint_format":"gptq_v2"})")
                   .of_layer("x"));
  // Names count before patterns, of which the first that fits anywhere in a name counts.
  const FolderQuantization extra = with("auto_round:auto_gptq", R"(,"extra_config":{
      "mlp\\.down_proj$":{"bits":8,"group_size":32,"sym":false,"act_bits":16,"act_sym":true},
      "mlp":{"bits":2},"layers.2":{"bits":3},
      "^model\\.layers\\.[01]\\.":{"bits":8},
      "model.layers.1.mlp.down_proj":{"bits":16,"data_type":"float"},
      "lm_head":{"bits":16,"data_type":"float"}})");
  EXPECT_EQ(extra.of_layer("lm_head"), nullptr);
  EXPECT_EQ(extra.of_layer("model.layers.1.mlp.down_proj")->bits, 2);
  EXPECT_EQ(extra.of_layer("model.layers.2.self_attn.q_proj")->bits, 3);
  EXPECT_EQ(extra.of_layer("model.layers.20.self_attn.q_proj")->bits, 4);
  EXPECT_EQ(extra.of_layer("model.layers.1.self_attn.q_proj")->bits, 8);
  const FolderQuantization patterns = with("auto_round:auto_gptq", R"(,"extra_config":{
      "mlp\\.down_proj$":{"bits":8,"group_size":32,"sym":false,"act_bits":16,"act_sym":true},
      "[.]mlp[.]":{"bits":2}})");
  const FolderScheme* wide = patterns.of_layer("model.layers.1.mlp.down_proj");
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(wide->bits, 8);
  EXPECT_EQ(wide->group_size, 32);
  EXPECT_FALSE(wide->symmetric);
  EXPECT_EQ(patterns.of_layer("model.layers.1.mlp.up_proj")->bits, 2);
}

// As AutoRound 0.16 writes it: the tensors are those of compressed-tensors.
TEST(FolderQuantization, ReadsAutoRoundsFourBitFloats) {
  const auto floats = [](const std::string& type, int group, int act_bits,
                         const std::string& more = "") {
    return R"({"act_bits":)" + std::to_string(act_bits) + R"(,"act_data_type":")" +
           (type == "nv_fp" ? "nv_fp4_with_static_gs" : type) +
           R"(","act_dynamic":true,"act_group_size":)" + std::to_string(group) +
           R"(,"act_sym":true,"autoround_version":"0.16.1","bits":4,"enable_quanted_input":false,
              "block_name_to_quantize":"model.layers","data_type":")" +
           type + R"(","group_size":)" + std::to_string(group) +
           R"(,"packing_format":"auto_round:llm_compressor","quant_method":"auto-round","sym":true)" +
           more + "}";
  };
  const auto compressed = [](const std::string& format) {
    const std::string strategy = format.starts_with("nv") ? "tensor_group" : "group";
    return *read(R"({"quant_method":"compressed-tensors","format":")" + format +
                 R"(","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,
                 "type":"float","strategy":")" +
                 strategy + "\"}}}}")
                .of_layer("x");
  };
  const FolderQuantization mxfp4 = read(floats("mx_fp", 32, 16));
  EXPECT_EQ(*mxfp4.of_layer("x"), compressed("mxfp4-pack-quantized"));
  EXPECT_EQ(mxfp4.note, "");
  const FolderQuantization nvfp4 =
      read(floats("nv_fp", 16, 4,
                  R"(,"extra_config":{"model.layers.0.mlp.up_proj":{"bits":16,"act_bits":16}})"));
  EXPECT_EQ(*nvfp4.of_layer("x"), compressed("nvfp4-pack-quantized"));
  EXPECT_EQ(nvfp4.of_layer("model.layers.0.mlp.up_proj"), nullptr);
  EXPECT_THAT(nvfp4.note, ::testing::HasSubstr("activations stay"));
  EXPECT_EQ(nvfp4.title(), "4-bit nvfp4 (auto-round) in groups of 16");
  expect_refused(
      {{floats("mx_fp", 32, 4), "act_bits"},
       {floats("mx_fp", 32, 8), "act_bits"},
       {floats("nv_fp", 16, 8), "act_bits"},
       {floats("mx_fp", 16, 16), "group_size"},
       {floats("nv_fp", 32, 16), "group_size"},
       {floats("mx_int", 32, 16), "data_type"},
       {floats("mx_fp", 32, 16, R"(,"extra_config":{"x":{"bits":8}})"), "extra_config.x.bits"},
       {floats("mx_fp", 32, 16, R"(,"rotation_config":{"type":"x"})"), "rotation_config"}});
}

TEST(FolderQuantization, RefusesAutoRoundByKey) {
  const auto with = [](const std::string& packing, const std::string& more = "") {
    return R"({"quant_method":"auto-round","bits":4,"group_size":128,"packing_format":")" +
           packing + "\"" + more + "}";
  };
  const std::string gptq = "auto_round:auto_gptq", awq = "auto_round:auto_awq";
  expect_refused({
      {R"({"quant_method":"auto-round","bits":4,"group_size":128})", "packing_format"},
      {with("auto_round:exllamav2"), "packing_format"},
      {with("auto_round:llm_compressor"), "data_type"},
      {with("auto_round:fp8"), "packing_format"},
      {with(gptq, R"(,"data_type":"mx_fp")"), "data_type"},
      {with(gptq, R"(,"act_bits":8)"), "act_bits"},
      {with(gptq, R"(,"rotation_config":{"type":"hadamard"})"), "rotation_config"},
      {with(gptq, R"(,"desc_act":true)"), "desc_act"},
      {with(gptq, R"(,"extra_config":{"x":{"bits":5}})"), "extra_config.x.bits"},
      {with(gptq, R"(,"extra_config":{"x":{"data_type":"fp8"}})"), "extra_config.x.data_type"},
      {with(gptq, R"(,"extra_config":{"x":{"super_bits":6}})"), "extra_config.x.super_bits"},
      {with(gptq, R"(,"extra_config":{"x(":{"bits":8}})"), "extra_config.x("},
      {with(awq, R"(,"extra_config":{"x":{"bits":8}})"), "extra_config.x.bits"},
  });
}

TEST(FolderQuantization, RefusesAwqByKey) {
  const auto awq = [](const std::string& member) {
    return R"({"quant_method":"awq","bits":4,"group_size":128,)" + member + "}";
  };
  expect_refused({
      {R"({"quant_method":7})", "quant_method"},
      {R"({"quant_method":"awq","group_size":128})", "bits"},
      {R"({"quant_method":"awq","bits":3,"group_size":128})", "bits"},
      {R"({"quant_method":"awq","bits":"4","group_size":128})", "bits"},
      {R"({"quant_method":"awq","bits":4.5,"group_size":128})", "bits"},
      {R"({"quant_method":"awq","w_bit":8,"q_group_size":128})", "w_bit"},
      {R"({"quant_method":"awq","bits":4})", "group_size"},
      {R"({"quant_method":"awq","bits":4,"group_size":0})", "group_size"},
      {R"({"quant_method":"awq","bits":4,"group_size":-2})", "group_size"},
      {R"({"quant_method":"awq","bits":4,"group_size":100})", "group_size"},
      {R"({"quant_method":"awq","bits":4,"group_size":96})", "group_size"},
      {R"({"quant_method":"awq","w_bit":4,"q_group_size":16})", "q_group_size"},
      {awq(R"("version":"gemv")"), "version"},
      {awq(R"("version":"marlin")"), "version"},
      {awq(R"("version":1)"), "version"},
      {awq(R"("format":"gemv_fast")"), "quantization_config.format"},
      {awq(R"("checkpoint_format":"marlin")"), "checkpoint_format"},
      {awq(R"("backend":"llm-awq")"), "backend"},
      {awq(R"("method":"gptq")"), "method"},
      {awq(R"("pack_dtype":"int64")"), "pack_dtype"},
      {awq(R"("data_type":"mx_fp")"), "data_type"},
      {awq(R"("act_bits":8,"act_sym":true)"), "act_bits"},
      {awq(R"("act_data_type":"mx_fp")"), "act_data_type"},
      {awq(R"("sym":"yes")"), "sym"},
      {awq(R"("desc_act":1)"), "desc_act"},
      {awq(R"("super_bits":6)"), "super_bits"},
      {awq(R"("zero_point":"yes")"), "zero_point"},
      {awq(R"("modules_to_not_convert":"lm_head")"), "modules_to_not_convert"},
      {awq(R"("modules_to_not_convert":[1])"), "modules_to_not_convert"},
      {awq(R"("modules_to_not_convert":["re:("])"), "modules_to_not_convert"},
  });
}

TEST(FolderQuantization, RefusesGptqByKey) {
  const auto gptq = [](const std::string& member) {
    return R"({"quant_method":"gptq","bits":4,"group_size":128,)" + member + "}";
  };
  expect_refused({
      {R"({"quant_method":"gptq","group_size":128})", "bits"},
      {R"({"quant_method":"gptq","bits":5,"group_size":128})", "bits"},
      {R"({"quant_method":"gptq","bits":4})", "group_size"},
      {R"({"quant_method":"gptq","bits":4,"group_size":"128"})", "group_size"},
      {gptq(R"("checkpoint_format":"marlin")"), "checkpoint_format"},
      {gptq(R"("checkpoint_format":2)"), "checkpoint_format"},
      {gptq(R"("sym":1)"), "sym"},
      {gptq(R"("desc_act":"true")"), "desc_act"},
      {gptq(R"("pack_dtype":"int8")"), "pack_dtype"},
      {gptq(R"("format":"bitblas")"), "quantization_config.format"},
      {gptq(R"("format":"gptq_v2","checkpoint_format":"gptq")"), "checkpoint_format"},
      {gptq(R"("data_type":"fp8")"), "data_type"},
      {gptq(R"("is_marlin_format":true)"), "is_marlin_format"},
      {gptq(R"("dynamic":{"+:.*down_proj":{"bits":5}})"), "dynamic.+:.*down_proj.bits"},
      {gptq(R"("dynamic":{".*down_proj":{"group_size":48}})"), "dynamic..*down_proj.group_size"},
      {gptq(R"("dynamic":{"x":{"bits":8,"adapter":{"rank":4}}})"), "dynamic.x.adapter"},
      {gptq(R"("dynamic":{"x":{"format":"marlin"}})"), "dynamic.x.format"},
      {gptq(R"("dynamic":{"x":4})"), "dynamic.x"},
      {gptq(R"("dynamic":{"-:(":{}})"), "dynamic.-:("},
      {gptq(R"("dynamic":["-:.*attn.*"])"), "dynamic"},
      {gptq(R"("rotation":"hadamard")"), "rotation"},
      {gptq(R"("adapter":{"name":"lora"})"), "adapter"},
  });
}

}  // namespace
}  // namespace quire::formats
