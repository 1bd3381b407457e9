#include "formats/folder_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/folder_configs.h"
#include "formats/name_pattern.h"

namespace quire::formats {
namespace {

using namespace quire::formats::testing;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(FolderQuantization, RefusesFloatsByKey) {
  const auto fp8 = [](const std::string& member) {
    return R"({"quant_method":"fp8",)" + member + "}";
  };
  const auto floats = [](const std::string& weights, const std::string& group = "") {
    return R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{
               "g":{"targets":["Linear"],"weights":{)" +
           weights + "}" + group + "}}}";
  };
  const auto naive = [](const std::string& weights) {
    return R"({"quant_method":"compressed-tensors","format":"naive-quantized",
               "config_groups":{"g":{"weights":{)" +
           weights + "}}}}";
  };
  const auto mxfp4 = [](const std::string& weights) {
    return R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized",
               "config_groups":{"g":{"weights":{)" +
           weights + "}}}}";
  };
  const std::string channel = R"("num_bits":8,"type":"float","strategy":"channel")";
  expect_refused({
      {fp8(R"("activation_scheme":"smooth")"), "activation_scheme"},
      {fp8(R"("fmt":"e5m2")"), "fmt"},
      {fp8(R"("fmt":"float8_e4m3fnuz")"), "fmt"},
      {fp8(R"("kv_cache_scheme":"dynamic")"), "kv_cache_scheme"},
      {fp8(R"("expert_dtype":"fp4")"), "expert_dtype"},
      {fp8(R"("bits":4)"), "quantization_config.bits"},
      {fp8(R"("data_type":"mx_fp")"), "data_type"},
      {fp8(R"("act_bits":4)"), "act_bits"},
      {fp8(R"("act_data_type":"mx_fp")"), "act_data_type"},
      {fp8(R"("sym":false)"), "quantization_config.sym"},
      {fp8(R"("group_size":128)"), "group_size"},
      {fp8(R"("weight_block_size":[128,128],"group_size":[64,128])"), "group_size"},
      {fp8(R"("extra_config":{"x":{"bits":4}})"), "extra_config.x.bits"},
      {fp8(R"("desc_act":true)"), "desc_act"},
      {fp8(R"("weight_block_size":[128])"), "weight_block_size"},
      {fp8(R"("weight_block_size":[128,0])"), "weight_block_size"},
      {fp8(R"("weight_block_size":"128x128")"), "weight_block_size"},
      {fp8(R"("modules_to_not_convert":{})"), "modules_to_not_convert"},
      {floats(R"("num_bits":4,"type":"float","strategy":"channel")"), "g.weights.num_bits"},
      {floats(R"("num_bits":8,"type":"int","strategy":"channel")"), "g.weights.type"},
      {floats(R"("num_bits":8,"type":"float","strategy":"group")"), "g.weights.strategy"},
      {floats(R"("num_bits":8,"type":"float","strategy":"block")"), "g.weights.block_structure"},
      {floats(channel + R"(,"dynamic":true)"), "g.weights.dynamic"},
      {floats(channel + R"(,"symmetric":false)"), "g.weights.symmetric"},
      {floats(channel, R"(,"input_activations":{"num_bits":8,"type":"float","dynamic":"local"})"),
       "g.input_activations.dynamic"},
      {floats(channel, R"(,"input_activations":{"num_bits":8,"type":"int","dynamic":true})"),
       "g.input_activations.type"},
      {naive(R"("num_bits":8,"type":"bool","strategy":"channel")"), "g.weights.type"},
      {naive(R"("num_bits":8,"strategy":"channel")"), "g.weights.type"},
      {mxfp4(R"("num_bits":8,"type":"float")"), "g.weights.num_bits"},
      {mxfp4(R"("num_bits":4,"type":"float","group_size":16)"), "g.weights.group_size"},
      {mxfp4(R"("num_bits":4,"type":"float","strategy":"channel")"), "g.weights.strategy"},
      {mxfp4(R"("num_bits":4,"type":"float","symmetric":false)"), "g.weights.symmetric"},
      {mxfp4(R"("num_bits":4,"type":"float","dynamic":true)"), "g.weights.dynamic"},
  });
}

TEST(FolderQuantization, ReadsFloats) {
  const FolderQuantization blocks = read(
      R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic",
          "weight_block_size":[128,64],"modules_to_not_convert":["lm_head"]})");
  EXPECT_EQ(blocks.title(), "8-bit floats (fp8) in blocks of 128 x 64");
  EXPECT_THAT(blocks.note, HasSubstr("activations stay as they are"));
  EXPECT_EQ(blocks.of_layer("lm_head"), nullptr);
  EXPECT_EQ(blocks.of_layer("x")->block_columns, 64);
  // As transformers writes it.
  EXPECT_EQ(read(R"({"quant_method":"fp8","activation_scheme":"dynamic","dequantize":false,
                     "weight_block_size":[128,128],"scale_fmt":"float","expert_dtype":"fp8",
                     "modules_to_convert":null,"modules_to_not_convert":null})")
                .title(),
            "8-bit floats (fp8) in blocks of 128 x 128");
  // As AutoRound writes it.
  const std::string round =
      R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","bits":8,"sym":true,
          "weight_block_size":[128,128],"group_size":[128,128],"data_type":"fp","act_bits":8,
          "act_data_type":"fp","act_dynamic":true,"act_group_size":128,"act_sym":true,"iters":200,
          "autoround_version":"0.16.1","block_name_to_quantize":"model.layers",
          "ignored_layers":["lm_head"],"extra_config":{"lm_head":{"bits":16,"act_bits":16}}})";
  EXPECT_EQ(read(round).title(), "8-bit floats (fp8) in blocks of 128 x 128");
  EXPECT_EQ(read(round).of_layer("lm_head"), nullptr);
  // As MiniMax-M2's config.json spells it.
  EXPECT_EQ(read(R"({"quant_method":"fp8","fmt":"float8_e4m3fn","activation_scheme":"dynamic",
                     "weight_block_size":[128,128],
                     "modules_to_not_convert":["gate","e_score_correction_bias","lm_head"]})")
                .title(),
            "8-bit floats (fp8) in blocks of 128 x 128");
}

// Scales of activations that the file has are not used, which is said.
TEST(FolderQuantization, SaysThatActivationsWithStoredScalesStayAsTheyAre) {
  const auto stored = [](const std::string& quantization) {
    const FolderQuantization q = read(quantization);
    EXPECT_EQ(q.note,
              "activations stay as they are, where the config asks for rounding them to 8-bit "
              "floats with scales that are stored");
    return q.stored_activation_scales;
  };
  // As Ministral 3's config.json has it, RedHat's and NVIDIA's.
  EXPECT_TRUE(stored(R"({"quant_method":"fp8","activation_scheme":"static","dequantize":false,
                 "weight_block_size":null,"modules_to_not_convert":["lm_head"]})"));
  EXPECT_TRUE(stored(
      R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{
          "a":{"targets":["Linear"],
            "weights":{"num_bits":8,"type":"float","strategy":"tensor","dynamic":false},
            "input_activations":{"num_bits":8,"type":"float","strategy":"tensor",
                                 "dynamic":false,"observer":"static_minmax"}},
          "b":{"targets":["re:.*down_proj"],"weights":{"num_bits":8,"strategy":"tensor"},
            "input_activations":{"num_bits":8}}}})"));
  EXPECT_TRUE(stored(
      R"({"quant_method":"compressed-tensors","format":"naive-quantized","config_groups":{
          "group_0":{"targets":["Linear"],
            "weights":{"num_bits":8,"type":"float","strategy":"tensor"},
            "input_activations":{"num_bits":8,"type":"float","strategy":"tensor"}}},
          "ignore":["lm_head"],"quantization_status":"frozen"})"));
  EXPECT_TRUE(stored(R"({"quant_method":"modelopt","quant_algo":"FP8"})"));
  EXPECT_TRUE(stored(R"({"quant_method":"modelopt","quant_algo":"FP8","config_groups":{"g":{
                         "weights":{"num_bits":8},"input_activations":{"num_bits":8,
                         "type":"float","dynamic":false}}}})"));
  const FolderQuantization both = read(
      R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{
          "a":{"weights":{"num_bits":8,"strategy":"tensor"},"input_activations":{"num_bits":8}},
          "b":{"targets":["x"],"weights":{"num_bits":8,"strategy":"tensor"},
               "input_activations":{"num_bits":8,"dynamic":true}}}})");
  EXPECT_THAT(both.note, AllOf(HasSubstr("are stored; activations"), EndsWith("8-bit floats")));
  EXPECT_FALSE(read(R"({"quant_method":"fp8"})").stored_activation_scales);
}

