// Weights that a Metal device uses where their file is mapped.
#include "models/mapped_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/source_dir.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/weights.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/metal/has_metal.h"
#include "ops/metal/metal_device.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/test_util.h"

namespace quire::models {
namespace {

using namespace quire::ops::testing;
using formats::testing::copied_snapshot;
using formats::testing::TempDir;
using ::testing::HasSubstr;

// Metal's side of loading, on the host: it launches no kernels.
class LoadingDevice final : public ops::MetalDevice {
 public:
  std::string description() const override { return "a device that loads"; }
  void encode(mx::Stream, const char* op, const ops::MetalKernel&, const std::vector<mx::array>&,
              std::vector<mx::array>&) override {
    throw std::logic_error(op);
  }
  mx::allocator::Data allocate_array(size_t bytes) override { return memory_.allocate(bytes); }
  std::optional<mx::allocator::Data> wrap_pages(void* pages, size_t bytes,
                                                std::shared_ptr<const void> owner) override {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pages) % 4096, 0u);
    EXPECT_EQ(bytes % 4096, 0u);
    return ops::wrap_data(pages, [owner = std::move(owner)](void*) {});
  }

 private:
  ops::ArrayMemory memory_;
};

// On a Mac its GPU.
std::shared_ptr<ops::Device> loading_device() {
  if (ops::kHasMetal) return ops::make_metal_device();
  return std::make_shared<LoadingDevice>();
}

std::string folder_of(const std::string& name) {
  return source_dir() + "/tests/parity/models/" + name;
}

// A loader on such a device, and where it has its file.
struct Loading {
  explicit Loading(const std::string& folder, mx::Dtype dtype = mx::float32)
      : checkpoint(formats::Checkpoint::open(folder)), weights(context, checkpoint, dtype, {}) {
    weights.map_files([this](const formats::DataFile& file) {
      auto taken = copied_snapshot(file);
      snapshot = *taken;
      return taken;
    });
  }
  ops::Context context = ops::make_context(1, loading_device());
  formats::Checkpoint checkpoint;
  WeightLoader weights;
  std::weak_ptr<const formats::FileSnapshot> snapshot;
};

// The rows of a CPU's matrix of the same tensors.
mx::array expected(const std::string& folder, const std::vector<std::string>& names, int64_t n,
                   int64_t k, mx::Dtype dtype = mx::float32) {
  const ops::Context context = ops::make_context(1);
  const auto checkpoint = formats::Checkpoint::open(folder);
  WeightLoader weights(context, checkpoint, dtype, {});
  return mx::contiguous(ops::unpack_matrix(weights.linear(names, {}, n, k).weight));
}

std::vector<mx::array> arrays_of(const ops::PackedMatrix& matrix) {
  std::vector<mx::array> arrays;
  const std::vector<ops::PackedMatrix> one = {matrix};
  for (const ops::PackedMatrix& part : matrix.parts ? *matrix.parts : one) {
    arrays.push_back(part.mlx->w);
    if (part.mlx->scales) arrays.push_back(*part.mlx->scales);
    if (part.mlx->biases) arrays.push_back(*part.mlx->biases);
  }
  return arrays;
}

bool is_inside(const mx::array& a, std::span<const std::byte> bytes) {
  const auto* begin = a.data<std::byte>();
  return begin >= bytes.data() && begin + a.nbytes() <= bytes.data() + bytes.size();
}

const std::vector<std::string> kQkv = {"model.layers.1.self_attn.k_proj.weight",
                                       "model.layers.1.self_attn.v_proj.weight",
                                       "model.layers.1.self_attn.o_proj.weight"};

