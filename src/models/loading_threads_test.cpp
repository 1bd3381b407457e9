// Matrices that several threads read, count, check and pack, in many pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"
#include "models/weights.h"
#include "ops/linear/linear_reference.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using namespace quire::ops::testing;
using formats::testing::gguf_number;
using formats::testing::GgufBytes;
using formats::testing::load_error;
using formats::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of each of two matrices.
constexpr int kThreads = 4, kRows = 2048, kWidth = 256, kElements = kRows * kWidth;
constexpr int kHeadDim = 64;
const std::vector<std::string> kNames = {"model.layers.0.self_attn.q_proj.weight",
                                         "model.layers.0.self_attn.k_proj.weight"};

// Whole numbers, other ones in each row.
int number(int row, int column, int limit) { return (row * 37 + column * 11 + row / 13) % limit; }
float power_of_two(int row) {
  return std::bit_cast<float>(static_cast<uint32_t>(120 + row % 7) << 23);
}
uint32_t bfloat16(float x) { return std::bit_cast<uint32_t>(x) >> 16; }

// value(row, column) of all elements of both matrices.
template <class Value>
std::vector<float> elements(const Value& value) {
  std::vector<float> all;
  for (int row = 0; row < 2 * kRows; ++row)
    for (int column = 0; column < kWidth; ++column) all.push_back(value(row, column));
  return all;
}

// Both matrices, as they are and with their rows in turn, and the digest of what was read, which
// reading each tensor at once has, too.
void expect_loaded(const std::string& path, const std::vector<float>& expected) {
  auto whole = formats::Checkpoint::open(path);
  whole.record_contents();
  for (const std::string& name : whole.names())
    if (name.starts_with("model.layers.")) whole.find(name)->read_all();
  for (const bool interleave : {false, true}) {
    const ops::Context context = ops::make_context(kThreads);
    auto checkpoint = formats::Checkpoint::open(path);
    checkpoint.record_contents();
    WeightLoader weights(context, checkpoint, mx::float32, {});
    const auto loaded = weights.linear(kNames, {}, 2 * kRows, kWidth, interleave);
    EXPECT_TRUE(same_bits(mx::contiguous(ops::unpack_matrix(loaded.weight)),
                          mx::array(expected.data(), {2 * kRows, kWidth}, mx::float32)))
        << interleave;
    EXPECT_EQ(checkpoint.contents_digest(), whole.contents_digest()) << interleave;
  }
}