TEST(FolderQuantization, RefusesFourBitFloatsByKey) {
  const auto nvfp4 = [](const std::string& weights, const std::string& group = "") {
    return R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized",
               "config_groups":{"g":{"weights":{)" +
           weights + "}" + group + "}}}";
  };
  const std::string usual = R"("num_bits":4,"type":"float","strategy":"tensor_group")";
  const auto inputs = [&](const std::string& members) {
    return nvfp4(usual, R"(,"input_activations":{)" + members + "}");
  };
  const auto modelopt = [](const std::string& members) {
    return R"({"quant_method":"modelopt","quant_algo":"NVFP4",)" + members + "}";
  };
  const auto float8 = [](const std::string& group) {
    return R"({"quant_method":"modelopt","quant_algo":"FP8","config_groups":{"g":{)" + group +
           "}}}";
  };
  const auto bnb = [](const std::string& members) {
    return R"({"quant_method":"bitsandbytes",)" + members + "}";
  };
  const std::string nf4 = R"("load_in_4bit":true,"bnb_4bit_quant_type":"nf4")";
  expect_refused({
      {nvfp4(R"("num_bits":8,"type":"float")"), "g.weights.num_bits"},
      {nvfp4(R"("num_bits":4,"type":"int")"), "g.weights.type"},
      {nvfp4(R"("num_bits":4,"type":"float","group_size":32)"), "g.weights.group_size"},
      {nvfp4(R"("num_bits":4,"type":"float","strategy":"channel")"), "g.weights.strategy"},
      {nvfp4(usual + R"(,"symmetric":false)"), "g.weights.symmetric"},
      {nvfp4(usual + R"(,"dynamic":true)"), "g.weights.dynamic"},
      {inputs(R"("num_bits":8,"type":"float","dynamic":"local")"), "g.input_activations.num_bits"},
      {inputs(R"("num_bits":4,"type":"int","dynamic":"local")"), "g.input_activations.type"},
      {inputs(R"("num_bits":4,"type":"float","dynamic":false)"), "g.input_activations.dynamic"},
      {inputs(R"("num_bits":4,"type":"float","dynamic":"global")"), "g.input_activations.dynamic"},
      {R"({"quant_method":"modelopt"})", "quant_algo"},
      {R"({"quant_method":"modelopt","quantization":{"quant_algo":"W4A8_AWQ"}})",
       "quantization.quant_algo"},
      {R"({"quant_method":"modelopt","quant_algo":"FP8_PB_WO","group_size":64})", "group_size"},
      {float8(R"("weights":{"num_bits":8},"input_activations":{"num_bits":8,"dynamic":"local"})"),
       "config_groups.g.input_activations.dynamic"},
      {float8(R"("weights":{"num_bits":8},"input_activations":{"num_bits":8,"type":"int"})"),
       "config_groups.g.input_activations.type"},
      {float8(R"("weights":{"num_bits":4,"type":"float"})"), "config_groups.g.weights.num_bits"},
      {modelopt(R"("group_size":32)"), "group_size"},
      {modelopt(R"("kv_cache_quant_algo":"INT8")"), "kv_cache_quant_algo"},
      {modelopt(R"("config_groups":{"a":null})"), "config_groups.a"},
      {modelopt(R"("weights":{"num_bits":8,"type":"float"})"), "quantization_config.weights"},
      {modelopt(R"("input_activations":{"num_bits":4})"), "quantization_config.weights"},
      {modelopt(R"("config_groups":{"a":{"weights":{"num_bits":8,"type":"float"}}})"),
       "config_groups.a.weights.num_bits"},
      {modelopt(R"("config_groups":{"a":{"targets":["Linear"]}})"), "config_groups.a.weights"},
      {modelopt(R"("exclude_modules":"lm_head")"), "exclude_modules"},
      {modelopt(R"("ignore":["layers.[0-3]*"])"), "ignore"},
      {bnb(R"("load_in_8bit":true)"), "load_in_8bit"},
      {bnb(R"("load_in_4bit":false)"), "load_in_4bit"},
      {bnb(R"("load_in_4bit":true)"), "bnb_4bit_quant_type"},
      {bnb(R"("load_in_4bit":true,"bnb_4bit_quant_type":"fp4")"), "bnb_4bit_quant_type"},
      {bnb(nf4 + R"(,"bnb_4bit_quant_storage":"int8")"), "bnb_4bit_quant_storage"},
      {bnb(nf4 + R"(,"llm_int8_skip_modules":"lm_head")"), "llm_int8_skip_modules"},
  });
}

TEST(FolderQuantization, RefusesMixturesByKey) {
  const auto mixture = [](const std::string& layers) {
    return R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":)" +
           layers + "}";
  };
  expect_refused({
      {mixture("{}"), "quantized_layers"},
      {mixture("null"), "quantized_layers"},
      {mixture(R"({"a":null})"), "quantized_layers.a"},
      {mixture(R"({"a":{"quant_algo":"W4A8_AWQ"}})"), "quantized_layers.a.quant_algo"},
      {mixture(R"({"a":{"quant_algo":"MIXED_PRECISION"}})"), "quantized_layers.a.quant_algo"},
      {mixture(R"({"a":{"quant_algo":"NVFP4","group_size":32}})"), "quantized_layers.a.group_size"},
      {mixture(R"({"a":{"quant_algo":"FP8","pre_quant_scale":true}})"), "a.pre_quant_scale"},
  });
}

// What is not known may mean other values.
TEST(FolderQuantization, RefusesUnknownKeysByName) {
  const auto with = [](const std::string& method, const std::string& member) {
    return R"({"quant_method":")" + method + R"(",)" + member + "}";
  };
  const std::string fours = R"("load_in_4bit":true,"bnb_4bit_quant_type":"nf4",)";
  const std::string algorithm = R"("quant_algo":"NVFP4",)";
  expect_refused({
      {with("awq", R"("bits":4,"group_size":128,"smooth":{"a":1})"), "quantization_config.smooth"},
      {with("gptq", R"("bits":4,"group_size":128,"codebook":"e8p")"), "codebook"},
      {with("gptq", R"("bits":4,"group_size":128,"act_bits":8)"), "act_bits"},
      {packed(kWeights, "", R"(,"pivot":true)"), "pivot"},
      {packed(kWeights + R"(,"codebook":[1])"), "group_0.weights.codebook"},
      {packed(kWeights, R"(,"transform":"hadamard")"), "config_groups.group_0.transform"},
      {with("fp8", R"("exponent_bias":8)"), "exponent_bias"},
      {with("modelopt", algorithm + R"("has_zero_point":true)"), "has_zero_point"},
      {with("modelopt", R"("quantization":{"quant_algo":"NVFP4","pre_quant_scale":true})"),
       "quantization.pre_quant_scale"},
      {with("modelopt", algorithm + R"("quantized_layers":{"a":{"quant_algo":"FP8"}})"),
       "quantized_layers"},
      {with("bitsandbytes", fours + R"("bnb_4bit_blocksize":128)"), "bnb_4bit_blocksize"},
  });
  // Off, or about how the weights were made.
  EXPECT_EQ(read(with("awq", R"("bits":4,"group_size":128,"smooth":false)")).groups.size(), 1);
  EXPECT_EQ(read(with("gptq", R"("bits":4,"group_size":128,"damp_percent":0.1,"codebook":null)"))
                .groups.size(),
            1);
}

TEST(FolderQuantization, SaysWhatBecomesOfKeysAndValues) {
  for (const char* members :
       {R"("kv_cache_quant_algo":"FP8")",
        R"("kv_cache_scheme":{"num_bits":8,"type":"float","dynamic":false})",
        R"("quantization":{"quant_algo":"NVFP4","kv_cache_quant_algo":"FP8"})"}) {
    const FolderQuantization q =
        read(R"({"quant_method":"modelopt","quant_algo":"NVFP4",)" + std::string(members) + "}");
    EXPECT_TRUE(q.kv_cache_floats);
    EXPECT_THAT(q.note, AllOf(HasSubstr("activations stay"), HasSubstr("--kv-cache-dtype fp8")));
  }
  EXPECT_FALSE(read(packed(kWeights, "", R"(,"kv_cache_scheme":{})")).kv_cache_floats);
  // As llm-compressor writes it where weights are as they were.
  const auto alone = [](const std::string& scheme) {
    return read(R"({"config_groups":{},"format":"dense","ignore":[],"kv_cache_scheme":)" + scheme +
                R"(,"quant_method":"compressed-tensors","quantization_status":"compressed",
                "sparsity_config":{},"transform_config":{}})");
  };
  const FolderQuantization q = alone(R"({"dynamic":false,"group_size":null,"num_bits":8,
                                         "strategy":"tensor","symmetric":true,"type":"float"})");
  EXPECT_TRUE(q.groups.empty() && q.kv_cache_floats && !q.has_integers());
  EXPECT_EQ(q.of_layer("model.layers.0.mlp.up_proj"), nullptr);
  EXPECT_EQ(q.title(), "not quantised (compressed-tensors)");
  EXPECT_THAT(testing::load_error([&] { alone("{}"); }), HasSubstr("config_groups"));
  EXPECT_THAT(testing::load_error([&] { alone(R"({"num_bits":4,"type":"float"})"); }),
              HasSubstr("kv_cache_scheme.num_bits"));
  // As AutoFP8 writes it.
  EXPECT_TRUE(read(R"({"quant_method":"fp8","activation_scheme":"static",
                       "ignored_layers":["lm_head"],"kv_cache_scheme":"static"})")
                  .kv_cache_floats);
}