// The parts of fused matrices lie apart in the file, and stay there.
TEST(MappedFiles, HoldTheMatrices) {
  struct Case {
    std::string checkpoint;
    size_t arrays_of_each;
    mx::Dtype dtype = mx::float32;
  };
  for (const Case& c : {Case{"qwen3", 1}, Case{"qwen3-bf16", 1, mx::bfloat16},
                        Case{"qwen3-4bit", 3}, Case{"qwen3-mxfp4", 2}}) {
    SCOPED_TRACE(c.checkpoint);
    const std::vector<std::string> names(kQkv.begin(), kQkv.begin() + 2);
    auto loading = std::make_unique<Loading>(folder_of(c.checkpoint), c.dtype);
    const ops::PackedMatrix matrix = loading->weights.linear(names, {}, 128, 64).weight;
    const auto snapshot = loading->snapshot.lock();
    ASSERT_TRUE(snapshot);
    const std::vector<mx::array> arrays = arrays_of(matrix);
    EXPECT_EQ(arrays.size(), 2 * c.arrays_of_each);
    for (const mx::array& array : arrays) EXPECT_TRUE(is_inside(array, snapshot->bytes()));
    EXPECT_EQ(loading->weights.mapped_weights()->bytes, matrix.nbytes());
    EXPECT_EQ(loading->weights.mapped_weights()->reason, "");
    loading.reset();  // the arrays keep the mapping
    EXPECT_TRUE(same_bits(mx::contiguous(ops::unpack_matrix(matrix)),
                          expected(folder_of(c.checkpoint), names, 128, 64, c.dtype)));
  }
}

TEST(MappedFiles, GoWithTheLastArray) {
  std::weak_ptr<const formats::FileSnapshot> snapshot;
  {
    Loading loading(folder_of("qwen3"));
    const auto weight = loading.weights.linear(kQkv[0], "", 64, 64);
    snapshot = loading.snapshot;
    EXPECT_FALSE(snapshot.expired());
  }
  EXPECT_TRUE(snapshot.expired());
}

// Gate and up are two arrays, and linear() takes them apart.
TEST(MappedFiles, HoldGateAndUp) {
  const std::string mlp = "model.layers.0.mlp.";
  Loading loading(folder_of("qwen3"));
  const ops::LinearWeight w = loading.weights.linear(
      {mlp + "gate_proj.weight", mlp + "up_proj.weight"}, {}, 192, 64, /*interleave=*/true);
  EXPECT_EQ(arrays_of(w.weight).size(), 2u);
  EXPECT_EQ(loading.weights.mapped_weights()->bytes, w.weight.nbytes());
  const mx::array x = random_array({5, 64}, mx::float32, 3);
  const mx::array rows = mx::contiguous(mx::matmul(
      x, mx::transpose(expected(folder_of("qwen3"),
                                {mlp + "gate_proj.weight", mlp + "up_proj.weight"}, 192, 64))));
  const auto halves = mx::split(rows, 2, -1);
  const mx::array silu = halves[0] * mx::sigmoid(halves[0]) * halves[1];
  const mx::array y = ops::linear(loading.context, x, w, {.gate = ops::Gate{}});
  EXPECT_TRUE(mx::allclose(y, silu, 1e-5, 1e-6).item<bool>());
}

// The folder with a header that is longer by `spaces`, so that its tensors begin elsewhere.
void copy_moved(const std::string& from, const std::string& to, size_t spaces) {
  std::filesystem::copy(from, to);
  std::ostringstream text;
  text << std::ifstream(from + "/model.safetensors", std::ios::binary).rdbuf();
  std::string bytes = text.str();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.insert(8 + header, spaces, ' ');
  header += spaces;
  std::memcpy(bytes.data(), &header, sizeof header);
  std::ofstream(to + "/model.safetensors", std::ios::binary) << bytes;
}

