#include "formats/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/folder_quantization.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;

// A small valid config, with the keys of `changes` (a JSON object) replaced or added.
HfConfig config_with(const std::string& changes) {
  json::value raw = *parse_json(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",
      "hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
      "vocab_size":320,"max_position_embeddings":512})");
  const json::value overlay = *parse_json(changes);
  for (const auto& change : overlay.get_object())
    raw.get_object().insert_or_assign(change.key(), change.value());
  return parse_hf_config(raw, "dir/config.json");
}

TEST(HfConfig, FillsInDefaults) {
  const HfConfig c = config_with("{}");
  EXPECT_THAT(c.architectures, ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.hidden_act, "silu");
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_FALSE(c.dtype.has_value());
  EXPECT_FALSE(c.sliding_window.has_value());
  EXPECT_TRUE(c.eos_token_ids.empty());
  EXPECT_EQ(c.rope.type, "default");
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_EQ(c.rope.original_max_position_embeddings, 512);
  EXPECT_TRUE(c.quantization.is_null());
}

// Latent attention: five heads do not divide 64, and need not.
TEST(HfConfig, TheRotatedPartOfAHeadStandsForItsWidth) {
  EXPECT_EQ(config_with(R"({"num_attention_heads":5,"qk_rope_head_dim":8})").head_dim, 8);
  EXPECT_EQ(config_with(R"({"head_dim":24,"qk_rope_head_dim":8})").head_dim, 24);
}

TEST(HfConfig, ReadsEveryFact) {
  const HfConfig c = config_with(R"({"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-5,
      "tie_word_embeddings":true,"attention_bias":true,"mlp_bias":true,"hidden_act":"gelu",
      "sliding_window":24,"use_sliding_window":true,"max_window_layers":1,
      "layer_types":["full_attention","sliding_attention"],"torch_dtype":"bfloat16",
      "bos_token_id":1,"eos_token_id":[2,3],"pad_token_id":-1,
      "quantization_config":{"bits":4,"group_size":64},"max_position_embeddings":1024.0,
      "extra":{"x":1},"num_experts":8,"scale":2,"flag":false,"kind":"k"})");
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_TRUE(c.tie_word_embeddings && c.attention_bias && c.mlp_bias);
  EXPECT_EQ(c.hidden_act, "gelu");
  EXPECT_EQ(c.sliding_window, 24);
  EXPECT_EQ(c.use_sliding_window, true);
  EXPECT_EQ(c.max_window_layers, 1);
  EXPECT_EQ(c.layer_types[1], "sliding_attention");
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2, 3));
  EXPECT_FALSE(c.pad_token_id.has_value());
  EXPECT_EQ(c.max_position_embeddings, 1024);
  EXPECT_EQ(c.quantization.at("bits").as_int64(), 4);
  EXPECT_EQ(c.get_int("num_experts", 0), 8);
  EXPECT_EQ(c.get_int("absent", 7), 7);
  EXPECT_EQ(c.get_double("scale", 0), 2.0);
  EXPECT_FALSE(c.get_bool("flag", true));
  EXPECT_EQ(c.get_string("kind", ""), "k");
  EXPECT_THAT(load_error([&] { c.get_int("kind", 0); }), HasSubstr("dir/config.json: \"kind\""));
  EXPECT_THAT(load_error([&] { c.get_bool("scale", false); }), HasSubstr("\"scale\" must be true"));
}

TEST(HfConfig, NullCountsAsAbsent) {
  const HfConfig c = config_with(R"({"head_dim":null,"rope_scaling":null,"sliding_window":null,
      "eos_token_id":null,"num_key_value_heads":null,"quantization_config":null})");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_FALSE(c.sliding_window.has_value());
}

TEST(HfConfig, TextConfigComesFirst) {
  const HfConfig c = config_with(R"({"architectures":["XForConditionalGeneration"],
      "eos_token_id":9,"text_config":{"architectures":["XForCausalLM"],"hidden_size":128,
      "head_dim":8,"depth":3}})");
  EXPECT_THAT(c.architectures, ElementsAre("XForConditionalGeneration"));
  EXPECT_EQ(c.hidden_size, 128);
  EXPECT_EQ(c.num_hidden_layers, 2);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(9));
  EXPECT_EQ(c.get_int("depth", 0), 3);
}

