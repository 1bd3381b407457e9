// Quantised checkpoints: `quire quantize` against MLX, and what the loader says when one is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "base/source_dir.h"
#include "formats/affine_quantize.h"
#include "formats/block_float_quantize.h"
#include "formats/data_file.h"
#include "formats/quantize_checkpoint.h"
#include "formats/safetensors_writer.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/model_size.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using formats::testing::load_error;
using formats::testing::TempDir;
using testing::AllOf;
using testing::Field;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string parity_model(const std::string& name) {
  return source_dir() + "/tests/parity/models/" + name;
}

formats::DType dtype_of(mx::Dtype dtype) {
  return dtype == mx::float32   ? formats::DType::kF32
         : dtype == mx::float16 ? formats::DType::kF16
                                : formats::DType::kBF16;
}

// Random rows, and rows that are hard: all zero, constant, one-sided, tiny, with one outlier.
mx::array rows_to_quantise(mx::Dtype dtype, int k) {
  std::vector<float> w =
      ops::testing::to_floats(ops::testing::random_array({24, k}, mx::float32, 4, 0.05f));
  const auto row = [&](int r) { return w.begin() + r * k; };
  std::fill(row(0), row(1), 0.0f);
  std::fill(row(1), row(2), 0.25f);
  std::fill(row(2), row(3), -0.25f);
  for (int i = 0; i < k; ++i) {
    *(row(3) + i) = std::abs(*(row(3) + i));
    *(row(4) + i) = -std::abs(*(row(4) + i));
    *(row(5) + i) *= 1e-6f;
    *(row(6) + i) = i % 16 == 0 ? 3.0f : *(row(6) + i);
    *(row(7) + i) = static_cast<float>(i % 16) / 16;
  }
  mx::array result = mx::astype(mx::array(w.data(), {24, k}, mx::float32), dtype);
  mx::eval(result);
  return result;
}

TEST(Quantize, RowsHaveTheBitsOfMxQuantize) {
  for (const mx::Dtype dtype : ops::testing::float_dtypes()) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        SCOPED_TRACE(std::to_string(bits) + " bits, groups of " + std::to_string(group) + ", " +
                     ops::testing::dtype_name(dtype));
        const int k = 256;
        const mx::array w = rows_to_quantise(dtype, k);
        const auto expected = mx::quantize(w, group, bits);
        const size_t row_bytes = static_cast<size_t>(k) * bits / 8;
        const size_t scale_bytes = static_cast<size_t>(k / group) * w.itemsize();
        std::vector<std::byte> values(24 * row_bytes), scales(24 * scale_bytes), biases = scales;
        for (size_t r = 0; r < 24; ++r) {
          formats::quantize_row(
              reinterpret_cast<const std::byte*>(w.data<void>()) + r * k * w.itemsize(),
              dtype_of(dtype), k, {.bits = bits, .group_size = group},
              {.values = &values[r * row_bytes],
               .scales = &scales[r * scale_bytes],
               .biases = &biases[r * scale_bytes]});
        }
        const auto same = [](const mx::array& a, const std::vector<std::byte>& b) {
          const auto bytes = ops::testing::to_bytes(a);
          return bytes.size() == b.size() && std::memcmp(bytes.data(), b.data(), b.size()) == 0;
        };
        EXPECT_TRUE(same(expected.at(0), values));
        EXPECT_TRUE(same(expected.at(1), scales));
        EXPECT_TRUE(same(expected.at(2), biases));
      }
    }
  }
}

TEST(Quantize, RowsOfSmallFloatsHaveTheBitsOfMxQuantize) {
  for (const mx::Dtype dtype : ops::testing::float_dtypes()) {
    for (const formats::QuantMode mode : formats::kQuantModes) {
      if (mode == formats::QuantMode::kAffine) continue;
      SCOPED_TRACE(std::string(formats::mode_name(mode)) + ", " + ops::testing::dtype_name(dtype));
      const formats::QuantisedFormat format = formats::usual_format(mode);
      const int k = 256;
      const mx::array w = rows_to_quantise(dtype, k);
      const auto expected = mx::quantize(w, static_cast<int>(format.group_size), format.bits,
                                         formats::mode_name(mode));
      ASSERT_EQ(expected.size(), 2u);
      const size_t row_bytes = static_cast<size_t>(k) * format.bits / 8,
                   groups = k / format.group_size;
      std::vector<std::byte> values(24 * row_bytes), scales(24 * groups);
      for (size_t r = 0; r < 24; ++r)
        formats::quantize_block_float_row(
            reinterpret_cast<const std::byte*>(w.data<void>()) + r * k * w.itemsize(),
            dtype_of(dtype), k, format,
            {.values = &values[r * row_bytes], .scales = &scales[r * groups]});
      for (const auto& [array, bytes] : {std::pair(expected[0], values), {expected[1], scales}}) {
        mx::array whole = mx::contiguous(array);
        mx::eval(whole);
        ASSERT_EQ(whole.nbytes(), bytes.size());
        EXPECT_EQ(std::memcmp(whole.data<void>(), bytes.data(), bytes.size()), 0);
      }
    }
  }
}

