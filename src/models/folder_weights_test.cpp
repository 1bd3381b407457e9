// Folders that were quantised for GPUs: what becomes of their weights, and what is said where
// config and weights do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>

#include "base/json.h"
#include "base/source_dir.h"
#include "formats/checkpoint.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/model_size.h"
#include "ops/runtime/context.h"

namespace quire::models {
namespace {

using formats::testing::load_error;
using formats::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string folder_of(const std::string& name) {
  return source_dir() + "/tests/parity/models/" + name;
}

std::unique_ptr<Model> load(const std::string& folder, const LoadOptions& options = {}) {
  return load_model(ops::make_context(1), formats::Checkpoint::open(folder), options);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

// Loads a copy of the checkpoint in one of whose files `from` is `to`.
std::string error_of(const std::string& name, const std::string& from, const std::string& to,
                     const std::string& changed = "config.json") {
  const TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(name)))
    std::filesystem::copy_file(entry.path(), dir.path() + "/" + entry.path().filename().string());
  std::string text = text_of(folder_of(name) + "/" + changed);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  dir.write(changed, text);
  return load_error([&] { load(dir.path()); });
}

struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  void set_float(float value) { std::memcpy(bytes.data(), &value, sizeof value); }
};
int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

using Tensors = std::map<std::string, Stored>;

std::string safetensors_of(const Tensors& tensors) {
  std::string header, data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int64_t length : tensor.shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(length);
    const size_t begin = data.size();
    data += tensor.bytes;
    header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + tensor.dtype +
              R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  return formats::testing::safetensors_bytes(header + "}", 0) + data;
}

// Measures and loads a copy of the checkpoint whose tensors `change` has changed, with this
// quantization_config if it is not empty.
void load_changed(const std::string& name, const std::function<void(Tensors&)>& change,
                  const std::string& quantization = "", const LoadOptions& options = {}) {
  const formats::Checkpoint good = formats::Checkpoint::open(folder_of(name));
  Tensors tensors;
  for (const std::string& one : good.names()) {
    const formats::RawTensor& raw = *good.find(one);
    tensors[one] = {std::string(formats::dtype_name(raw.dtype)), raw.shape,
                    formats::testing::bytes_of(raw)};
  }
  change(tensors);
  const TempDir dir;
  dir.write("model.safetensors", safetensors_of(tensors));
  json::object config = json::parse(text_of(folder_of(name) + "/config.json")).as_object();
  if (!quantization.empty()) config["quantization_config"] = json::parse(quantization);
  dir.write("config.json", json::serialize(config));
  (void)measure_model(formats::Checkpoint::open(dir.path()), {});
  load(dir.path(), options);
}

// As AutoGPTQ and AutoAWQ leave folders.
TEST(FolderWeights, HowTheyAreQuantisedMayStandBesideTheConfig) {
  const std::pair<const char*, const char*> cases[] = {{"llama3-gptq", "quantize_config.json"},
                                                       {"qwen3-moe-awq", "quant_config.json"}};
  for (const auto& [name, beside] : cases) {
    const TempDir dir;
    for (const auto& entry : std::filesystem::directory_iterator(folder_of(name)))
      std::filesystem::copy_file(entry.path(), dir.path() + "/" + entry.path().filename().string());
    json::object config = json::parse(text_of(folder_of(name) + "/config.json")).as_object();
    const std::string quantization = json::serialize(config.at("quantization_config"));
    config.erase("quantization_config");
    dir.write("config.json", json::serialize(config));
    EXPECT_THAT(load_error([&] { load(dir.path()); }), HasSubstr("has no \"quantization_config\""));
    dir.write(beside, quantization);
    const auto model = load(dir.path());
    EXPECT_EQ(model->weight_bytes(), load(folder_of(name))->weight_bytes());
    EXPECT_EQ(model->unpacked_weights(), "");
  }
}

// Merged models may keep such a file: without tensors of its kind it says nothing.
TEST(FolderWeights, AFileBesideTheConfigOfPlainWeightsDoesNotCount) {
  const TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of("qwen3-bf16")))
    std::filesystem::copy_file(entry.path(), dir.path() + "/" + entry.path().filename().string());
  for (const char* old : {R"({"bits":4,"group_size":128})", R"({"bits":4,"quant_method":"hqq"})",
                          R"({"w_bit":8,"unknown":1})"}) {
    dir.write("quantize_config.json", old);
    EXPECT_EQ(load(dir.path())->weight_bytes(), load(folder_of("qwen3-bf16"))->weight_bytes());
    const auto checkpoint = formats::Checkpoint::open(dir.path());
    EXPECT_TRUE(checkpoint.config().quantization.is_null());
  }
}