TEST(FolderQuantization, ReadsModeloptsOtherSpellings) {
  const auto modelopt = [](const std::string& members) {
    return read(R"({"quant_method":"modelopt",)" + members + "}");
  };
  EXPECT_EQ(modelopt(R"("quant_algo":"fp8_pb_wo")").title(),
            "8-bit floats (modelopt) in blocks of 128 x 128");
  EXPECT_TRUE(modelopt(R"("quant_algo":"nvfp4","kv_cache_quant_algo":"fp8")").kv_cache_floats);
  // Weights alone.
  const FolderQuantization weights = modelopt(
      R"("quant_algo":"W4A16_NVFP4","group_size":16,"ignore":["lm_head"],"config_groups":{"a":{
         "targets":["Linear"],"input_activations":null,"output_activations":null,
         "weights":{"num_bits":4,"type":"float","group_size":16,"dynamic":false}}})");
  EXPECT_EQ(weights.title(), "4-bit nvfp4 (modelopt) in groups of 16");
  EXPECT_EQ(weights.note, "");
  // A group without a name.
  const std::string floats = R"({"num_bits":4,"type":"float","group_size":16})";
  EXPECT_EQ(
      modelopt(R"("quant_algo":"NVFP4","weights":)" + floats + R"(,"input_activations":)" + floats)
          .note,
      modelopt(R"("quant_algo":"NVFP4")").note);
}

