// Weights of GGUF files in a loaded model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "formats/checkpoint.h"
#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/model_size.h"
#include "models/weights.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/runtime/context.h"

namespace quire::models {
namespace {

using formats::testing::GgufBytes;
using formats::testing::load_error;
using formats::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Types of GGUF: their numbers and the bytes of 32 weights.
struct BlockType {
  uint32_t number = 0;
  size_t bytes = 0;
};
constexpr BlockType kMxfp4{39, 17}, kNvfp4{40, 18}, kQ8_0{8, 34};
constexpr uint32_t kF32 = 0;
constexpr int kHidden = 64, kHeadDim = 32, kInner = 128, kVocab = 6;

void add_matrix(GgufBytes& file, const std::string& name, int rows, int width, BlockType type,
                char byte = '\x38') {
  file.tensor(name, {static_cast<uint64_t>(width), static_cast<uint64_t>(rows)}, type.number,
              std::string(static_cast<size_t>(rows * width / 32) * type.bytes, byte));
}
void add_norm(GgufBytes& file, const std::string& name, int length, char byte = '\x38') {
  file.tensor(name, {static_cast<uint64_t>(length)}, kF32,
              std::string(static_cast<size_t>(length) * sizeof(float), byte));
}

// What is wrong with a file: bytes of \xff are no number in any type.
struct Damage {
  int value_rows = kHeadDim;
  char value_byte = '\x38', norm_byte = '\x38';
};

// A file of one layer whose matrices are of a type, but for its values.
GgufBytes one_layer(BlockType type, BlockType of_values, const Damage& damage = {}) {
  GgufBytes file;
  file.text("general.architecture", "qwen3");
  file.u32("qwen3.block_count", 1).u32("qwen3.context_length", 128);
  file.u32("qwen3.embedding_length", kHidden).u32("qwen3.feed_forward_length", kInner);
  file.u32("qwen3.attention.head_count", 2).u32("qwen3.attention.head_count_kv", 1);
  file.u32("qwen3.attention.key_length", kHeadDim).u32("qwen3.attention.value_length", kHeadDim);
  file.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<|im_end|>", "<|other|>"});
  file.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 3, 3});
  file.texts("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.eos_token_id", 5);
  add_matrix(file, "token_embd.weight", kVocab, kHidden, type);
  add_matrix(file, "blk.0.attn_q.weight", 2 * kHeadDim, kHidden, type);
  add_matrix(file, "blk.0.attn_k.weight", kHeadDim, kHidden, type);
  add_matrix(file, "blk.0.attn_v.weight", damage.value_rows, kHidden, of_values, damage.value_byte);
  add_matrix(file, "blk.0.attn_output.weight", kHidden, 2 * kHeadDim, type);
  add_matrix(file, "blk.0.ffn_gate.weight", kInner, kHidden, type);
  add_matrix(file, "blk.0.ffn_up.weight", kInner, kHidden, type);
  add_matrix(file, "blk.0.ffn_down.weight", kHidden, kInner, type);
  for (const char* norm : {"blk.0.attn_norm", "output_norm"})
    add_norm(file, std::string(norm) + ".weight", kHidden);
  add_norm(file, "blk.0.ffn_norm.weight", kHidden, damage.norm_byte);
  for (const char* norm : {"blk.0.attn_q_norm", "blk.0.attn_k_norm"})
    add_norm(file, std::string(norm) + ".weight", kHeadDim);
  return file;
}

// All that is in blocks goes with them.
TEST(GgufWeights, ActivationsOf8BitsGoWithBlocks) {
  const TempDir dir;
  for (const BlockType& values : {kMxfp4, kNvfp4, kQ8_0}) {
    const std::string path = dir.write("m.gguf", one_layer(kMxfp4, values).bytes());
    const auto model = load_model(ops::make_context(1), formats::Checkpoint::open(path),
                                  {.dtype = {}, .progress = {}, .int8_activations = true});
    EXPECT_EQ(model->whole_activations(), "");
  }
}

// People look for a tensor in the file.
TEST(GgufWeights, MessagesHaveTheFilesNamesOfTensors) {
  const TempDir dir;
  const auto error_of = [&](const GgufBytes& file, const std::string& name) {
    const std::string path = dir.write("m.gguf", file.bytes());
    const auto load = [&] { load_model(ops::make_context(1), formats::Checkpoint::open(path)); };
    EXPECT_THAT(load_error(load), AllOf(HasSubstr("m.gguf: "), HasSubstr(name)));
    return load_error(load);
  };
  constexpr const char* kValues = "blk.0.attn_v.weight (model.layers.0.self_attn.v_proj.weight)";
  EXPECT_THAT(
      error_of(one_layer(kQ8_0, kQ8_0, {.value_rows = 16}), kValues),
      HasSubstr("(16) have 112 outputs together, but the metadata asks for 128; the config"));
  EXPECT_THAT(error_of(one_layer(kQ8_0, kQ8_0, {.value_byte = '\xff'}), kValues),
              HasSubstr("a scale is no finite number"));
  EXPECT_THAT(error_of(one_layer(kQ8_0, kQ8_0, {.norm_byte = '\xff'}), "blk.0.ffn_norm.weight ("),
              HasSubstr("holds what is no number"));
  GgufBytes file = one_layer(kQ8_0, kQ8_0);
  add_norm(file, "blk.1.attn_norm.weight", kHidden);
  EXPECT_THAT(error_of(file, "does not use: blk.1.attn_norm.weight ("),
              HasSubstr("model.layers.1.input_layernorm.weight"));
}