TEST(FolderWeights, OnlyWhatHasNoKernelBecomesDense) {
  EXPECT_EQ(load(folder_of("qwen3-moe-awq"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("llama3-gptq"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-gptq-dynamic-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-gptq-ragged-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-packed-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-w8a8-bf16"))->unpacked_weights(), "");
  // Scales of 48 columns are not those of whole groups.
  EXPECT_THAT(load(folder_of("qwen3-fp8-bf16"))->unpacked_weights(), HasSubstr("and 12 more"));
  EXPECT_EQ(load(folder_of("qwen3-fp8-blocks-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-fp8-e8m0-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-fp8-static-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-mixed-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-nvfp4-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-modelopt-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-modelopt-fp8-bf16"))->unpacked_weights(), "");
  EXPECT_EQ(load(folder_of("qwen3-modelopt-mixed-bf16"))->unpacked_weights(), "");
  // Rows of 96 columns do not begin with a block.
  EXPECT_EQ(load(folder_of("qwen3-nf4-bf16"))->unpacked_weights(),
            "model.layers.0.mlp.down_proj.weight and 1 more");
}

TEST(FolderWeights, CountAsParametersWhateverHoldsThem) {
  const auto parameters = [](const char* name) {
    return measure_model(formats::Checkpoint::open(folder_of(name)), {}).parameters;
  };
  EXPECT_EQ(parameters("qwen3-moe-awq"), parameters("qwen3-moe-bf16"));
  // With the biases of zeros that GPTQ's programs store, one for each output of a quantised layer.
  constexpr int64_t kZeros = 2 * (64 + 16 + 16 + 64 + 96 + 96 + 64);
  EXPECT_EQ(parameters("llama3-gptq"), parameters("llama3") + kZeros);
  constexpr int64_t kMoreZeros = 128 + 64 + 64 + 64 + 2 * (96 + 96 + 64);
  EXPECT_EQ(parameters("qwen3-gptq-dynamic-bf16"), parameters("qwen3-bf16") + kMoreZeros);
  EXPECT_EQ(parameters("qwen3-packed-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-w8a8-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-fp8-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-fp8-blocks-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-fp8-static-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-mixed-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-nvfp4-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-modelopt-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-modelopt-fp8-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-modelopt-mixed-bf16"), parameters("qwen3-bf16"));
  EXPECT_EQ(parameters("qwen3-nf4-bf16"), parameters("qwen3-bf16"));
}

TEST(FolderWeights, RefusesConfigsOfOtherWeights) {
  EXPECT_THAT(error_of("qwen3-moe-awq", "\"mlp.gate\"", "\"self_attn\""),
              AllOf(HasSubstr("self_attn"), HasSubstr("says that it is not")));
  EXPECT_THAT(error_of("qwen3-moe-awq", "\"group_size\": 32", "\"group_size\": 64"),
              AllOf(HasSubstr(".scales has shape"), HasSubstr("quantization_config")));
  EXPECT_THAT(error_of("qwen3-moe-awq", "\"quantization_config\"", "\"other\""),
              AllOf(HasSubstr("qweight"), HasSubstr("no \"quantization_config\"")));
  EXPECT_THAT(error_of("llama3-gptq", "\"bits\": 4", "\"bits\": 8"),
              AllOf(HasSubstr("qweight has shape"), HasSubstr("config.json asks for")));
  EXPECT_THAT(error_of("llama3-gptq", "\"sym\": false", "\"sym\": true"),
              HasSubstr("that symmetric weights do not have"));
  EXPECT_THAT(error_of("qwen3-packed-bf16", "\"symmetric\": false", "\"symmetric\": true"),
              HasSubstr("weight_zero_point"));
  EXPECT_THAT(error_of("qwen3-fp8-bf16", "24,", "32,"),
              AllOf(HasSubstr("weight_scale_inv has shape"), HasSubstr("blocks of 32 x 48")));
  EXPECT_THAT(error_of("qwen3-mixed-bf16", "\"mxfp4-pack-quantized\"", "\"pack-quantized\""),
              HasSubstr("type"));
}

// A change of tensors, and what the error says of it.
struct Damage {
  std::function<void(Tensors&)> change;
  std::string says;
};

// Packed (blocks of whole rows), and as dense values (blocks of 48 columns).
TEST(FolderWeights, DamagedFloatsOf8BitsAreRefusedByTensor) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight", scales = name + "_scale_inv";
  const auto scale = [&](float value) {
    return [&scales, value](Tensors& t) { t.at(scales).set_float(value); };
  };
  const std::vector<Damage> cases = {
      {[&](Tensors& t) { t.at(name).bytes[5] = '\x7f'; }, name},
      {[&](Tensors& t) { t.at(name).bytes[5] = '\xff'; }, name},
      {scale(std::nanf("")), name},
      {scale(std::numeric_limits<float>::infinity()), name},
      {scale(-std::numeric_limits<float>::infinity()), name},
      {[&](Tensors& t) { t.erase(scales); }, "weight_scale is missing"},
      {[&](Tensors& t) { t[name + "_scale"] = t.at(scales); }, name + "_scale;"},
      {[&](Tensors& t) { std::ranges::reverse(t.at(scales).shape); }, scales + " has shape"},
      {[&](Tensors& t) { t.at(scales).shape.push_back(1); }, scales + " has shape"},
      {[&](Tensors& t) {
         t.at(scales) = {"U8", t.at(scales).shape, std::string(t.at(scales).bytes.size() / 4, 'x')};
       },
       scales + " has dtype U8"},
      {[&](Tensors& t) {
         t.at(scales) = {"F8_E8M0", t.at(scales).shape,
                         std::string(t.at(scales).bytes.size() / 4, '\xff')};
       },
       scales + " has a scale that is no number"},
      {[&](Tensors& t) { t.at(name) = {"F8_E4M3", {}, "x"}; }, name + " has shape []"},
      {[&](Tensors& t) { t["more.weight"] = {"F8_E4M3", {}, "x"}; }, "more.weight"},
      {[&](Tensors& t) { t.at(name).shape = {128 * 64}; }, name + " has shape [8192]"},
      {[&](Tensors& t) { t.at(name).dtype = "F8_E5M2"; }, name + " has dtype F8_E5M2"},
  };
  for (const char* folder : {"qwen3-fp8-blocks-bf16", "qwen3-fp8-bf16"})
    for (size_t i = 0; i < cases.size(); ++i)
      EXPECT_THAT(load_error([&] { load_changed(folder, cases[i].change); }),
                  HasSubstr(cases[i].says))
          << folder << " " << i;
}

TEST(FolderWeights, DamagedSignedBytesAreRefusedByTensor) {
  const std::string name = "model.layers.0.self_attn.q_proj.weight", scales = name + "_scale";
  const auto scale = [&](float value) {
    return [&scales, value](Tensors& t) { t.at(scales).set_float(value); };
  };
  const std::vector<Damage> cases = {
      {scale(std::nanf("")), scales},
      {scale(-std::numeric_limits<float>::infinity()), scales},
      {[&](Tensors& t) { t.erase(scales); }, scales + " is missing"},
      {[&](Tensors& t) { std::ranges::reverse(t.at(scales).shape); }, scales + " has shape"},
      {[&](Tensors& t) { t.at(scales).shape.push_back(1); }, scales + " has shape"},
      {[&](Tensors& t) {
         t.at(scales) = {"U8", t.at(scales).shape, std::string(t.at(scales).bytes.size() / 4, 'x')};
       },
       scales + " has dtype U8"},
      {[&](Tensors& t) { t.at(name).shape = {128 * 64}; }, name + " has shape [8192]"},
      {[&](Tensors& t) { t.at(name) = {"I8", {}, "x"}; }, name + " has shape []"},
      {[&](Tensors& t) { t.at(name).dtype = "U8"; }, name + " has dtype U8"},
      {[&](Tensors& t) { t.at(name).dtype = "F8_E4M3"; }, name + " has dtype F8_E4M3"},
      {[&](Tensors& t) { t["model.layers.0.self_attn.q_proj.weight_zero_point"] = t.at(name); },
       "weight_zero_point"},
      {[&](Tensors& t) { t["more.weight"] = {"I8", {32, 64}, std::string(32 * 64, 'x')}; },
       "more.weight"},
  };
  for (const Damage& one : cases)
    EXPECT_THAT(load_error([&] { load_changed("qwen3-w8a8-bf16", one.change); }),
                HasSubstr(one.says));
  EXPECT_THAT(error_of("qwen3-w8a8-bf16", "\"int-quantized\"", "\"pack-quantized\""),
              HasSubstr("is no tensor of"));
  EXPECT_THAT(error_of("qwen3-w8a8-bf16", "\"quantization_config\"", "\"other\""),
              HasSubstr("no \"quantization_config\""));
}

// Kernels of dense values round no activations: refused where the config asks for that.
TEST(FolderWeights, WhatBecomesDenseIsRefusedWhereActivationsAreRounded) {
  const auto expect_only_without = [](const std::string& name,
                                      const std::function<void(Tensors&)>& change,
                                      const std::string& quantization, const char* says) {
    EXPECT_THAT(load_error([&] { load_changed(name, change, quantization); }),
                AllOf(HasSubstr(says), HasSubstr("--quant-activations none")));
    load_changed(name, change, quantization,
                 {.dtype = {}, .progress = {}, .int8_activations = false});
  };
  const std::string inputs = R"("input_activations":{"dynamic":true,"strategy":"token"})";
  // The half of the keys is turned.
  expect_only_without(
      "deepseek-v2-lite-bf16",
      [](Tensors& t) {
        for (const char* layer : {"0", "1"}) {
          const std::string name = std::string("model.layers.") + layer + ".self_attn.kv_b_proj";
          t.at(name + ".weight") = {"I8", {176, 32}, std::string(size_t{176} * 32, 'x')};
          t[name + ".weight_scale"] = {"BF16", {176, 1}, std::string(size_t{176} * 2, '8')};
        }
      },
      R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"g":{
          "targets":["re:.*kv_b_proj"],"weights":{"num_bits":8,"type":"int"},)" +
          inputs + "}}}",
      "kv_b_proj.weight");
  // Groups that are not full.
  std::string packed =
      json::serialize(json::parse(text_of(folder_of("qwen3-packed-bf16") + "/config.json"))
                          .at("quantization_config"));
  const std::string none = R"("input_activations":null)";
  packed.replace(packed.find(none), none.size(), inputs);
  expect_only_without(
      "qwen3-packed-bf16",
      [](Tensors& t) {
        std::string groups(size_t{64} * 4, '\0');
        for (size_t column = 31; column < 64; ++column) groups[4 * column] = 1;  // little-endian
        t["model.layers.0.mlp.up_proj.weight_g_idx"] = {"I32", {64}, groups};
      },
      packed, "up_proj.weight");
}

// One scale for the whole matrix, one for each row, in any of the shapes that programs write.
TEST(FolderWeights, ScalesOfSignedBytesMayHaveOtherShapes) {
  const std::string scales = "model.layers.0.self_attn.q_proj.weight_scale";
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}, {128}, {128, 1}})
    load_changed("qwen3-w8a8-bf16", [&](Tensors& t) {
      Stored& stored = t.at(scales);
      stored = {"F32", shape, stored.bytes.substr(0, static_cast<size_t>(elements(shape)) * 4)};
    });
}