// But for the head: a wrapper has its own, tied to the embedding or not.
// As google/gemma-3-4b-it is published.
TEST(HfConfig, GemmaLeavesDefaultsOut) {
  const json::value raw = *parse_json(R"({"architectures":["Gemma3ForConditionalGeneration"],
      "model_type":"gemma3", "text_config":{"hidden_size":2560,"intermediate_size":10240,
      "model_type":"gemma3_text","num_hidden_layers":34,"sliding_window":1024,
      "rope_scaling":{"factor":8.0,"rope_type":"linear"}}})");
  const HfConfig c = parse_hf_config(raw, "config.json");
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.num_attention_heads, 8);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.max_position_embeddings, 131072);
  EXPECT_EQ(c.rope_for("full_attention").theta, 1e6);
  EXPECT_EQ(c.rope_for("full_attention").factor, 8);
  EXPECT_EQ(c.rope_for("sliding_attention").theta, 1e4);
  EXPECT_EQ(c.rope_for("sliding_attention").factor, 1);
}

TEST(HfConfig, Gemma4LeavesDefaultsOut) {
  const auto read =
      [](const std::string& more) {
        return parse_hf_config(*parse_json(R"({"architectures":["Gemma4ForCausalLM"],
        "model_type":"gemma4_text","hidden_size":1536,"intermediate_size":6144,
        "num_hidden_layers":35)" + more + "}"),
                               "config.json");
      };
  for (const char* more : {"", R"(,"rope_parameters":null)"}) {
    const HfConfig c = read(more);
    EXPECT_EQ(c.vocab_size, 262144);
    EXPECT_EQ(c.head_dim, 256);
    EXPECT_EQ(c.rope_for("full_attention").type, "proportional");
    EXPECT_EQ(c.rope_for("full_attention").theta, 1e6);
    EXPECT_EQ(c.rope_for("full_attention").partial_rotary_factor, 0.25);
    EXPECT_EQ(c.rope_for("full_attention").factor, 1);
    EXPECT_EQ(c.rope_for("sliding_attention").type, "default");
    EXPECT_EQ(c.rope_for("sliding_attention").theta, 1e4);
  }
  EXPECT_EQ(read(R"(,"rope_parameters":{"full_attention":{"rope_type":"proportional","factor":2}})")
                .rope_for("full_attention")
                .factor,
            2);
}

TEST(HfConfig, AWrapperSaysWhetherTheHeadIsTied) {
  const auto is_tied = [](const char* changes) { return config_with(changes).tie_word_embeddings; };
  EXPECT_FALSE(
      is_tied(R"({"tie_word_embeddings":false,"text_config":{"tie_word_embeddings":true}})"));
  EXPECT_TRUE(
      is_tied(R"({"tie_word_embeddings":true,"text_config":{"tie_word_embeddings":false}})"));
  EXPECT_TRUE(is_tied(R"({"text_config":{"tie_word_embeddings":true}})"));
}