class QuantizedModel : public testing::Test {
 protected:
  formats::QuantizeReport quantize(const std::string& source, formats::QuantizeOptions options,
                                   const std::string& to = "q") {
    ThreadPool pool(2);
    return formats::quantize_checkpoint(source, dir_.path() + "/" + to, options, pool);
  }
  std::string refusal(const std::string& source, const std::string& to = "q") {
    return load_error([&] { quantize(source, {}, to); });
  }
  std::unique_ptr<Model> load(const std::string& dir, const LoadOptions& options = {}) {
    return load_model(ops::make_context(1), formats::Checkpoint::open(dir), options);
  }
  std::string load_refusal() {
    return load_error([&] { load(dir_.path() + "/q"); });
  }
  // Rewrites config.json of the result.
  void replace_in_config(const std::string& from, const std::string& to) {
    const std::string path = dir_.path() + "/q/config.json";
    std::string text = formats::read_text_file(path, 1 << 20);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, from.size(), to);
    std::ofstream(path) << text;
  }
  // Rewrites the weights of the result.
  void change_tensors(const std::function<void(std::vector<formats::TensorPlan>&,
                                               std::vector<std::string>&)>& change,
                      const std::string& folder = "q") {
    const std::string path = dir_.path() + "/" + folder + "/model.safetensors";
    std::vector<formats::TensorPlan> plans;
    std::vector<std::string> bytes;
    {
      const auto file = formats::SafetensorsFile::open(path);
      for (const auto& t : file.tensors()) {
        plans.push_back({t.name, t.dtype, t.shape});
        bytes.push_back(formats::testing::bytes_of(t));
      }
    }
    change(plans, bytes);
    formats::SafetensorsWriter writer(path, plans, {});
    for (const auto& b : bytes) writer.append(std::as_bytes(std::span(b)));
    writer.finish();
  }
  // The bytes of one tensor of the result.
  void change_tensor(const std::string& name, const std::function<void(std::string&)>& change,
                     const std::string& folder = "q") {
    change_tensors(
        [&](auto& plans, auto& bytes) {
          const auto plan = std::ranges::find(plans, name, &formats::TensorPlan::name);
          ASSERT_NE(plan, plans.end());
          change(bytes[static_cast<size_t>(plan - plans.begin())]);
        },
        folder);
  }
  // A copy that a test may change.
  std::string copy_of(const std::string& model, const std::string& folder) {
    std::filesystem::copy(model, dir_.path() + "/" + folder);
    return dir_.path() + "/" + folder;
  }
  std::vector<std::string> folders() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      names.push_back(entry.path().filename());
    return names;
  }

  TempDir dir_;
};

constexpr const char* kUp = "model.layers.1.mlp.up_proj";