// Such as a head that is the embedding, or keys of layers that take those of others. What stands
// beside their values is not missed, either.
TEST(FolderWeights, WeightsThatNobodyNeedsMayBeQuantised) {
  const auto quantise = [](Tensors& tensors, const std::string& layer) {
    Stored& values = tensors.at(layer + ".weight");
    values = {"F8_E4M3", values.shape, std::string(values.bytes.size() / 2, '8')};
    tensors[layer + ".weight_scale"] = {"F32", {1}, std::string(4, '\0')};
  };
  load_changed(
      "gemma4-e2b-wrapped-bf16",
      [&](Tensors& t) {
        for (const char* name : {"2.self_attn.k_proj", "3.self_attn.v_proj"})
          quantise(t, std::string("model.language_model.layers.") + name);
      },
      R"({"quant_method":"fp8"})");
  load_changed("qwen3-packed-bf16", [&](Tensors& t) {
    t["lm_head.weight_packed"] = {"I32", {320, 8}, std::string(320 * 32, 'x')};
    t["lm_head.weight_scale"] = {"BF16", {320, 2}, std::string(320 * 4, '8')};
    t["lm_head.weight_zero_point"] = {"I32", {40, 2}, std::string(40 * 8, 'x')};
    t["lm_head.weight_shape"] = {"I64", {2}, std::string(16, '\0')};
  });
}