TEST(HfConfig, BadValuesNameFileAndKey) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"architectures":[]})", "\"architectures\" is missing"},
      {R"({"architectures":"x"})", "\"architectures\" must be a list of strings, not \"x\""},
      {R"({"hidden_size":null})", "\"hidden_size\" is missing"},
      {R"({"hidden_size":"64"})", "\"hidden_size\" must be an integer, not \"64\""},
      {R"({"hidden_size":64.5})", "\"hidden_size\" must be an integer"},
      {R"({"hidden_size":1e300})", "\"hidden_size\" must be an integer"},
      {R"({"hidden_size":0})", "\"hidden_size\" is 0, out of range"},
      {R"({"hidden_size":9223372036854775807})", "\"hidden_size\" is 9223372036854775807, out"},
      {R"({"hidden_size":18446744073709551615})", "\"hidden_size\" must be an integer"},
      {R"({"intermediate_size":-1})", "\"intermediate_size\" is -1, out of range"},
      {R"({"num_hidden_layers":0})", "\"num_hidden_layers\" is 0, out of range"},
      {R"({"num_hidden_layers":10000})", "\"num_hidden_layers\" is 10000, out of range"},
      {R"({"num_attention_heads":0})", "\"num_attention_heads\" is 0, out of range"},
      {R"({"num_attention_heads":5})", "\"num_attention_heads\" is 5, which does not divide"},
      {R"({"num_key_value_heads":3})", "\"num_key_value_heads\" is 3, which does not divide"},
      {R"({"num_key_value_heads":0})", "\"num_key_value_heads\" is 0, out of range"},
      {R"({"head_dim":0})", "\"head_dim\" is 0, out of range"},
      {R"({"head_dim":-16})", "\"head_dim\" is -16, out of range"},
      {R"({"vocab_size":0})", "\"vocab_size\" is 0, out of range"},
      {R"({"max_position_embeddings":0})", "\"max_position_embeddings\" is 0, out of range"},
      {R"({"rms_norm_eps":-1})", "\"rms_norm_eps\" is -1.0, out of range"},
      {R"({"rms_norm_eps":true})", "\"rms_norm_eps\" must be a number, not true"},
      {R"({"tie_word_embeddings":1})", "\"tie_word_embeddings\" must be true or false, not 1"},
      {R"({"hidden_act":[]})", "\"hidden_act\" must be a string, not []"},
      {R"({"sliding_window":-1})", "\"sliding_window\" is -1, out of range"},
      {R"({"layer_types":["full_attention"]})", "\"layer_types\" lists 1 layers, but num_hidden"},
      {R"({"torch_dtype":"int8"})", "\"torch_dtype\" must be float32, float16 or bfloat16"},
      {R"({"eos_token_id":[1,-2]})", "\"eos_token_id\" is -2, out of range"},
      {R"({"text_config":[]})", "\"text_config\" must be an object"},
      {R"({"quantization":"q4"})", "\"quantization\" must be an object"},
      {R"({"rope_theta":0})", "\"rope_theta\" is 0.0, out of range"},
      {R"({"rope_scaling":[]})", "\"rope_scaling\" must be an object"},
      {R"({"rope_scaling":{"type":"spiral"}})", "\"rope_scaling.rope_type\" is \"spiral\""},
      {R"({"rope_scaling":{"type":"linear"}})", "\"rope_scaling.factor\" is missing"},
      {R"({"rope_parameters":{"rope_type":"linear","factor":0}})",
       "\"rope_parameters.factor\" is 0.0, out of range"},
      {R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":3}})",
       "\"rope_scaling.high_freq_factor\" must not be less"},
      {R"({"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],
           "long_factor":[1]}})",
       "\"rope_scaling.long_factor\" must list 8 numbers"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"beta_fast":1,"beta_slow":2}})",
       "\"rope_scaling.beta_fast\" must not be less"},
      {R"({"rms_norm_eps":0})", "\"rms_norm_eps\" is 0.0, out of range"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"rope_theta":1}})",
       "\"rope_scaling.rope_theta\" is 1"},
      {R"({"rope_scaling":{"type":"yarn","factor":2,"original_max_position_embeddings":1}})",
       "\"rope_scaling.original_max_position_embeddings\" is 1; yarn needs"},
      {R"({"partial_rotary_factor":0})", "\"partial_rotary_factor\" is 0.0, out of range"},
      {R"({"rope_parameters":{"full_attention":{"rope_theta":"x"}}})",
       "\"rope_parameters.full_attention.rope_theta\" must be a number"},
  };
  for (const auto& [changes, message] : cases) {
    const std::string error = load_error([&, c = changes] { config_with(c); });
    EXPECT_THAT(error, HasSubstr("dir/config.json: ")) << changes;
    EXPECT_THAT(error, HasSubstr(message)) << changes;
  }
}

// The same rope in the spelling of transformers 4 and of transformers 5.
TEST(RopeConfig, BothStylesMeanTheSame) {
  const char* pairs[][2] = {
      {R"({"rope_theta":5e5,"rope_scaling":{"rope_type":"llama3","factor":8,
           "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}})",
       R"({"rope_parameters":{"rope_theta":5e5,"rope_type":"llama3","factor":8,
           "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}})"},
      {R"({"rope_theta":5e5,"partial_rotary_factor":0.5,"original_max_position_embeddings":64,
           "rope_scaling":{"type":"su","short_factor":[1,2,3,4],"long_factor":[2,3,4,5]}})",
       R"({"rope_parameters":{"rope_theta":5e5,"rope_type":"longrope","factor":8.0,
           "partial_rotary_factor":0.5,"original_max_position_embeddings":64,
           "short_factor":[1,2,3,4],"long_factor":[2,3,4,5]}})"},
      {R"({"rope_theta":5e5,"rope_scaling":{"type":"yarn","factor":8,"mscale":0.7,
           "original_max_position_embeddings":64,"attention_factor":1.5,"truncate":false}})",
       R"({"rope_parameters":{"rope_theta":5e5,"rope_type":"yarn","mscale":0.7,
           "original_max_position_embeddings":64,"attention_factor":1.5,"truncate":false}})"},
  };
  for (const auto& pair : pairs) {
    const RopeConfig a = config_with(pair[0]).rope;
    const RopeConfig b = config_with(pair[1]).rope;
    EXPECT_EQ(a.theta, 5e5);
    EXPECT_EQ(a.factor, 8.0) << pair[0];
    EXPECT_EQ(a.original_max_position_embeddings, 64);
    EXPECT_EQ(std::tie(a.type, a.theta, a.factor, a.partial_rotary_factor, a.low_freq_factor,
                       a.original_max_position_embeddings, a.high_freq_factor, a.truncate),
              std::tie(b.type, b.theta, b.factor, b.partial_rotary_factor, b.low_freq_factor,
                       b.original_max_position_embeddings, b.high_freq_factor, b.truncate));
    EXPECT_EQ(std::tie(a.mscale, a.attention_factor, a.short_factor, a.long_factor),
              std::tie(b.mscale, b.attention_factor, b.short_factor, b.long_factor));
  }
}

