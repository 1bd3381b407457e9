// Every format against values that its own library made (tests/parity/format_vectors.json): each
// matrix is a checkpoint on the disk, which the loader packs as for serving, and what is compared
// is what its products, one unit vector after the other, and its rows as an embedding give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/source_dir.h"
#include "formats/checkpoint.h"
#include "formats/data_file.h"
#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"
#include "models/weights.h"
#include "ops/embedding/embedding.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using namespace ops::testing;
using formats::testing::GgufBytes;
using formats::testing::load_error;
using formats::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Stored {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  std::vector<uint32_t> words() const {
    std::vector<uint32_t> out(bytes.size() / 4);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  void set_words(const std::vector<uint32_t>& words) {
    bytes.assign(reinterpret_cast<const char*>(words.data()), words.size() * 4);
  }
};

struct Vector {
  std::string format;
  json::object params;
  std::map<std::string, Stored> tensors;
  int n = 0, k = 0;
  std::vector<float> values;  // [n, k]
};

std::string bytes_of(const json::value& digits) {
  const std::string text(digits.as_string());
  const auto digit = [](char c) { return c < 'a' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2)
    out += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return out;
}

std::string dtype_in_file(const std::string& name) {
  static const std::map<std::string, std::string> kNames = {
      {"uint32", "U32"},  {"int32", "I32"},     {"int64", "I64"},
      {"uint8", "U8"},    {"int8", "I8"},       {"float32", "F32"},
      {"float16", "F16"}, {"bfloat16", "BF16"}, {"float8_e4m3fn", "F8_E4M3"}};
  return kNames.at(name);
}

Vector read_vector(const json::object& entry) {
  Vector v{.format = std::string(entry.at("format").as_string()),
           .params = entry.at("params").as_object(),
           .tensors = {},
           .values = {}};
  for (const auto& [name, tensor] : entry.at("tensors").as_object())
    v.tensors[std::string(name)] = {
        .dtype = dtype_in_file(std::string(tensor.at("dtype").as_string())),
        .shape = json::value_to<std::vector<int64_t>>(tensor.at("shape")),
        .bytes = bytes_of(tensor.at("hex"))};
  const auto shape = json::value_to<std::vector<int>>(entry.at("shape"));
  v.k = shape.back();
  v.n = shape.size() == 3 ? shape[0] * shape[1] : shape[0];
  const std::string bytes = bytes_of(entry.at("values"));
  v.values.resize(bytes.size() / sizeof(float));
  std::memcpy(v.values.data(), bytes.data(), bytes.size());
  return v;
}

std::vector<Vector> read_vectors() {
  const std::string path = source_dir() + "/tests/parity/format_vectors.json";
  const auto parsed = parse_json(formats::read_text_file(path, size_t{1} << 20));
  std::vector<Vector> out;
  for (const auto& entry : parsed.value().as_object().at("vectors").as_array())
    out.push_back(read_vector(entry.as_object()));
  return out;
}

// A stream of codes for each of `streams`, the lowest bit first: word i of stream s is at
// s * stream_step + i * word_step.
struct Codes {
  size_t streams, words, stream_step, word_step, bits;
};

// Each code twice.
std::vector<uint32_t> doubled(const std::vector<uint32_t>& from, const Codes& codes) {
  std::vector<uint32_t> to(2 * from.size());
  const size_t step = codes.stream_step > 1 ? 2 * codes.stream_step : 1;
  const size_t count = codes.words * 32 / codes.bits;
  for (size_t s = 0; s < codes.streams; ++s)
    for (size_t bit = 0; bit < 2 * count * codes.bits; ++bit) {
      const size_t source = bit / codes.bits / 2 * codes.bits + bit % codes.bits;
      const uint32_t word = from[s * codes.stream_step + source / 32 * codes.word_step];
      to[s * step + bit / 32 * codes.word_step] |= (word >> source % 32 & 1) << bit % 32;
    }
  return to;
}

template <class T>
std::vector<T> each_twice(const std::vector<T>& from, size_t length = 1) {
  std::vector<T> to;
  for (auto at = from.begin(); at != from.end(); at += static_cast<std::ptrdiff_t>(length))
    for (int i = 0; i < 2; ++i) to.insert(to.end(), at, at + static_cast<std::ptrdiff_t>(length));
  return to;
}

// The vectors' groups have 16 columns; published ones, and those that are read, 32 at least: so
// each column stands twice, beside itself.
void double_columns(Vector& v) {
  const auto bits =
      static_cast<size_t>(v.params.at(v.params.contains("bits") ? "bits" : "num_bits").as_int64());
  const auto n = static_cast<size_t>(v.n), k = static_cast<size_t>(v.k);
  const bool packed = v.tensors.contains("weight_packed");
  Stored& codes = v.tensors.at(packed ? "weight_packed" : "qweight");
  const size_t words = k * bits / 32;
  if (v.format.starts_with("awq"))
    codes.set_words(each_twice(codes.words(), n / 8));
  else
    codes.set_words(packed ? doubled(codes.words(), {n, words, words, 1, bits})
                           : doubled(codes.words(), {n, words, 1, n, bits}));
  codes.shape[packed ? 1 : 0] *= 2;
  if (v.tensors.contains("g_idx")) {
    Stored& order = v.tensors.at("g_idx");
    order.set_words(each_twice(order.words()));
    order.shape[0] *= 2;
  }
  if (v.tensors.contains("weight_shape")) {
    const int64_t shape[] = {v.n, 2 * v.k};
    v.tensors.at("weight_shape").bytes.assign(reinterpret_cast<const char*>(shape), sizeof shape);
  }
  v.values = each_twice(v.values);
  v.k *= 2;
}

// compressed-tensors' scales are bfloat16 that were widened.
void narrow_scales(Vector& v) {
  Stored& scales = v.tensors.at("weight_scale");
  if (scales.dtype != "F32") return;
  std::string narrow;
  for (const uint32_t word : scales.words()) {
    ASSERT_EQ(word & 0xFFFF, 0u);
    narrow += static_cast<char>(word >> 16);
    narrow += static_cast<char>(word >> 24);
  }
  scales.bytes = narrow;
  scales.dtype = "BF16";
}

float scale_of(const Vector& v, int64_t row) {
  const std::string& bytes = v.tensors.at("weight_scale").bytes;
  float scale;
  std::memcpy(&scale, bytes.data() + static_cast<size_t>(row) * sizeof(scale), sizeof(scale));
  return scale;
}

// The same bytes with scales that bfloat16 holds, as published ones are.
void round_scales(Vector& v) {
  std::vector<uint32_t> scales = v.tensors.at("weight_scale").words();
  for (uint32_t& scale : scales) scale &= 0xFFFF0000u;
  v.tensors.at("weight_scale").set_words(scales);
  const std::string& codes = v.tensors.at("weight").bytes;
  for (size_t i = 0; i < codes.size(); ++i)
    v.values[i] = static_cast<float>(static_cast<int8_t>(codes[i])) *
                  scale_of(v, static_cast<int64_t>(i) / v.k);
}

json::object compressed(const std::string& format, const json::object& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"g", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// What the folder's config says of the weights, as the format's programs write it.
json::object folder_config(const Vector& v) {
  const std::string& f = v.format;
  if (f.starts_with("awq"))
    return {{"quant_method", "awq"},
            {"bits", 4},
            {"group_size", 32},
            {"version", "gemm"},
            {"zero_point", true}};
  if (f.starts_with("gptq"))
    return {{"quant_method", "gptq"}, {"bits", v.params.at("bits")},
            {"group_size", 32},       {"checkpoint_format", "gptq"},
            {"sym", false},           {"desc_act", f.ends_with("act_order")}};
  if (f.starts_with("compressed-tensors.pack-quantized"))
    return compressed("pack-quantized", {{"num_bits", v.params.at("num_bits")},
                                         {"type", "int"},
                                         {"strategy", "group"},
                                         {"group_size", 32},
                                         {"symmetric", v.params.at("symmetric")}});
  const auto floats = [](int bits, const char* strategy) {
    return json::object{{"num_bits", bits}, {"type", "float"}, {"strategy", strategy}};
  };
  if (f == "compressed-tensors.float-quantized.FP8_DYNAMIC")
    return compressed("float-quantized", floats(8, "channel"));
  if (f == "compressed-tensors.nvfp4-pack-quantized")
    return compressed("nvfp4-pack-quantized", floats(4, "tensor_group"));
  if (f == "compressed-tensors.mxfp4")
    return compressed("mxfp4-pack-quantized", floats(4, "group"));
  if (f == "compressed-tensors.mxfp6")
    return compressed("mxfp6-pack-quantized", floats(6, "group"));
  if (f == "compressed-tensors.mxfp8") return compressed("mxfp8-quantized", floats(8, "group"));
  if (f == "compressed-tensors.int-quantized.W8A8")
    return compressed("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}});
  if (f == "hf.fp8.block")
    return {{"quant_method", "fp8"}, {"weight_block_size", v.params.at("weight_block_size")}};
  if (f == "modelopt.nvfp4") return {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  if (f == "bitsandbytes.nf4") {
    const json::value* storage = v.params.if_contains("storage");
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_quant_storage", storage ? *storage : json::value(nullptr)}};
  }
  return {};
}

// The tensors of a matrix "x" under the format's names.
std::map<std::string, Stored> tensors_in_file(const Vector& v) {
  std::map<std::string, Stored> out;
  for (const auto& [name, tensor] : v.tensors)
    out["x." + (v.format == "bitsandbytes.nf4" && name != "weight" ? "weight." + name : name)] =
        tensor;
  if (v.format == "bitsandbytes.nf4") {
    const json::object state = {
        {"quant_type", "nf4"}, {"blocksize", 64}, {"shape", {v.n, v.k}}, {"dtype", "float32"}};
    const std::string text = json::serialize(state);
    out["x.weight.quant_state.bitsandbytes__nf4"] = {
        "U8", {static_cast<int64_t>(text.size())}, text};
  }
  return out;
}

std::string safetensors_of(const std::map<std::string, Stored>& tensors) {
  json::object header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", json::value_from(tensor.shape)},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return formats::testing::safetensors_bytes(json::serialize(header), 0) + data;
}

std::string write_folder(const TempDir& dir, const Vector& v) {
  const std::string like = source_dir() + "/tests/parity/models/qwen3-bf16/config.json";
  json::object config =
      parse_json(formats::read_text_file(like, size_t{1} << 20)).value().as_object();
  if (v.format == "mlx.nvfp4.global_scale")
    config["quantization"] = {{"group_size", 16}, {"bits", 4}, {"mode", "nvfp4"}};
  else if (v.format.starts_with("mlx"))
    config["quantization"] = v.params;
  else if (json::object said = folder_config(v); !said.empty())
    config["quantization_config"] = std::move(said);
  dir.write("config.json", json::serialize(config));
  dir.write("model.safetensors", safetensors_of(tensors_in_file(v)));
  return dir.path();
}

std::string write_gguf(const TempDir& dir, const Vector& v) {
  GgufBytes file;
  file.text("general.architecture", "qwen3");
  file.u32("qwen3.block_count", 1).u32("qwen3.context_length", 128);
  file.u32("qwen3.embedding_length", 64).u32("qwen3.feed_forward_length", 64);
  file.u32("qwen3.attention.head_count", 2).u32("qwen3.attention.head_count_kv", 1);
  file.u32("qwen3.attention.key_length", 32).u32("qwen3.attention.value_length", 32);
  file.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab"}).texts("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.eos_token_id", 2);
  const auto type = static_cast<uint32_t>(v.params.at("ggml_type").as_int64());
  file.tensor("token_embd.weight", {32, 3}, 0, std::string(3 * 32 * 4, '\0'));
  file.tensor("blk.0.ffn_down.weight", {static_cast<uint64_t>(v.k), static_cast<uint64_t>(v.n)},
              type, v.tensors.begin()->second.bytes);
  return dir.write("m.gguf", file.bytes());
}

std::string write_checkpoint(const TempDir& dir, const Vector& v) {
  return v.format.starts_with("gguf") ? write_gguf(dir, v) : write_folder(dir, v);
}

ops::LinearWeight take(WeightLoader& loader, const Vector& v) {
  if (v.format.starts_with("gguf"))
    return loader.linear("model.layers.0.mlp.down_proj.weight", "", v.n, v.k);
  if (v.format.starts_with("gpt-oss"))
    return loader
        .expert_linears({.weights = {"x.gate_up_proj_blocks"}, .alternating = true}, 1, v.n, v.k)
        .front();
  return loader.linear("x.weight", "", v.n, v.k);
}

// The values [n, k] in the model's dtype, each rounded once, as float32. gpt-oss stores rows of
// gates and ups in turn; packed are all gates, then all ups.
mx::array expected_values(const Vector& v, mx::Dtype dtype) {
  mx::array all = mx::array(v.values.data(), {v.n, v.k}, mx::float32);
  if (v.format.starts_with("gpt-oss")) {
    std::vector<int32_t> order;
    for (int i = 0; i < v.n; ++i) order.push_back(i < v.n / 2 ? 2 * i : 2 * (i - v.n / 2) + 1);
    all = mx::take(all, mx::array(order.data(), {v.n}, mx::int32), 0);
  }
  return mx::astype(mx::astype(all, dtype), mx::float32);
}

void expect_values(const ops::Context& context, const Vector& v, mx::Dtype dtype) {
  const TempDir dir;
  const auto checkpoint = formats::Checkpoint::open(write_checkpoint(dir, v));
  WeightLoader loader(context, checkpoint, dtype, {});
  const ops::LinearWeight weight = take(loader, v);
  const std::vector<float> expected = to_floats(expected_values(v, dtype));
  std::vector<int32_t> all_rows(static_cast<size_t>(v.n));
  for (int i = 0; i < v.n; ++i) all_rows[static_cast<size_t>(i)] = i;
  const mx::array ids(all_rows.data(), {v.n}, mx::int32);
  EXPECT_EQ(to_floats(ops::embedding(context, ids, weight.weight)), expected) << "as an embedding";
  const mx::array units = mx::eye(v.k, dtype);
  const auto turned = mx::transpose(mx::array(expected.data(), {v.n, v.k}, mx::float32));
  // All columns together, and some of them where kernels for few rows are asked.
  for (const int rows : {1, 5, v.k}) {
    for (int begin = 0; begin < v.k; begin += std::max(rows, 17)) {
      const int end = std::min(begin + rows, v.k);
      const mx::array x = mx::contiguous(mx::slice(units, {begin, 0}, {end, v.k}));
      const mx::array y = ops::linear(context, x, weight, {.out_dtype = mx::float32});
      ASSERT_EQ(to_floats(y), to_floats(mx::slice(turned, {begin, 0}, {end, v.n})))
          << rows << " rows from " << begin;
    }
  }
}

// Beside float32 scales zero is a bias, and a sum is rounded that the library does without.
const std::string kSignedBytes = "compressed-tensors.int-quantized.W8A8";

TEST(FormatVectors, SignedBytesWithFloat32ScalesAreOffByTheRoundingOfASum) {
  const ops::Context context = ops::make_context(1);
  const std::vector<Vector> all = read_vectors();
  const auto found = std::ranges::find(all, kSignedBytes, &Vector::format);
  ASSERT_NE(found, all.end());
  const TempDir dir;
  const auto checkpoint = formats::Checkpoint::open(write_checkpoint(dir, *found));
  WeightLoader loader(context, checkpoint, mx::float32, {});
  const ops::LinearWeight weight = take(loader, *found);
  const std::vector<int32_t> rows = {0, 1, 2, 3};
  const auto values =
      to_floats(ops::embedding(context, mx::array(rows.data(), {4}, mx::int32), weight.weight));
  for (size_t i = 0; i < found->values.size(); ++i)
    EXPECT_NEAR(values[i], found->values[i],
                256 * 0x1p-23f * scale_of(*found, static_cast<int64_t>(i) / found->k));
}

// Formats that nothing is packed in, and what their refusals name.
const std::map<std::string, std::string> kRefused = {
    {"mlx.nvfp4.global_scale", "x.global_scale"},
    {"compressed-tensors.pack-quantized.3bit.sym", "num_bits"},
    {"compressed-tensors.pack-quantized.5bit.sym", "num_bits"},
    {"compressed-tensors.mxfp6", "mxfp6-pack-quantized"},
    {"compressed-tensors.mxfp8", "mxfp8-quantized"}};

// The package reads scales without looking at bit 7, which no writer sets.
void clear_signs(Vector& v) {
  std::string& blocks = v.tensors.begin()->second.bytes;
  for (size_t block = 0; block < blocks.size(); block += 36)
    for (size_t i = block; i < block + 4; ++i) {
      ASSERT_NE(blocks[i], '\xFF');
      blocks[i] = static_cast<char>(blocks[i] & 0x7F);
    }
}

// The same codes as elements of another type.
Vector stored_as_bfloat16(Vector v) {
  Stored& codes = v.tensors.at("weight");
  codes = {"BF16", {codes.shape[0] / 2, 1}, codes.bytes};
  v.params["storage"] = "bfloat16";
  return v;
}

std::vector<Vector> vectors_for_serving() {
  std::vector<Vector> out;
  for (Vector& v : read_vectors()) {
    if (kRefused.contains(v.format)) continue;
    if (v.format.starts_with("compressed-tensors.pack")) narrow_scales(v);
    if (v.format == "gguf.NVFP4") clear_signs(v);
    if (v.format == kSignedBytes) round_scales(v);
    if (v.params.contains("group_size") && v.params.at("group_size").as_int64() == 16 &&
        v.format.find("nvfp4") == std::string::npos)
      double_columns(v);
    if (v.format == "bitsandbytes.nf4") out.push_back(stored_as_bfloat16(v));
    out.push_back(std::move(v));
  }
  return out;
}

TEST(FormatVectors, AreTheValuesOfProductsAndEmbeddings) {
  const std::vector<Vector> vectors = vectors_for_serving();
  EXPECT_EQ(vectors.size(), 55u);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const ops::Context context = ops::make_context(1);
    for (const Vector& v : vectors)
      for (const mx::Dtype dtype : float_dtypes()) {
        // That library gives bfloat16.
        if (v.format == "compressed-tensors.nvfp4-pack-quantized" && dtype != mx::bfloat16)
          continue;
        SCOPED_TRACE(v.format + ", " + isa + ", " + dtype_name(dtype));
        ASSERT_NO_FATAL_FAILURE(expect_values(context, v, dtype));
      }
  }
}

TEST(FormatVectors, WhatCannotBePackedIsRefusedByName) {
  size_t refused = 0;
  for (const Vector& v : read_vectors()) {
    const auto found = kRefused.find(v.format);
    if (found == kRefused.end()) continue;
    SCOPED_TRACE(v.format);
    const TempDir dir;
    const std::string path = write_checkpoint(dir, v);
    const ops::Context context = ops::make_context(1);
    const std::string error = load_error([&] {
      const auto checkpoint = formats::Checkpoint::open(path);
      WeightLoader loader(context, checkpoint, mx::float32, {});
      (void)take(loader, v);
      (void)loader.finish({});
    });
    EXPECT_THAT(error, AllOf(HasSubstr(found->second), HasSubstr(dir.path())));
    ++refused;
  }
  EXPECT_EQ(refused, kRefused.size());
}

}  // namespace
}  // namespace quire::models