// Scales of modelopt's blocks have an axis of one behind each of theirs, or none of one at all.
TEST(FolderWeights, BlocksOfModeloptMayHaveOtherAxesOfOne) {
  const auto load_with = [](const std::vector<int64_t>& shape) {
    load_changed(
        "qwen3-fp8-blocks-bf16",
        [&](Tensors& t) {
          Tensors changed;
          for (auto& [name, tensor] : t) {
            if (!name.ends_with("_scale_inv")) {
              changed[name] = tensor;
            } else {
              Stored& scales = changed[name.substr(0, name.size() - 4)] = {"F32", shape, ""};
              for (int64_t i = 0; i < elements(shape); ++i)
                scales.bytes += tensor.bytes.substr(0, 4);
            }
          }
          t = changed;
        },
        R"({"quant_method":"modelopt","quant_algo":"FP8_PB_WO"})");
  };
  load_with({1, 1, 1, 1});
  load_with({1, 1});
  load_with({});
  EXPECT_THAT(load_error([&] { load_with({1, 2}); }), HasSubstr("weight_scale has shape"));
}

// They say how keys and values would be rounded: where the config asks for that, and not else.
TEST(FolderWeights, ScalesOfKeysAndValuesAreLeftOut) {
  const auto load_with = [](const std::string& scheme) {
    load_changed(
        "qwen3-nvfp4-bf16",
        [](Tensors& t) {
          t["model.layers.0.self_attn.k_scale"] = {"F32", {1}, std::string(4, '8')};
          t["model.layers.0.self_attn.v_proj.v_scale"] = {"F32", {}, std::string(4, '8')};
          t["model.layers.1.self_attn.kv_scale"] = {"F32", {}, std::string(4, '8')};
        },
        R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","ignore":["lm_head"],
            "config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float"}}},
            "kv_cache_scheme":)" +
            scheme + "}");
  };
  load_with(R"({"num_bits":8,"type":"float","dynamic":false,"strategy":"tensor"})");
  load_with(R"("static")");
  EXPECT_THAT(load_error([&] { load_with("null"); }), HasSubstr("self_attn.k_scale"));
}

