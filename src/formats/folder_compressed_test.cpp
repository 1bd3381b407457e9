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
      {group(R"("input_activations":{"num_bits":8,"type":"int","dynamic":true})"),
       "input_activations"},
      {group(R"("output_activations":{"num_bits":8})"), "output_activations"},
      {group(R"("format":"int-quantized")"), "group_0.format"},
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