// As transformers: people add rope_scaling to reach further.
TEST(RopeConfig, ScalingCountsBeforeParameters) {
  const std::string scaling = R"("rope_scaling":{"rope_type":"linear","factor":4})";
  const HfConfig both =
      config_with("{" + scaling + R"(,"rope_parameters":{"rope_theta":5e5},"rope_theta":1e6})");
  EXPECT_EQ(both.rope.type, "linear");
  EXPECT_EQ(both.rope.theta, 1e6);
  const HfConfig nested = config_with("{" + scaling + R"(,"rope_parameters":{
      "full_attention":{"rope_type":"default","rope_theta":5e5}}})");
  EXPECT_EQ(nested.rope.type, "default");
}

TEST(RopeConfig, PerLayerType) {
  const HfConfig nested = config_with(R"({"rope_parameters":{
      "sliding_attention":{"rope_type":"default","rope_theta":1e4},
      "full_attention":{"rope_type":"linear","rope_theta":1e6,"factor":8}}})");
  const HfConfig old = config_with(R"({"rope_theta":1e6,"rope_local_base_freq":1e4,
      "rope_scaling":{"rope_type":"linear","factor":8}})");
  for (const HfConfig* c : {&nested, &old}) {
    EXPECT_EQ(c->rope_for("sliding_attention").theta, 1e4);
    EXPECT_EQ(c->rope_for("sliding_attention").type, "default");
    EXPECT_EQ(c->rope_for("full_attention").type, "linear");
    EXPECT_EQ(c->rope_for("full_attention").factor, 8.0);
    EXPECT_EQ(c->rope.theta, 1e6);
  }
  EXPECT_EQ(config_with(R"({"rope_theta":5})").rope_for("full_attention").theta, 5.0);
  const HfConfig nulls = config_with(R"({"rope_theta":5,"rope_parameters":{"rope_type":null}})");
  EXPECT_TRUE(nulls.rope_by_layer_type.empty());
  EXPECT_EQ(nulls.rope.theta, 5.0);
}

TEST(HfConfig, ReadsWhatModeloptSaysBesideIt) {
  TempDir dir;
  const std::string rest = R"("architectures":["LlamaForCausalLM"],"hidden_size":64,
      "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":320,
      "max_position_embeddings":512})";
  const std::string file = dir.write("config.json", "{" + rest);
  EXPECT_TRUE(read_hf_config(file).quantization.is_null());
  const std::string beside = dir.write("hf_quant_config.json", R"({"quantization":{
      "quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}})");
  const HfConfig config = read_hf_config(file);
  EXPECT_EQ(config.quantization_file, beside);
  EXPECT_EQ(config.quantization.at("quant_method"), "modelopt");
  EXPECT_EQ(config.quantization.at("quant_algo"), "NVFP4");
  // What config.json itself says counts, and a file that names no format says nothing.
  EXPECT_EQ(read_hf_config(
                dir.write("config.json", R"({"quantization":{"bits":4,"group_size":64},)" + rest))
                .quantization_file,
            "");
  dir.write("config.json", "{" + rest);
  dir.write("hf_quant_config.json", R"({"quantization":{"quant_algo":null}})");
  EXPECT_TRUE(read_hf_config(file).quantization.is_null());
  dir.write("hf_quant_config.json", R"({"quantization":{"quant_algo":8}})");
  EXPECT_THAT(load_error([&] { read_hf_config(file); }), HasSubstr("quantization.quant_algo"));
}