// As NVIDIA's Qwen3.6 has them.
TEST(FolderQuantization, ReadsModeloptsMixtures) {
  const std::string layers = R"("quantized_layers":{
      "model.language_model.layers.0.mlp.experts":{"quant_algo":"W4A16_NVFP4","group_size":16},
      "model.language_model.layers.3.self_attn.q_proj":{"quant_algo":"FP8"},
      "lm_head":{"quant_algo":"W4A16_NVFP4","group_size":16}})";
  const FolderQuantization q = read(
      R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","ignore":["mtp*"],
          "config_groups":{"group_0":{"targets":["lm_head"]}},)" +
      layers + "}");
  EXPECT_EQ(q.title(), "4-bit nvfp4 (modelopt) in groups of 16");
  const std::string stem = "model.language_model.layers.";
  EXPECT_EQ(q.of_layer(stem + "0.mlp.experts.17.up_proj")->format, FolderFormat::kModeloptNvfp4);
  EXPECT_EQ(q.of_layer(stem + "3.self_attn.q_proj")->format, FolderFormat::kFp8);
  EXPECT_EQ(q.of_layer(stem + "3.self_attn.k_proj"), nullptr);
  EXPECT_EQ(q.of_layer(stem + "0.mlp.experts_gate"), nullptr);
  EXPECT_EQ(q.of_layer("mtp.lm_head"), nullptr);
  EXPECT_TRUE(q.stored_activation_scales);
  EXPECT_THAT(q.note, EndsWith("8-bit floats with scales that are stored"));
  EXPECT_EQ(read(R"({"quant_method":"modelopt","quantization":{"quant_algo":"MIXED_PRECISION",)" +
                 layers + "}}")
                .groups.size(),
            2);
}

