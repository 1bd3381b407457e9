#include "formats/folder_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/folder_configs.h"

namespace quire::formats {
namespace {

using namespace quire::formats::testing;

TEST(FolderQuantization, ReadsGroupsOfCompressedTensors) {
  const FolderQuantization q = read(packed(kWeights));
  EXPECT_EQ(q.of_layer("model.layers.3.mlp.gate"), nullptr);
  ASSERT_NE(q.of_layer("model.layers.3.mlp.gate_proj"), nullptr);
  EXPECT_FALSE(q.of_layer("model.layers.3.mlp.gate_proj")->symmetric);
  // A layer's own name or pattern counts more than its class.
  const FolderQuantization two = read(
      R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
          "a":{"targets":["Linear"],"weights":{"num_bits":4,"group_size":32}},
          "b":{"targets":["re:.*down_proj"],"weights":{"num_bits":8,"strategy":"channel"}}}})");
  EXPECT_EQ(two.of_layer("model.layers.0.mlp.down_proj")->bits, 8);
  EXPECT_EQ(two.of_layer("model.layers.0.mlp.up_proj")->bits, 4);
  // A name counts more than a pattern of an earlier group.
  const FolderQuantization named = read(
      R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
          "a":{"targets":["re:.*proj"],"weights":{"num_bits":4,"group_size":32}},
          "b":{"targets":["re:.*down_proj","model.layers.0.mlp.down_proj"],
               "weights":{"num_bits":8,"strategy":"channel"}}}})");
  EXPECT_EQ(named.of_layer("model.layers.0.mlp.down_proj")->bits, 8);
  EXPECT_EQ(named.of_layer("model.layers.1.mlp.down_proj")->bits, 4);
}

// As llm-compressor writes W8A8 (RedHat's folders), and W4A8.
TEST(FolderQuantization, ReadsActivationsOf8BitsByTokens) {
  const auto group = [](const std::string& format, const std::string& weights) {
    return R"({"quant_method":"compressed-tensors","format":")" + format +
           R"(","global_compression_ratio":1.2,"ignore":["lm_head"],"kv_cache_scheme":null,
             "quantization_status":"frozen","config_groups":{"group_0":{"targets":["Linear"],
             "output_activations":null,"weights":{"type":"int","symmetric":true,"dynamic":false,
             "block_structure":null,"observer":"mse","observer_kwargs":{},)" +
           weights + R"(},"input_activations":{"actorder":null,"block_structure":null,
             "dynamic":true,"group_size":null,"num_bits":8,"observer":"memoryless",
             "observer_kwargs":{},"strategy":"token","symmetric":true,"type":"int"}}}})";
  };
  const std::string rows = R"("num_bits":8,"strategy":"channel")";
  for (const char* format : {"int-quantized", "naive-quantized"}) {
    const FolderQuantization q = read(group(format, rows));
    EXPECT_TRUE(q.rounds_per_token() && q.has_integers());
    EXPECT_EQ(q.of_layer("x")->format, FolderFormat::kInt8);
    EXPECT_EQ(q.title(), "8-bit compressed-tensors by rows");
    EXPECT_EQ(q.of_layer("lm_head"), nullptr);
  }
  EXPECT_EQ(
      read(group("int-quantized", R"("num_bits":8,"strategy":"tensor")")).of_layer("x")->group_size,
      0);
  // A byte for each, though they have 4 bits.
  EXPECT_EQ(read(group("int-quantized", R"("num_bits":4,"strategy":"channel")")).title(),
            "8-bit compressed-tensors by rows");
  const FolderQuantization four =
      read(group("pack-quantized", R"("num_bits":4,"strategy":"group","group_size":128)"));
  EXPECT_TRUE(four.of_layer("x")->rounds_per_token);
  EXPECT_EQ(four.of_layer("x")->format, FolderFormat::kPacked);
  EXPECT_FALSE(read(packed(kWeights)).rounds_per_token());
}