// Then weights are as they were.
TEST(FolderWeights, AConfigMayAskForKeysAndValuesAlone) {
  const auto load_with = [](const std::string& scheme) {
    load_changed(
        "qwen3-bf16",
        [](Tensors& t) {
          t["model.layers.0.self_attn.k_scale"] = {"BF16", {1}, "88"};
          t["model.layers.0.self_attn.v_scale"] = {"BF16", {1}, "88"};
        },
        R"({"quant_method":"compressed-tensors","config_groups":{},"format":"dense",
            "kv_cache_scheme":)" +
            scheme + "}");
  };
  const std::string floats = R"({"num_bits":8,"type":"float","dynamic":false})";
  load_with(floats);
  EXPECT_THAT(load_error([&] { load_with("null"); }), HasSubstr("config_groups"));
}

// So do those of activations, under either name.
TEST(FolderWeights, ScalesOfActivationsAreLeftOut) {
  const auto load_with = [](const std::string& input, const std::string& quantization,
                            const std::vector<int64_t>& shape = {}) {
    load_changed(
        "qwen3-fp8-static-bf16",
        [&](Tensors& t) {
          Tensors changed;
          for (auto& [name, tensor] : t) {
            const size_t at = name.find(".activation_scale");
            changed[at == std::string::npos ? name : name.substr(0, at) + input] = tensor;
          }
          Stored& one = changed.at("model.layers.0.mlp.up_proj" + input);
          if (!shape.empty()) one = {"BF16", shape, std::string(2 * 64, '8')};
          t = changed;
        },
        quantization);
  };
  const std::string fp8 = R"({"quant_method":"fp8","activation_scheme":)";
  load_with(".activation_scale", "");
  load_with(".input_scale", fp8 + "\"static\"}");
  load_with(".input_scale", R"({"quant_method":"modelopt","quant_algo":"FP8"})");
  EXPECT_THAT(load_error([&] { load_with(".input_scale", fp8 + "\"dynamic\"}"); }),
              AllOf(HasSubstr(".input_scale"), HasSubstr("does not use")));
  // A number for each column would be something else.
  EXPECT_THAT(load_error([&] { load_with(".input_scale", fp8 + "\"static\"}", {64}); }),
              HasSubstr("1 tensors that"));
}