TEST(FolderQuantization, ReadsModeloptFloatsOf8Bits) {
  const auto modelopt = [](const std::string& members) {
    return read(R"({"quant_method":"modelopt",)" + members + "}");
  };
  const FolderQuantization rows = modelopt(R"("quant_algo":"FP8_PER_CHANNEL_PER_TOKEN")");
  EXPECT_EQ(rows.title(), "8-bit floats (modelopt)");
  EXPECT_THAT(rows.note, HasSubstr("activations stay as they are"));
  const FolderQuantization blocks = modelopt(R"("quant_algo":"FP8_PB_WO","group_size":128)");
  EXPECT_EQ(blocks.title(), "8-bit floats (modelopt) in blocks of 128 x 128");
  EXPECT_EQ(blocks.note, "");
  // Activations as they are, or with scales that are found where they are used.
  EXPECT_EQ(modelopt(R"("quant_algo":"FP8","config_groups":{"g":{"weights":{"num_bits":8}}})").note,
            "");
  EXPECT_THAT(modelopt(R"("quant_algo":"FP8","config_groups":{"g":{"weights":{"num_bits":8},
                           "input_activations":{"num_bits":8,"type":"float","dynamic":true}}})")
                  .note,
              HasSubstr("activations stay as they are"));
}

TEST(FolderQuantization, ReadsFourBitFloats) {
  const FolderQuantization modelopt = read(
      R"({"quant_method":"modelopt","quant_algo":"NVFP4","kv_cache_scheme":null,
          "config_groups":{"group_0":{"targets":["Linear"],
            "input_activations":{"dynamic":false,"num_bits":4,"type":"float","group_size":16},
            "weights":{"dynamic":false,"num_bits":4,"type":"float","group_size":16}}},
          "ignore":["lm_head","model.layers.1.self_attn*","*.mlp.gate"]})");
  EXPECT_EQ(modelopt.title(), "4-bit nvfp4 (modelopt) in groups of 16");
  EXPECT_THAT(modelopt.note, HasSubstr("4-bit floats"));
  EXPECT_EQ(modelopt.of_layer("lm_head"), nullptr);
  EXPECT_EQ(modelopt.of_layer("model.layers.1.self_attn.q_proj"), nullptr);
  EXPECT_EQ(modelopt.of_layer("model.layers.3.mlp.gate"), nullptr);
  EXPECT_NE(modelopt.of_layer("model.layers.3.mlp.gate_proj"), nullptr);
  EXPECT_NE(modelopt.of_layer("model.layers.10.self_attn.q_proj"), nullptr);
  const FolderQuantization nf4 = read(
      R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4",
          "llm_int8_skip_modules":["lm_head"]})");
  EXPECT_EQ(nf4.title(), "4-bit nf4 (bitsandbytes) in groups of 64");
  EXPECT_EQ(nf4.note, "");
  EXPECT_EQ(nf4.of_layer("lm_head"), nullptr);
  EXPECT_EQ(read(R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized",
                     "config_groups":{"g":{"weights":{"num_bits":4,"type":"float"}}}})")
                .note,
            "");
}