TEST_F(QuantizedModel, LoadsAndIsSmaller) {
  const auto report = quantize(parity_model("qwen3-bf16"), {.format = {4, 32}});
  EXPECT_EQ(report.quantised, 1 + 2 * 7);
  EXPECT_TRUE(report.kept.empty());
  EXPECT_EQ(load(dir_.path() + "/q")->vocab_size(), 320);
  EXPECT_LT(report.bytes_after, report.bytes_before * 2 / 5);
  EXPECT_THAT(folders(), UnorderedElementsAre("q"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/q/tokenizer.json"));
}

// Memory holds values in their own bits, or with activations of 8 bits in 4 or 8: told ahead.
TEST_F(QuantizedModel, EveryWidthLoadsAtTheSizeThatIsMeasured) {
  std::map<int, int64_t> weights, with_int8, bytes;
  LoadOptions options;
  options.int8_activations = true;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const std::string to = std::to_string(bits);
    const auto report = quantize(parity_model("qwen3-bf16"), {.format = {bits, 32}}, to);
    bytes[bits] = static_cast<int64_t>(report.bytes_after);
    EXPECT_EQ(load(dir_.path() + "/" + to)->vocab_size(), 320);
    const auto checkpoint = formats::Checkpoint::open(dir_.path() + "/" + to);
    weights[bits] = measure_model(checkpoint, {}).weights;
    with_int8[bits] = measure_model(checkpoint, options).weights;
    EXPECT_LE(weights[bits], bytes[bits] * 105 / 100) << bits << " bits";
  }
  for (const auto& [narrow, wide] : {std::pair(2, 3), {3, 4}, {4, 5}, {5, 6}, {6, 8}})
    EXPECT_TRUE(bytes[narrow] < bytes[wide] && weights[narrow] < weights[wide]) << narrow;
  for (const int bits : {2, 3, 5, 6}) EXPECT_EQ(with_int8[bits], weights[bits < 4 ? 4 : 8]);
}

// Memory holds as much as the file; routers are affine all the same.
TEST_F(QuantizedModel, SmallFloatsLoadAtTheirSizeOnDisk) {
  for (const formats::QuantMode mode : formats::kQuantModes) {
    if (mode == formats::QuantMode::kAffine) continue;
    const std::string to = formats::mode_name(mode);
    const auto report =
        quantize(parity_model("qwen3-bf16"), {.format = formats::usual_format(mode)}, to);
    EXPECT_EQ(report.quantised, 1 + 2 * 7);
    const auto target = formats::Checkpoint::open(dir_.path() + "/" + to);
    EXPECT_EQ(target.find("model.embed_tokens.scales")->dtype, formats::DType::kU8);
    EXPECT_EQ(target.find("model.embed_tokens.biases"), nullptr);
    const ModelSize size = measure_model(target, {});
    EXPECT_EQ(size.dtype, mx::bfloat16);
    // Norms are widened to float32: twice their bytes.
    int64_t vectors = 0;
    for (const std::string& name : target.names())
      if (target.find(name)->shape.size() == 1)
        vectors += static_cast<int64_t>(target.find(name)->size);
    EXPECT_EQ(size.weights, static_cast<int64_t>(report.bytes_after) + vectors);
    EXPECT_EQ(load(dir_.path() + "/" + to)->vocab_size(), 320);
  }
}

// Whatever the scales are, the file and the tensor are named.
TEST_F(QuantizedModel, DamagedSmallFloatsAreNamed) {
  const struct {
    formats::QuantMode mode;
    const char *tensor, *named;
    char byte;
  } cases[] = {
      {formats::QuantMode::kMxfp4, "scales", "NaN", '\xFF'},
      {formats::QuantMode::kMxfp8, "scales", "too large", '\xFE'},
      {formats::QuantMode::kMxfp8, "weight", "NaN", '\x7F'},
      {formats::QuantMode::kNvfp4, "scales", "negative", '\x80'},
  };
  for (const auto& [mode, tensor, named, byte] : cases) {
    std::filesystem::remove_all(dir_.path() + "/q");
    quantize(parity_model("qwen3-bf16"), {.format = formats::usual_format(mode)});
    const std::string layer = "model.layers.1.self_attn.o_proj.";
    change_tensor(layer + tensor, [&](std::string& bytes) { bytes[bytes.size() / 2] = byte; });
    EXPECT_THAT(load_refusal(), AllOf(HasSubstr("model.safetensors"), HasSubstr(layer + "weight"),
                                      HasSubstr(named)));
  }
}

// MLX can give nvfp4 a second scale, of the whole tensor.
TEST_F(QuantizedModel, AGlobalScaleIsNamed) {
  quantize(parity_model("qwen3-bf16"),
           {.format = formats::usual_format(formats::QuantMode::kNvfp4)});
  const std::string layer = "model.layers.1.self_attn.o_proj.";
  change_tensors([&](std::vector<formats::TensorPlan>& plans, std::vector<std::string>& bytes) {
    plans.push_back({layer + "global_scale", formats::DType::kF32, {1}});
    bytes.emplace_back(4, '\x3F');
  });
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(layer + "weight"), HasSubstr(layer + "global_scale"),
                                    HasSubstr("whole tensor")));
}

