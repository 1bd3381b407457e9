#include "formats/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_error;
using testing::safetensors_bytes;
using testing::TempDir;

constexpr const char* kConfig = R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,
    "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":320,
    "max_position_embeddings":512,"eos_token_id":7})";

// A file with one byte for each of these tensors.
std::string bytes_of(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i ? ",\"" : "\"") + names[i] + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  return safetensors_bytes(header + "}", names.size());
}

std::string open_error(const TempDir& dir) {
  return load_error([&] { Checkpoint::open(dir.path()); });
}

TEST(Checkpoint, SingleFile) {
  TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("generation_config.json", R"({"eos_token_id":[3,7],"temperature":0.5})");
  dir.write("model.safetensors", bytes_of({"b", "a"}));
  Checkpoint opened = Checkpoint::open(dir.path() + "/");
  const Checkpoint checkpoint = std::move(opened);
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint.total_bytes(), 2u);
  EXPECT_EQ(checkpoint.config().hidden_size, 64);
  EXPECT_EQ(checkpoint.generation_config().temperature, 0.5);
  EXPECT_THAT(checkpoint.eos_token_ids(), ElementsAre(3, 7));
  ASSERT_NE(checkpoint.find("a"), nullptr);
  EXPECT_EQ(testing::bytes_of(*checkpoint.find("a")), "\1");
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST(Checkpoint, Shards) {
  TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("x.safetensors", bytes_of({"a", "b"}));
  dir.write("y.safetensors", bytes_of({"c", "not_in_the_index"}));
  dir.write("model.safetensors.index.json",
            R"({"metadata":{"total_size":3},"weight_map":{"a":"x.safetensors",
                "b":"x.safetensors","c":"y.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  // What a shard holds beyond the index is there too: the model refuses what it does not know.
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c", "not_in_the_index"));
  EXPECT_EQ(checkpoint.total_bytes(), 4u);
  EXPECT_EQ(checkpoint.find("c")->file(), dir.path() + "/y.safetensors");
}

TEST(Checkpoint, BadIndexNamesFileAndTensor) {
  TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("x.safetensors", bytes_of({"a", "b"}));
  dir.write("y.safetensors", bytes_of({"c", "b"}));
  dir.write("v.safetensors", bytes_of({"e"}));
  struct Bad {
    std::string index;
    std::vector<std::string> message;
  };
  const auto maps = [](const std::string& entries) {
    return R"({"weight_map":{)" + entries + "}}";
  };
  const Bad cases[] = {
      {"{", {"invalid JSON"}},
      {"{}", {"\"weight_map\" is missing"}},
      {maps(""), {"\"weight_map\" is missing or empty"}},
      {R"({"weight_map":[]})", {"\"weight_map\" must be an object"}},
      {maps(R"("a":1)"), {"tensor \"a\"", "must be a file name"}},
      {maps(R"("a":"../x.safetensors")"), {"tensor \"a\"", "\"../x.safetensors\"", "plain file"}},
      {maps(R"("a":"/etc/passwd")"), {"tensor \"a\"", "\"/etc/passwd\"", "plain file name"}},
      {maps(R"("a":"..")"), {"tensor \"a\"", "plain file name"}},
      {maps(R"("a":"")"), {"tensor \"a\"", "plain file name"}},
      {maps(R"("a":"d\\x")"), {"tensor \"a\"", "plain file name"}},
      {maps(R"("a":"x.safetensors\u0000y")"), {"tensor \"a\"", "plain file name"}},
      {maps(R"("a":"z.safetensors")"), {"/z.safetensors: the shard is missing", "\"a\""}},
      {maps(R"("a":"x.safetensors","d":"x.safetensors")"),
       {"/x.safetensors: tensor \"d\" is missing"}},
      {maps(R"("a":"x.safetensors","c":"y.safetensors")"),
       {"tensor \"b\" is in two shards", "/x.safetensors", "/y.safetensors"}},
      {maps(R"("a":"v.safetensors","b":"x.safetensors")"),  // it is in x
       {"/v.safetensors: tensor \"a\" is missing", "index.json maps it to this shard"}},
      {maps(R"("c":"x.safetensors")"), {"/x.safetensors: tensor \"c\" is missing"}},
  };
  for (const Bad& bad : cases) {
    dir.write("model.safetensors.index.json", bad.index);
    const std::string error = open_error(dir);
    EXPECT_THAT(error, HasSubstr(dir.path())) << bad.index;
    for (const std::string& part : bad.message) EXPECT_THAT(error, HasSubstr(part)) << bad.index;
  }
}

TEST(Checkpoint, BadFolders) {
  TempDir dir;
  EXPECT_THAT(load_error([&] { Checkpoint::open(dir.path() + "/none"); }),
              HasSubstr("/none: does not exist; expected a Hugging Face model folder"));
  EXPECT_THAT(open_error(dir), HasSubstr("has no config.json; expected a Hugging Face"));
  EXPECT_THAT(load_error([&] { Checkpoint::open(dir.write("f", "")); }),
              HasSubstr("/f: not a folder; expected a Hugging Face model folder"));
  dir.write("config.json", kConfig);
  EXPECT_THAT(open_error(dir), HasSubstr("has neither model.safetensors nor"));
  dir.write("model.safetensors", bytes_of({"a"}) + "tail");
  EXPECT_THAT(open_error(dir), HasSubstr("/model.safetensors: 4 bytes at the end"));
  dir.write("config.json", "{}");
  EXPECT_THAT(open_error(dir), HasSubstr("/config.json: \"architectures\" is missing"));
}

// Every checkpoint that the parity tests use, in both config styles, opens.
TEST(Checkpoint, ParityModelsOpen) {
  int opened = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/tests/parity/models")) {
    if (!entry.is_directory()) continue;
    const Checkpoint checkpoint = Checkpoint::open(entry.path().string());
    EXPECT_FALSE(checkpoint.names().empty()) << entry.path();
    const bool is_gguf = checkpoint.dir().ends_with(".gguf");  // which says no dtype
    EXPECT_NE(checkpoint.config().dtype.has_value(), is_gguf) << entry.path();
    EXPECT_FALSE(checkpoint.eos_token_ids().empty()) << entry.path();
    ++opened;
  }
  EXPECT_GE(opened, 15);
}

}  // namespace
}  // namespace quire::formats