TEST(NamePattern, MatchesAsPythonDoes) {
  const auto begins = [](const char* pattern, const char* name) {
    return NamePattern(pattern).begins(name);
  };
  EXPECT_TRUE(begins(".*mlp\\.gate$", "model.layers.0.mlp.gate"));
  EXPECT_FALSE(begins(".*mlp\\.gate$", "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(begins("model", "model.layers"));
  EXPECT_FALSE(begins("layers", "model.layers"));
  EXPECT_TRUE(begins("model\\.layers\\.(1|2[0-9])\\.", "model.layers.25.mlp"));
  EXPECT_FALSE(begins("model\\.layers\\.(1|2[0-9])\\.", "model.layers.3.mlp"));
  EXPECT_TRUE(begins("^(?!.*experts).*_proj", "layers.0.up_proj"));
  EXPECT_FALSE(begins("^(?!.*experts).*_proj", "layers.0.experts.1.up_proj"));
  EXPECT_TRUE(begins("a{2,3}$", "aaa"));
  EXPECT_FALSE(begins("a{2,3}$", "aaaa"));
  EXPECT_TRUE(begins("[^.]+\\.\\d+$", "ab.12"));
  EXPECT_FALSE(begins("[^.]+\\.\\d+$", "ab.12x"));
  EXPECT_FALSE(begins("[^.]+\\.\\d+$", ".12"));
  EXPECT_FALSE(begins("[^.]*\\.\\d+$", "a.b.12"));
  EXPECT_TRUE(begins("[ab]{2,}c", "abac"));
  EXPECT_FALSE(begins("[ab]{2,}c", "ac"));
  EXPECT_FALSE(begins("[ab]{2,}c", "abxc"));
  EXPECT_TRUE(begins(".*(a|b.*)c$", "xaxbxxc"));
  // Takes exponential time where places are tried one after the other.
  EXPECT_FALSE(begins("(a*)*(a*)*b", std::string(200, 'a').c_str()));
  for (const char* bad : {"(", ")", "[a", "*", "a**", "\\", "(?<x>a)", "a{3,2}", "[z-a]", "\\b"})
    EXPECT_THROW(NamePattern{bad}, std::invalid_argument) << bad;
}

}  // namespace
}  // namespace quire::formats