TEST_F(QuantizedModel, WeightsThatAreNotFiniteAreNotQuantised) {
  const std::string source = copy_of(parity_model("qwen3-bf16"), "source");
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  for (const uint16_t bits : {0x7FC0, 0xFF80}) {  // NaN, minus infinity
    change_tensor(
        name, [&](std::string& bytes) { std::memcpy(&bytes[600], &bits, sizeof bits); }, "source");
    for (const formats::QuantMode mode : formats::kQuantModes)
      EXPECT_THAT(load_error([&] { quantize(source, {.format = formats::usual_format(mode)}); }),
                  AllOf(HasSubstr("source/model.safetensors"), HasSubstr(name), HasSubstr("NaN")));
  }
  EXPECT_EQ(folders(), std::vector<std::string>{"source"});
}

// Weights that the smallest scale of nvfp4, 2^-9, is too large for.
TEST_F(QuantizedModel, GroupsThatNvfp4LosesAreCounted) {
  const std::string source = copy_of(parity_model("qwen3-bf16"), "source");
  change_tensor(
      "model.layers.1.mlp.up_proj.weight",
      [](std::string& bytes) {          // three groups of 16
        const uint16_t small = 0x3A80;  // 2^-10
        for (size_t i = 0; i < 48; ++i) std::memcpy(&bytes[2 * i], &small, sizeof small);
      },
      "source");
  const auto report =
      quantize(source, {.format = formats::usual_format(formats::QuantMode::kNvfp4)});
  ASSERT_EQ(report.lost.size(), 1u);
  EXPECT_EQ(report.lost[0].layer, "model.layers.1.mlp.up_proj");
  EXPECT_EQ(report.lost[0].groups, 3);
  EXPECT_EQ(report.lost[0].of, 96 * 64 / 16);
  EXPECT_TRUE(quantize(source, {.format = formats::usual_format(formats::QuantMode::kMxfp4)}, "m")
                  .lost.empty());
}

TEST_F(QuantizedModel, SmallFloatsOfAnotherKindAreNamed) {
  constexpr auto kMxfp8 = formats::QuantMode::kMxfp8;
  quantize(parity_model("qwen3-moe-bf16"), {.format = formats::usual_format(kMxfp8)});
  const auto target = formats::Checkpoint::open(dir_.path() + "/q");
  EXPECT_EQ(target.find("model.layers.2.mlp.gate.scales")->dtype, formats::DType::kBF16);
  EXPECT_EQ(load(dir_.path() + "/q")->vocab_size(), 320);
  const LoadOptions int8 = {.dtype = {}, .progress = {}, .int8_activations = true};
  EXPECT_THAT(load(dir_.path() + "/q", int8)->whole_activations(), HasSubstr("mxfp8 ("));
  quantize(parity_model("qwen3-bf16"), {.format = formats::usual_format(kMxfp8)}, "dense");
  EXPECT_THAT(load_error([&] { load(dir_.path() + "/dense", int8); }),
              AllOf(HasSubstr("whole numbers"), HasSubstr("mxfp8 (")));
  replace_in_config("\"mxfp8\"", "\"mxfp4\"");
  EXPECT_THAT(load_refusal(), HasSubstr("mxfp4"));
}

// q, k and v of one layer have three formats of small floats there.
TEST_F(QuantizedModel, MixturesOfSmallFloatsStayInTheirBits) {
  EXPECT_EQ(load(parity_model("qwen3-mxfp4"))->unpacked_weights(), "");
  quantize(parity_model("qwen3-bf16"),
           {.format = formats::usual_format(formats::QuantMode::kMxfp4)});
  EXPECT_EQ(load(dir_.path() + "/q")->unpacked_weights(), "");
}

// One expert has 4 bits and zeros; the others stay as they were.
TEST_F(QuantizedModel, ExpertsOfDifferentFormatsAreNamed) {
  copy_of(parity_model("qwen3-moe-bf16"), "q");
  const std::string layer = "model.layers.2.mlp.experts.1.down_proj";
  change_tensors([&](std::vector<formats::TensorPlan>& plans, std::vector<std::string>& bytes) {
    const auto plan = std::ranges::find(plans, layer + ".weight", &formats::TensorPlan::name);
    ASSERT_NE(plan, plans.end());
    const int64_t n = plan->shape[0], k = plan->shape[1];
    *plan = {layer + ".weight", formats::DType::kU32, {n, k / 8}};
    bytes[static_cast<size_t>(plan - plans.begin())].assign(static_cast<size_t>(n * k / 2), 0);
    for (const char* name : {".scales", ".biases"}) {
      plans.push_back({layer + name, formats::DType::kBF16, {n, k / 32}});
      bytes.emplace_back(static_cast<size_t>(n * k / 16), 0);
    }
  });
  replace_in_config("\"vocab_size\"",
                    R"("quantization": {"group_size": 32, "bits": 4}, "vocab_size")");
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr("model.layers.2.mlp.experts"), HasSubstr("formats")));
}