// A folder with the tensors of both matrices: each one's suffix, type, columns and bytes of all
// rows.
class Folder {
 public:
  explicit Folder(const std::string& quantization = "")
      : config_(R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":256,)"
                R"("vocab_size":8,"num_hidden_layers":1,"num_attention_heads":32,)" +
                quantization + R"("max_position_embeddings":8})") {}
  void add(const std::string& suffix, const std::string& dtype, int columns,
           const std::string& bytes) {
    for (size_t i = 0; i < 2; ++i) {
      const std::string name = kNames[i].substr(0, kNames[i].rfind('.')) + suffix;
      const size_t begin = data_.size();
      data_ += bytes.substr(i * bytes.size() / 2, bytes.size() / 2);
      header_ += (header_.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + dtype +
                 R"(","shape":[)" + std::to_string(kRows) + "," + std::to_string(columns) +
                 R"(],"data_offsets":[)" + std::to_string(begin) + "," +
                 std::to_string(data_.size()) + "]}";
    }
  }
  std::string write() const {
    dir_.write("config.json", config_);
    dir_.write("model.safetensors", formats::testing::safetensors_bytes(header_ + "}", 0) + data_);
    return dir_.path();
  }

 private:
  TempDir dir_;
  std::string config_, header_, data_;
};

std::string bfloat16_bytes(const std::vector<float>& values) {
  std::string bytes;
  for (const float x : values) bytes += gguf_number(bfloat16(x), 2);
  return bytes;
}

TEST(LoadingThreads, PackFloats) {
  const std::vector<float> values = elements(
      [](int row, int column) { return static_cast<float>(number(row, column, 253) - 126); });
  Folder folder;
  folder.add(".weight", "BF16", kWidth, bfloat16_bytes(values));
  expect_loaded(folder.write(), values);
}

TEST(LoadingThreads, PackAffineValues) {
  constexpr int kGroup = 64;
  const auto bias = [](int row) { return static_cast<float>(row % 5 - 8); };
  std::string codes;
  std::vector<float> scales, biases;
  for (int row = 0; row < 2 * kRows; ++row) {
    for (int column = 0; column < kWidth; column += 2)
      codes += static_cast<char>(number(row, column, 16) | number(row, column + 1, 16) << 4);
    scales.insert(scales.end(), kWidth / kGroup, power_of_two(row));
    biases.insert(biases.end(), kWidth / kGroup, bias(row));
  }
  Folder folder(R"("quantization":{"group_size":64,"bits":4},)");
  folder.add(".weight", "U32", kWidth / 8, codes);
  folder.add(".scales", "BF16", kWidth / kGroup, bfloat16_bytes(scales));
  folder.add(".biases", "BF16", kWidth / kGroup, bfloat16_bytes(biases));
  expect_loaded(folder.write(), elements([&](int row, int column) {
                  return power_of_two(row) * static_cast<float>(number(row, column, 16)) +
                         bias(row);
                }));
}

// Blocks of q8_0. Rows of a head lie there in another order.
TEST(LoadingThreads, PackBlocksInTheOrderOfTheirRows) {
  GgufBytes file;
  file.text("general.architecture", "llama");
  file.u32("llama.block_count", 1).u32("llama.context_length", 8);
  file.u32("llama.embedding_length", kWidth).u32("llama.feed_forward_length", 32);
  file.u32("llama.attention.head_count", kRows / kHeadDim);
  file.u32("llama.attention.head_count_kv", kRows / kHeadDim);
  file.u32("llama.attention.key_length", kHeadDim).u32("llama.attention.value_length", kHeadDim);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .i32s("tokenizer.ggml.token_type", {1, 1, 1});
  file.texts("tokenizer.ggml.merges", {"a b"}).u32("tokenizer.ggml.eos_token_id", 2);
  std::string blocks;
  for (int row = 0; row < 2 * kRows; ++row)
    for (int column = 0; column < kWidth; ++column) {
      if (column % 32 == 0)  // float16 of the same power of two
        blocks += gguf_number(((std::bit_cast<uint32_t>(power_of_two(row)) >> 23) - 112) << 10, 2);
      blocks += static_cast<char>(number(row, column, 255) - 127);
    }
  const std::vector<uint64_t> shape = {kWidth, kRows};
  file.tensor("token_embd.weight", {kWidth, 3}, 0, std::string(3 * kWidth * sizeof(float), '\0'));
  file.tensor("blk.0.attn_q.weight", shape, 8, blocks.substr(0, blocks.size() / 2));
  file.tensor("blk.0.attn_k.weight", shape, 8, blocks.substr(blocks.size() / 2));
  const TempDir dir;
  expect_loaded(dir.write("m.gguf", file.bytes()), elements([](int row, int column) {
                  const int i = row % kHeadDim, half = kHeadDim / 2;
                  const int stored = row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
                  return power_of_two(stored) *
                         static_cast<float>(number(stored, column, 255) - 127);
                }));
}

// Whichever thread comes upon it. The loader can go on.
TEST(LoadingThreads, NameWhatIsNoNumber) {
  std::vector<float> values(2 * kElements, 1.0f);
  for (size_t i = kElements + 1; i < values.size(); i += 100 * kWidth) values[i] = INFINITY;
  Folder folder;
  folder.add(".weight", "BF16", kWidth, bfloat16_bytes(values));
  const auto checkpoint = formats::Checkpoint::open(folder.write());
  const ops::Context context = ops::make_context(kThreads);
  WeightLoader weights(context, checkpoint, mx::bfloat16, {});
  EXPECT_THAT(load_error([&] { weights.linear(kNames, {}, 2 * kRows, kWidth); }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr(kNames[1]), HasSubstr("NaN")));
  const auto loaded = weights.linear(kNames[0], "", kRows, kWidth);
  EXPECT_TRUE(same_bits(mx::contiguous(ops::unpack_matrix(loaded.weight)),
                        mx::ones({kRows, kWidth}, mx::bfloat16)));
}

}  // namespace
}  // namespace quire::models