TEST(FolderQuantization, RefusesOtherActivationsOf8BitsByKey) {
  const auto signed_bytes = [](const std::string& weights, const std::string& inputs = "") {
    return R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{
               "g":{"weights":{"type":"int",)" +
           weights + "}" + (inputs.empty() ? "" : R"(,"input_activations":{)" + inputs + "}") +
           "}}}";
  };
  const std::string rows = R"("num_bits":8,"strategy":"channel")";
  const std::string tokens = R"("dynamic":true,"strategy":"token")";
  expect_refused({
      {signed_bytes(R"("num_bits":3,"strategy":"channel")"), "g.weights.num_bits"},
      {signed_bytes(R"("num_bits":8,"strategy":"block")"), "g.weights.strategy"},
      {signed_bytes(R"("num_bits":8,"strategy":"tensor_group")"), "g.weights.strategy"},
      {signed_bytes(rows + R"(,"symmetric":false)"), "g.weights.symmetric"},
      {signed_bytes(rows + R"(,"actorder":"group")"), "g.weights.actorder"},
      {signed_bytes(rows + R"(,"dynamic":true)"), "g.weights.dynamic"},
      {signed_bytes(rows, R"("num_bits":4,)" + tokens), "g.input_activations.num_bits"},
      {signed_bytes(rows, R"("type":"float",)" + tokens), "g.input_activations.type"},
      {signed_bytes(rows, R"("strategy":"token")"), "g.input_activations.dynamic"},
      {signed_bytes(rows, R"("dynamic":"local","strategy":"token")"),
       "g.input_activations.dynamic"},
      {signed_bytes(rows, R"("dynamic":true)"), "g.input_activations.strategy"},
      {signed_bytes(rows, R"("dynamic":true,"strategy":"tensor")"), "g.input_activations.strategy"},
      {signed_bytes(rows, tokens + R"(,"symmetric":false)"), "g.input_activations.symmetric"},
      {signed_bytes(rows, tokens + R"(,"scale":1)"), "g.input_activations.scale"},
  });
}

// Columns in another order are told where the layers are read.
TEST(FolderQuantization, ReadsOrdersOfCompressedTensors) {
  const auto any_order = [](const std::string& order) {
    return read(packed(kWeights + R"(,"actorder":)" + order)).of_layer("x")->any_order;
  };
  for (const char* order : {"\"group\"", "\"dynamic\"", "true"}) EXPECT_TRUE(any_order(order));
  for (const char* order : {"\"weight\"", "\"static\"", "null", "false"})
    EXPECT_FALSE(any_order(order));
}

TEST(FolderQuantization, RefusesGroupsByKey) {
  const auto groups = [](const std::string& value) {
    return R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":)" +
           value + "}";
  };
  expect_refused({
      {groups("{}"), "config_groups"},
      {groups("null"), "config_groups"},
      {groups("[]"), "config_groups"},
      {groups(R"({"a":null})"), "config_groups.a"},
      {groups(R"({"a":{"targets":["Linear"]}})"), "config_groups.a.weights"},
      {groups(R"({"a":{"targets":"Linear","weights":{"num_bits":4,"group_size":32}}})"), "targets"},
      {groups(R"({"a":{"targets":["re:[z-a]"],"weights":{"num_bits":4,"group_size":32}}})"),
       "targets"},
  });
}

TEST(FolderQuantization, RefusesPackedWeightsByKey) {
  const auto weights = [](const std::string& members) { return packed(members); };
  const auto group = [](const std::string& member) { return packed(kWeights, "," + member); };
  const auto top = [](const std::string& member) { return packed(kWeights, "", "," + member); };
  expect_refused({
      {weights(R"("type":"int")"), "config_groups.group_0.weights.num_bits"},
      {weights(R"("num_bits":6,"group_size":32)"), "num_bits"},
      {weights(R"("num_bits":4,"type":"float","group_size":32)"), "type"},
      {weights(R"("num_bits":4,"strategy":"group")"), "group_size"},
      {weights(R"("num_bits":4,"strategy":"tensor")"), "strategy"},
      {weights(R"("num_bits":4,"strategy":"block","group_size":128)"), "strategy"},
      {weights(R"("num_bits":4,"group_size":32,"dynamic":true)"), "dynamic"},
      {weights(R"("num_bits":4,"group_size":32,"symmetric":0)"), "symmetric"},
      {group(R"("output_activations":{"num_bits":8})"), "output_activations"},
      {group(R"("format":"dense")"), "group_0.format"},
      {top(R"("kv_cache_scheme":{"num_bits":8})"), "kv_cache_scheme.type"},
      {top(R"("kv_cache_scheme":{"num_bits":8,"type":"int"})"), "kv_cache_scheme.type"},
      {top(R"("kv_cache_scheme":{"num_bits":4,"type":"float"})"), "kv_cache_scheme.num_bits"},
      {top(R"("transform_config":{"config_groups":{"a":1}})"), "transform_config"},
      {top(R"("sparsity_config":{"format":"sparse-24-bitmask"})"), "sparsity_config.format"},
      {top(R"("quantization_status":"calibration")"), "quantization_status"},
      {top(R"("provider":"auto-round","is_mx":true)"), "is_mx"},
  });
}

}  // namespace
}  // namespace quire::formats