// As AutoGPTQ 0.7 and AutoAWQ 0.2 save them, and as a config.json has them.
TEST(HfConfig, ReadsWhatAutoGptqAndAutoAwqSayBesideIt) {
  const std::string rest = R"("architectures":["LlamaForCausalLM"],"hidden_size":64,
      "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":320,
      "max_position_embeddings":512})";
  const std::string gptq = R"("bits":4,"group_size":128,"damp_percent":0.01,"desc_act":true,
      "static_groups":false,"sym":true,"true_sequential":true,"model_name_or_path":"x",
      "model_file_base_name":"y")";
  const std::string awq = R"("zero_point":true,"q_group_size":128,"w_bit":4,"version":"GEMM")";
  struct Case {
    const char* file;
    std::string beside, same;
  };
  const Case cases[] = {
      {"quantize_config.json", gptq, R"("quant_method":"gptq",)" + gptq},
      {"quantize_config.json", gptq + R"(,"checkpoint_format":"gptq_v2")",
       R"("quant_method":"gptq","checkpoint_format":"gptq_v2",)" + gptq},
      {"quantize_config.json", gptq + R"(,"quant_method":"gptq","is_marlin_format":false)",
       R"("quant_method":"gptq",)" + gptq},
      {"quant_config.json", awq, R"("quant_method":"awq",)" + awq},
      {"quantize_config.json", awq, R"("quant_method":"awq",)" + awq}};
  for (const Case& one : cases) {
    const TempDir dir;
    const std::string file = dir.write("config.json", "{" + rest);
    const std::string beside = dir.write(one.file, "{" + one.beside + "}");
    const auto read = read_folder_quantization(read_hf_config(file));
    dir.write("config.json", R"({"quantization_config":{)" + one.same + "}," + rest);
    const auto same = read_folder_quantization(read_hf_config(file));
    ASSERT_TRUE(read && same) << one.beside;
    EXPECT_EQ(read->method, same->method);
    EXPECT_EQ(read->groups.front().scheme, same->groups.front().scheme) << one.beside;
    EXPECT_EQ(read->file, beside);
    EXPECT_EQ(same->file, file);
  }
}

TEST(HfConfig, WhatIsWrongBesideItNamesThatFile) {
  const TempDir dir;
  const std::string file = dir.write("config.json", R"({"architectures":["LlamaForCausalLM"],
      "hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":320,
      "max_position_embeddings":512})");
  const auto error = [&](const char* text) {
    dir.write("quantize_config.json", text);
    return load_error([&] { read_folder_quantization(read_hf_config(file)); });
  };
  EXPECT_THAT(error(R"({"bits":5,"group_size":128})"),
              HasSubstr("quantize_config.json: \"bits\" is 5"));
  EXPECT_THAT(error(R"({"bits":4,"group_size":128,"checkpoint_format":"marlin"})"),
              HasSubstr("quantize_config.json: \"checkpoint_format\" is \"marlin\""));
  EXPECT_THAT(error(R"({"bits":4,"group_size":128,"new":1})"), HasSubstr("\"new\" is not known"));
  // One that says nothing of weights.
  dir.write("quantize_config.json", R"({"group_size":128})");
  EXPECT_TRUE(read_hf_config(file).quantization.is_null());
}

TEST(GenerationConfig, AllOptional) {
  TempDir dir;
  EXPECT_FALSE(read_generation_config(dir.path() + "/none.json").temperature.has_value());
  const GenerationConfig g = read_generation_config(
      dir.write("g.json", R"({"eos_token_id":[5,6],"temperature":0.6,"top_k":20,"top_p":0.95,
      "min_p":0,"repetition_penalty":1.05,"do_sample":true,"max_new_tokens":100,
      "bos_token_id":1,"suppress_tokens":[7,-1]})"));
  EXPECT_THAT(g.eos_token_ids, ElementsAre(5, 6));
  EXPECT_EQ(g.temperature, 0.6);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.top_p, 0.95);
  EXPECT_EQ(g.min_p, 0.0);
  EXPECT_EQ(g.repetition_penalty, 1.05);
  EXPECT_EQ(g.do_sample, true);
  EXPECT_EQ(g.max_new_tokens, 100);
  EXPECT_THAT(g.suppress_tokens, ElementsAre(7, -1));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"top_p":1.5})", "\"top_p\" is 1.5, out of range [0.0, 1.0]"},
      {R"({"temperature":-1})", "\"temperature\" is -1.0, out of range"},
      {R"({"repetition_penalty":0})", "\"repetition_penalty\" is 0.0, out of range (0.0"},
      {R"({"top_k":"40"})", "\"top_k\" must be an integer"},
      {R"({"suppress_tokens":["7"]})", "\"suppress_tokens\""},
      {"[]", "must hold a JSON object"},
      {"{", "invalid JSON"},
  };
  for (const auto& [text, message] : cases) {
    const std::string path = dir.write("bad.json", text);
    const std::string error = load_error([&] { read_generation_config(path); });
    EXPECT_THAT(error, HasSubstr(path + ": ")) << text;
    EXPECT_THAT(error, HasSubstr(message)) << text;
  }
}

}  // namespace
}  // namespace quire::formats