TEST_F(QuantizedModel, ShardsAndAnIndexAreWrittenAndRead) {
  quantize(parity_model("qwen3-untied-sharded"), {.format = {8, 32}, .max_shard_bytes = 40000});
  EXPECT_FALSE(std::filesystem::exists(dir_.path() + "/q/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/q/model.safetensors.index.json"));
  EXPECT_EQ(load(dir_.path() + "/q")->vocab_size(), 320);
}

TEST_F(QuantizedModel, RowsThatTheGroupDoesNotDivideStay) {
  const auto report = quantize(parity_model("qwen3-bf16"), {.format = {4, 64}});
  const auto of_64 = [](const std::string& name) {
    return AllOf(Field(&formats::QuantizeReport::Kept::name, name),
                 Field(&formats::QuantizeReport::Kept::group_size, 64));
  };
  EXPECT_THAT(report.kept, UnorderedElementsAre(of_64("model.layers.0.mlp.down_proj.weight"),
                                                of_64("model.layers.1.mlp.down_proj.weight")));
  EXPECT_EQ(load(dir_.path() + "/q")->vocab_size(), 320);
}

TEST_F(QuantizedModel, ExpertsAreStackedAndRoutersKeepEightBits) {
  const std::string source = parity_model("qwen3-moe-bf16");
  const auto report = quantize(source, {.format = {4, 32}});
  // Embedding and head; four matrices of attention; the dense layer's three; router and three.
  EXPECT_EQ(report.quantised, 2 + 3 * 4 + 3 + 2 * 4);
  const auto target = formats::Checkpoint::open(dir_.path() + "/q");
  const std::string layer = "model.layers.2.mlp.";
  const auto& stack = *target.find(layer + "switch_mlp.up_proj.weight");
  EXPECT_EQ(stack.shape, (std::vector<int64_t>{7, 64, 8}));
  EXPECT_EQ(target.find(layer + "gate.weight")->shape, (std::vector<int64_t>{7, 16}));

  const auto from = formats::Checkpoint::open(source);
  const auto& expert = *from.find(layer + "experts.3.up_proj.weight");
  std::vector<std::byte> values(32), scales(4), biases(4);
  formats::quantize_row(
      expert.read_all().data() + 5 * 64 * 2, expert.dtype, 64, {.bits = 4, .group_size = 32},
      {.values = values.data(), .scales = scales.data(), .biases = biases.data()});
  EXPECT_EQ(std::memcmp(stack.read_all().data() + (3 * 64 + 5) * 32, values.data(), 32), 0);
  EXPECT_EQ(load(dir_.path() + "/q")->vocab_size(), 320);
}

// transformers' own names: all experts of a layer in one tensor, gate and up stacked.
TEST_F(QuantizedModel, FusedExpertsGiveTheSameFile) {
  const std::string source = parity_model("qwen3-moe-bf16");
  const auto from = formats::Checkpoint::open(source);
  std::map<std::string, formats::TensorPlan> plans;
  std::map<std::string, std::string> bytes;
  const auto append = [&](const std::string& name, const formats::RawTensor& tensor,
                          std::vector<int64_t> shape) {
    plans[name] = {name, tensor.dtype, std::move(shape)};
    bytes[name] += formats::testing::bytes_of(tensor);
  };
  for (const std::string& name : from.names())
    if (name.find(".experts.") == std::string::npos)
      append(name, *from.find(name), from.find(name)->shape);
  for (const char* layer : {"model.layers.0.mlp.experts.", "model.layers.2.mlp.experts."}) {
    for (int e = 0; e < 7; ++e) {
      const std::string expert = layer + std::to_string(e);
      append(std::string(layer) + "gate_up_proj", *from.find(expert + ".gate_proj.weight"),
             {7, 128, 64});
      append(std::string(layer) + "gate_up_proj", *from.find(expert + ".up_proj.weight"),
             {7, 128, 64});
      append(std::string(layer) + "down_proj", *from.find(expert + ".down_proj.weight"),
             {7, 64, 64});
    }
  }
  std::filesystem::create_directory(dir_.path() + "/fused");
  std::filesystem::copy_file(source + "/config.json", dir_.path() + "/fused/config.json");
  std::vector<formats::TensorPlan> list;
  for (const auto& [name, plan] : plans) list.push_back(plan);
  formats::SafetensorsWriter writer(dir_.path() + "/fused/model.safetensors", list, {});
  for (const auto& [name, part] : bytes) writer.append(std::as_bytes(std::span(part)));
  writer.finish();

  EXPECT_EQ(load(dir_.path() + "/fused")->vocab_size(), 320);
  quantize(source, {.format = {4, 32}});
  quantize(dir_.path() + "/fused", {.format = {4, 32}}, "from_fused");
  const auto one = formats::Checkpoint::open(dir_.path() + "/q");
  const auto other = formats::Checkpoint::open(dir_.path() + "/from_fused");
  ASSERT_EQ(one.names(), other.names());
  for (const std::string& name : one.names()) {
    EXPECT_TRUE(one.find(name)->read_all() == other.find(name)->read_all()) << name;
  }
}