TEST(FolderWeights, RefusesFourBitFloatsThatDoNotFit) {
  EXPECT_THAT(error_of("qwen3-modelopt-bf16", "NVFP4", "FP8", "hf_quant_config.json"),
              HasSubstr("has dtype U8, which is not 8-bit floats (modelopt)"));
  EXPECT_THAT(
      error_of("qwen3-modelopt-bf16", "1.self_attn*", "0.self_attn*", "hf_quant_config.json"),
      AllOf(HasSubstr("layers.0.self_attn"), HasSubstr("says that it is not")));
  EXPECT_THAT(error_of("qwen3-nvfp4-bf16", "nvfp4-pack", "mxfp4-pack"),
              HasSubstr("input_activations"));
  EXPECT_THAT(error_of("qwen3-nf4-bf16", "0.self_attn.k_proj", "0.self_attn"),
              AllOf(HasSubstr("q_proj.weight"), HasSubstr("says that it is not")));
  // The JSON text that lies beside a weight, changed to one of the same length.
  const auto state = [](const char* from, const char* to) {
    return error_of("qwen3-nf4-bf16", from, to, "model.safetensors");
  };
  EXPECT_THAT(state("\"blocksize\": 64", "\"blocksize\": 32"),
              AllOf(HasSubstr("quant_state.bitsandbytes__nf4: \"blocksize\""), HasSubstr("32")));
  EXPECT_THAT(state("\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\""), HasSubstr("quant_type"));
  EXPECT_THAT(state("\"shape\": [64, 128]", "\"shape\": [128, 64]"),
              AllOf(HasSubstr("says [128, 64]"), HasSubstr("asks for [64, 128]")));
  EXPECT_THAT(state("\"shape\": [64, 128]", "\"shape\": [64, -28]"), HasSubstr("shape"));
  EXPECT_THAT(state("\"nested_blocksize\": 32", "\"nested_blocksize\": 16"),
              HasSubstr("nested_absmax has shape"));
  EXPECT_THAT(state("\"nested_blocksize\": 32", "\"nested_blocksize\": {}"),
              HasSubstr("nested_blocksize"));
  EXPECT_THAT(state("{\"quant_type\"", "[\"quant_type\""), HasSubstr("is no JSON object"));
}

TEST(FolderWeights, OfWholeNumbersGoWithActivationsOf8Bits) {
  const LoadOptions options = {.dtype = {}, .progress = {}, .int8_activations = true};
  const auto whole = [&](const char* name) {
    return load(folder_of(name), options)->whole_activations();
  };
  // What the configs leave as it was: heads, routers, an output.
  EXPECT_EQ(whole("qwen3-moe-awq"), "float16 (3)");
  EXPECT_EQ(whole("llama3-gptq"), "float16 (1)");
  EXPECT_EQ(whole("qwen3-packed-bf16"), "bfloat16 (2)");
  EXPECT_EQ(whole("qwen3-w8a8-bf16"), "bfloat16 (1)");
  EXPECT_EQ(whole("qwen3-nvfp4-bf16"), "bfloat16 (1)");
  EXPECT_EQ(whole("qwen3-modelopt-bf16"), "bfloat16 (3)");
  EXPECT_EQ(whole("gpt-oss-mxfp4"), "float16 (10)");
  EXPECT_EQ(whole("qwen3-mxfp4"), "mxfp8 (2)");
  EXPECT_EQ(whole("qwen3-mixed-bf16"), "bfloat16 (1), float8 (6)");
  for (const char* floats : {"qwen3-fp8-bf16", "qwen3-nf4-bf16"})
    EXPECT_THAT(load_error([&] { load(folder_of(floats), options); }),
                AllOf(HasSubstr(floats), HasSubstr("8-bit activations do not go with weights in"),
                      HasSubstr("leave them out")));
}

}  // namespace
}  // namespace quire::models