void add_floats(GgufBytes& file, const std::string& name, const std::vector<float>& values) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  file.tensor(name, {values.size()}, kF32, bytes);
}

// The same bytes as NVFP4 and as the float32 that they stand for (0x38 is 1 as a scale, and -0 and
// 1.5 as codes), with a number for the matrix.
TEST(GgufWeights, Nvfp4IsMultipliedByTheNumberOfItsMatrix) {
  const TempDir dir;
  const auto row_of = [&](const GgufBytes& file) {
    const auto checkpoint = formats::Checkpoint::open(dir.write("m.gguf", file.bytes()));
    const ops::Context context = ops::make_context(1);
    WeightLoader loader(context, checkpoint, mx::float32, {});
    const auto weight =
        loader.linear("model.layers.0.self_attn.v_proj.weight", "", kHeadDim, kHidden).weight;
    const auto rows = ops::dequantise_rows(context, weight);
    std::vector<float> out(kHidden);
    std::memcpy(out.data(), rows.get() + 3 * kHidden * sizeof(float), kHidden * sizeof(float));
    return out;
  };
  std::vector<float> expected(kHidden);
  for (int k = 0; k < kHidden; ++k) expected[static_cast<size_t>(k)] = k % 16 < 8 ? 0.0f : 1.5f;
  GgufBytes file = one_layer(kQ8_0, kNvfp4);
  EXPECT_EQ(row_of(file), expected);
  add_floats(file, "blk.0.attn_v.scale", {0.25f});
  for (float& value : expected) value *= 0.25f;
  EXPECT_EQ(row_of(file), expected);
}

TEST(GgufWeights, Nvfp4LoadsAndItsDamageIsNamed) {
  const TempDir dir;
  const auto load = [&](const GgufBytes& file) {
    const auto checkpoint = formats::Checkpoint::open(dir.write("m.gguf", file.bytes()));
    return load_model(ops::make_context(1), checkpoint);
  };
  const auto with = [](const std::string& name, const std::vector<float>& values) {
    GgufBytes file = one_layer(kNvfp4, kNvfp4);
    add_floats(file, name, values);
    return file;
  };
  EXPECT_EQ(load(one_layer(kNvfp4, kNvfp4))->unpacked_weights(), "");
  EXPECT_EQ(load(with("blk.0.ffn_up.scale", {0.01f}))->unpacked_weights(), "");
  EXPECT_EQ(load(with("blk.0.ffn_up.input_scale", {0.01f}))->unpacked_weights(), "");
  const auto error_of = [&](const GgufBytes& file) { return load_error([&] { load(file); }); };
  constexpr const char* kValues = "blk.0.attn_v.weight (model.layers.0.self_attn.v_proj.weight)";
  EXPECT_THAT(error_of(one_layer(kNvfp4, kNvfp4, {.value_byte = '\xb8'})),
              AllOf(HasSubstr(kValues), HasSubstr("nvfp4"), HasSubstr("a scale is negative")));
  EXPECT_THAT(error_of(with("blk.0.attn_v.scale", {1.0f, 2.0f})),
              AllOf(HasSubstr("blk.0.attn_v.scale ("), HasSubstr("has shape [2]")));
  EXPECT_THAT(error_of(with("blk.0.attn_v.scale", {0.0f})), HasSubstr(kValues));
  // Rows of an embedding are multiplied by nothing, and so llama.cpp refuses this, too.
  EXPECT_THAT(error_of(with("token_embd.scale", {0.5f})),
              HasSubstr("does not use: token_embd.scale"));
  // Of a matrix in another type.
  GgufBytes other = one_layer(kQ8_0, kNvfp4);
  add_floats(other, "blk.0.attn_q.scale", {0.5f});
  EXPECT_THAT(error_of(other), HasSubstr("does not use: blk.0.attn_q.scale ("));
}

// Numbers of matrices are no parameters, and no memory beside them.
TEST(GgufWeights, TheSizeOfNvfp4IsThatOfItsMatrices) {
  const TempDir dir;
  const auto size_of = [&](const GgufBytes& file) {
    return measure_model(formats::Checkpoint::open(dir.write("m.gguf", file.bytes())), {});
  };
  GgufBytes file = one_layer(kNvfp4, kNvfp4);
  const ModelSize bare = size_of(file);
  add_floats(file, "blk.0.ffn_up.scale", {0.01f});
  add_floats(file, "blk.0.ffn_up.input_scale", {0.01f});
  EXPECT_EQ(size_of(file).parameters, bare.parameters);
  EXPECT_EQ(size_of(file).weights, bare.weights);
}

}  // namespace
}  // namespace quire::models
