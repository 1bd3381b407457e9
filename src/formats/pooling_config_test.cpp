#include "formats/pooling_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/test_files.h"

namespace quire::formats {
namespace {

using formats::testing::load_error;
using formats::testing::TempDir;
using ::testing::HasSubstr;

struct PoolingConfig : public ::testing::Test {
  PoolingConfig() { std::filesystem::create_directory(dir.path() + "/1_Pooling"); }
  PoolingMode read(const std::string& config) {
    dir.write("1_Pooling/config.json", config);
    return read_pooling_mode(dir.path());
  }
  TempDir dir;
};

TEST_F(PoolingConfig, WithoutAFileItIsTheLastToken) {
  EXPECT_EQ(read_pooling_mode(dir.path()), PoolingMode::kLast);
}

// As Qwen3-Embedding and sentence-transformers' defaults have it.
TEST_F(PoolingConfig, TheFileDecides) {
  EXPECT_EQ(read(R"({"word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
      "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": true})"),
            PoolingMode::kLast);
  EXPECT_EQ(read(R"({"pooling_mode_mean_tokens": true})"), PoolingMode::kMean);
}

TEST_F(PoolingConfig, OtherWaysAreNamed) {
  EXPECT_THAT(load_error([&] { read(R"({"pooling_mode_cls_token": true})"); }),
              HasSubstr("pooling_mode_cls_token"));
  EXPECT_THAT(load_error([&] {
                read(R"({"pooling_mode_mean_tokens": true,
          "pooling_mode_lasttoken": true})");
              }),
              HasSubstr("1_Pooling/config.json"));
}

}  // namespace
}  // namespace quire::formats