TEST_F(QuantizedModel, NothingIsWrittenOverOrLeftBehind) {
  dir_.write("file", "x");
  EXPECT_THAT(refusal(parity_model("qwen3-bf16"), "file"), HasSubstr("exists already"));
  quantize(parity_model("qwen3-bf16"), {});
  EXPECT_THAT(refusal(parity_model("qwen3-bf16")), HasSubstr("exists already"));
  EXPECT_THAT(refusal(dir_.path() + "/q", "q2"), HasSubstr("quantised already"));
  EXPECT_THAT(refusal(dir_.path() + "/none", "q2"), HasSubstr("does not exist"));
  EXPECT_THAT(refusal(parity_model("qwen3-bf16"), "file/below"), HasSubstr("cannot make"));
  EXPECT_THAT(folders(), UnorderedElementsAre("file", "q"));
}

TEST_F(QuantizedModel, AConfigThatDoesNotFitIsRefused) {
  quantize(parity_model("qwen3-bf16"), {.format = {4, 32}});
  replace_in_config("\"bits\":4", "\"bits\":8");
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(".weight"), HasSubstr("8 bits"),
                                    HasSubstr("take the config.json that came with them")));
  replace_in_config("\"bits\":8", "\"bits\":7");
  EXPECT_THAT(load_refusal(),
              AllOf(HasSubstr("config.json"), HasSubstr("7 bits"), HasSubstr("quire quantize"),
                    HasSubstr("tensor model.embed_tokens.scales")));
  replace_in_config("\"bits\":7", "\"bits\":4");
  replace_in_config("\"group_size\":32", "\"group_size\":64");
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(".scales"), HasSubstr("groups of 64"),
                                    HasSubstr("convert the model anew")));
  replace_in_config("\"group_size\":64", "\"group_size\":32,\"" + std::string(kUp) + "\":false");
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(kUp), HasSubstr("is not")));
  replace_in_config("\"quantization\":", "\"other\":");
  replace_in_config("\"quantization_config\":", "\"another\":");
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(".weight"), HasSubstr("no \"quantization\"")));
}

TEST_F(QuantizedModel, AMissingPartIsNamed) {
  for (const std::string part : {".scales", ".biases"}) {
    std::filesystem::remove_all(dir_.path() + "/q");
    quantize(parity_model("qwen3-bf16"), {.format = {4, 32}});
    change_tensors([&](auto& plans, auto& bytes) {
      for (size_t i = 0; i < plans.size(); ++i) {
        if (plans[i].name != kUp + part) continue;
        plans.erase(plans.begin() + i);
        bytes.erase(bytes.begin() + i);
      }
    });
    EXPECT_THAT(load_refusal(),
                AllOf(HasSubstr(kUp + std::string(".weight")), HasSubstr(kUp + part),
                      HasSubstr("missing"), HasSubstr("convert the model anew")));
  }
}

TEST_F(QuantizedModel, MixedDtypesOfScalesAndBiasesAreRefused) {
  quantize(parity_model("qwen3-bf16"), {.format = {4, 32}});
  change_tensors([&](auto& plans, auto&) {
    for (auto& plan : plans)
      if (plan.name == std::string(kUp) + ".biases") plan.dtype = formats::DType::kF16;
  });
  EXPECT_THAT(load_refusal(), AllOf(HasSubstr(kUp), HasSubstr("F16"), HasSubstr("BF16")));
}

}  // namespace
}  // namespace quire::models