// What begins inside an element is copied, and nothing else.
TEST(MappedFiles, AreCopiedWhereTheyDoNotLineUp) {
  const std::vector<std::string> names(kQkv.begin(), kQkv.begin() + 2);
  for (const size_t spaces : {1, 2, 4}) {
    SCOPED_TRACE(spaces);
    TempDir dir;
    const std::string folder = dir.path() + "/m";
    copy_moved(folder_of("qwen3-4bit"), folder, spaces);
    Loading loading(folder);
    const ops::PackedMatrix matrix = loading.weights.linear(names, {}, 128, 64).weight;
    const auto snapshot = loading.snapshot.lock();
    size_t in_place = 0;
    for (const mx::array& array : arrays_of(matrix)) {
      const bool lines_up = spaces % array.itemsize() == 0;
      EXPECT_EQ(is_inside(array, snapshot->bytes()), lines_up) << array.dtype();
      if (lines_up) in_place += array.nbytes();
    }
    EXPECT_EQ(loading.weights.mapped_weights()->bytes, in_place);
    EXPECT_TRUE(same_bits(mx::contiguous(ops::unpack_matrix(matrix)),
                          expected(folder_of("qwen3-4bit"), names, 128, 64)));
  }
}

// What MLX is to have in another dtype, or in many pieces, is one copy.
TEST(MappedFiles, AreCopiedWhereMlxNeedsAnotherForm) {
  Loading converted(folder_of("qwen3-bf16"), mx::float32);
  const auto weight = converted.weights.linear(kQkv[0], "", 64, 64).weight;
  EXPECT_EQ(converted.weights.mapped_weights()->bytes, 0u);
  EXPECT_TRUE(
      same_bits(ops::unpack_matrix(weight), expected(folder_of("qwen3-bf16"), {kQkv[0]}, 64, 64)));

  std::vector<WeightRows> rows;
  for (int64_t i = 0; i < 4; ++i)
    rows.push_back({.weight = kQkv[0], .begin = 16 * (3 - i), .count = 16});
  Loading few(folder_of("qwen3"));
  few.weights.linear(rows, 64);
  EXPECT_EQ(few.weights.mapped_weights()->bytes, size_t{64 * 64 * 4});
  rows.push_back({.weight = kQkv[1], .begin = 0, .count = 64});
  Loading many(folder_of("qwen3"));
  EXPECT_EQ(many.weights.linear(rows, 64).weight.parts, nullptr);
  EXPECT_EQ(many.weights.mapped_weights()->bytes, 0u);
}

// A whole model: nearly all of it, the embedding too; or none, with the reason.
TEST(MappedFiles, HoldAModel) {
  const auto load = [](const std::string& name, MappedFiles::Take take) {
    return load_model(ops::make_context(1, loading_device()),
                      formats::Checkpoint::open(folder_of(name)),
                      {.dtype = {}, .progress = {}, .snapshot = std::move(take)});
  };
  for (const char* name : {"qwen3", "qwen3-untied-sharded", "qwen35"}) {
    const auto model = load(name, copied_snapshot);
    EXPECT_GT(model->mapped_weights()->bytes, model->weight_bytes() * 3 / 4) << name;
    EXPECT_LE(model->mapped_weights()->bytes, model->weight_bytes()) << name;
    EXPECT_EQ(model->mapped_weights()->reason, "");
  }
  // Parts in several formats, one matrix of several parts, rows in another order, codes that MLX
  // has not.
  for (const char* name : {"qwen3-4bit", "qwen3-mixed-bf16", "phi3", "qwen3-packed-bf16",
                           "qwen3-gguf-q8", "olmo3-4bit", "qwen35-mlx-4bit"}) {
    const auto model = load(name, copied_snapshot);
    EXPECT_LE(model->mapped_weights()->bytes, model->weight_bytes()) << name;
  }
  const auto read = load("qwen3", [](const formats::DataFile& file) {
    return formats::FileSnapshot::Taken(Err{file.path() + ": no clones today"});
  });
  EXPECT_EQ(read->mapped_weights()->bytes, 0u);
  EXPECT_THAT(read->mapped_weights()->reason,
              HasSubstr("qwen3/model.safetensors: no clones today"));
  EXPECT_FALSE(load_model(ops::make_context(1), formats::Checkpoint::open(folder_of("qwen3")))
                   ->mapped_weights());
}

}  // namespace
}  // namespace quire::models
