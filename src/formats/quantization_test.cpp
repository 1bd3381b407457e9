#include "formats/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::load_error;

HfConfig config_with(const std::string& member) {
  const std::string text =
      R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":1,
          "num_attention_heads":4,"vocab_size":8,"max_position_embeddings":8)" +
      (member.empty() ? "" : "," + member) + "}";
  return parse_hf_config(parse_json(text).value(), "dir/config.json");
}

std::string error_of(const std::string& quantization) {
  return load_error(
      [&] { read_quantization_config(config_with("\"quantization\":" + quantization)); });
}

TEST(Quantization, AnUnquantisedModelHasNone) {
  EXPECT_FALSE(read_quantization_config(config_with("")).has_value());
}

TEST(Quantization, ReadsDefaultsAndOverrides) {
  const auto q = read_quantization_config(config_with(
      R"("quantization":{"group_size":64,"bits":4,"mode":"affine","a.b":{"bits":8,"group_size":32},
         "lm_head":false,"c":true,"d":{"bits":8},"e":{"bits":6}})"));
  ASSERT_TRUE(q.has_value());
  EXPECT_EQ(q->of_layer("other"), (QuantisedFormat{4, 64}));
  EXPECT_EQ(q->of_layer("a.b"), (QuantisedFormat{8, 32}));
  EXPECT_EQ(q->of_layer("d"), (QuantisedFormat{8, 64}));
  EXPECT_EQ(q->of_layer("c"), (QuantisedFormat{4, 64}));
  EXPECT_EQ(q->of_layer("e"), (QuantisedFormat{6, 64}));
  EXPECT_EQ(q->of_layer("lm_head"), std::nullopt);
  EXPECT_TRUE(q->demands("a.b"));
  EXPECT_FALSE(q->demands("other"));
  EXPECT_FALSE(q->demands("lm_head"));
}

// As mlx-lm writes them: an override without a mode is affine.
TEST(Quantization, ReadsModesOfSmallFloats) {
  const auto q = read_quantization_config(config_with(
      R"("quantization":{"group_size":32,"bits":4,"mode":"mxfp4","a":{"bits":8,"group_size":64},
         "b":{"mode":"nvfp4"},"c":true,"d":{"mode":"affine"}})"));
  ASSERT_TRUE(q.has_value());
  EXPECT_EQ(q->of_layer("other"), (QuantisedFormat{4, 32, QuantMode::kMxfp4}));
  EXPECT_EQ(q->of_layer("a"), (QuantisedFormat{8, 64, QuantMode::kAffine}));
  EXPECT_EQ(q->of_layer("b"), (QuantisedFormat{4, 16, QuantMode::kNvfp4}));
  EXPECT_EQ(q->of_layer("c"), q->defaults);
  EXPECT_EQ(q->of_layer("d"), (QuantisedFormat{4, 64, QuantMode::kAffine}));
  const auto short_form =
      read_quantization_config(config_with(R"("quantization":{"mode":"mxfp8"})"));
  EXPECT_EQ(short_form->defaults, (QuantisedFormat{8, 32, QuantMode::kMxfp8}));
}

TEST(Quantization, TheOtherKeyIsReadToo) {
  const auto q =
      read_quantization_config(config_with(R"("quantization_config":{"group_size":128,"bits":8})"));
  ASSERT_TRUE(q.has_value());
  EXPECT_EQ(q->defaults, (QuantisedFormat{8, 128}));
}

TEST(Quantization, RefusesOtherFormatsWithARemedy) {
  for (const char* method : {"aqlm", "eetq", "hqq"}) {
    EXPECT_THAT(
        error_of(R"({"bits":4,"group_size":128,"quant_method":")" + std::string(method) + "\"}"),
        AllOf(HasSubstr("dir/config.json"), HasSubstr(method), HasSubstr("quire quantize")));
  }
  EXPECT_THAT(error_of(R"({"bits":4,"group_size":32,"mode":"fp6"})"),
              HasSubstr("mode \"fp6\", which is not supported"));
  EXPECT_THAT(error_of(R"({"bits":4,"group_size":64,"mode":"mxfp4"})"),
              AllOf(HasSubstr("groups of 64"), HasSubstr("mxfp4")));
  EXPECT_THAT(error_of(R"({"bits":8,"mode":"nvfp4"})"),
              HasSubstr("8 bits in groups of 16 of mode nvfp4, which is not supported"));
  for (const char* bits : {"0", "1", "7", "9", "16"}) {
    EXPECT_THAT(error_of(R"({"group_size":64,"bits":)" + std::string(bits) + "}"),
                AllOf(HasSubstr(std::string(bits) + " bits"), HasSubstr("6 and 8")));
  }
  EXPECT_THAT(error_of(R"({"group_size":16,"bits":4})"), HasSubstr("groups of 16"));
  EXPECT_THAT(error_of(R"({"group_size":64})"), HasSubstr("bits and group_size"));
  EXPECT_THAT(error_of(R"({"group_size":64,"bits":4,"model.x":{"bits":7}})"),
              AllOf(HasSubstr("model.x"), HasSubstr("7 bits")));
  EXPECT_THAT(error_of(R"({"group_size":64,"bits":"four"})"), HasSubstr("must be an integer"));
  // What is not known may mean other values.
  EXPECT_THAT(error_of(R"({"group_size":64,"bits":4,"codebook":"nf4"})"),
              HasSubstr("quantization.codebook\" is not known"));
  EXPECT_THAT(error_of(R"({"group_size":64,"bits":4,"model.x":{"bits":8,"codebook":"nf4"}})"),
              HasSubstr("quantization.model.x.codebook\" is not known"));
  EXPECT_THAT(error_of(R"({"quant_method":"mxfp4","block_size":16})"),
              HasSubstr("quantization.block_size\" is not known"));
}

}  // namespace
}  // namespace quire::formats
