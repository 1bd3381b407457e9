#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/folder_quantization.h"
#include "formats/quantization.h"
#include "formats/test_files.h"

// For tests: configs of folders that were quantised for GPUs.
namespace quire::formats::testing {

inline HfConfig config_with(const std::string& quantization) {
  const std::string text =
      R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"num_hidden_layers":1,
          "num_attention_heads":4,"vocab_size":8,"max_position_embeddings":8,
          "quantization_config":)" +
      quantization + "}";
  return parse_hf_config(parse_json(text).value(), "dir/config.json");
}

inline FolderQuantization read(const std::string& quantization) {
  return read_folder_quantization(config_with(quantization)).value();
}

inline std::string packed(const std::string& weights, const std::string& group = "",
                          const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
             "group_0":{"targets":["Linear"],"weights":{)" +
         weights + "}" + group + R"(}},"ignore":["lm_head","re:.*mlp\\.gate$"])" + more + "}";
}
inline const std::string kWeights =
    R"("num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":false)";

// Damaged configs: each error names the file and the key.
struct Refused {
  std::string config;
  const char* key;
};

inline void expect_refused(const std::vector<Refused>& cases) {
  for (const Refused& one : cases)
    EXPECT_THAT(
        load_error([&] { read_quantization_config(config_with(one.config)); }),
        ::testing::AllOf(::testing::HasSubstr("dir/config.json"), ::testing::HasSubstr(one.key)))
        << one.config;
}

}  // namespace quire::formats::testing
