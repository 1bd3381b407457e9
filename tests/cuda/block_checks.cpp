#include "harness.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/linear/affine/affine_cpu.h"
#include "ops/linear/block_float/block_float_cpu.h"
#include "ops/linear/cuda/linear_cuda.h"
#include "ops/linear/gguf/gguf_cpu.h"
#include "ops/linear/pack/cuda_blocks.h"

// linear() and embedding() of matrices in blocks, in every format: the bits of the dense weight of
// the values that the CPU's functions make of the same blocks, for every shape of tiles.
namespace quire::ops::cuda_test {
namespace {

struct Format {
  std::string name;
  QuantisedLayout layout;  // but for its size
  int64_t least_k;         // K is a multiple of it
  int64_t halves = 0;      // float16 at the start of a block's scales
};

Format gguf(const char* name, GgufFormat format, int64_t halves) {
  const GgufLayout& l = gguf_layout(format);
  return {.name = name,
          .layout = {.bits = l.bits, .group_size = l.group, .gguf = format},
          .least_k = gguf_block(format).weights,
          .halves = halves};
}
Format small_floats(const char* name, BlockFloat format) {
  const BlockFloatFormat f = block_float_format(format);
  return {.name = name,
          .layout = {.bits = f.bits, .group_size = f.group_size, .block_float = format},
          .least_k = f.group_size == 128 ? 8 : f.group_size};
}
Format zero_points(int bits, int64_t group, FloatType scales, ZeroPoints zeros) {
  return {.name = "zero points " + std::to_string(bits) + "/" + std::to_string(group) + " " +
                  cuda_test::name(scales) + (zeros == ZeroPoints::kSame ? ", one" : ""),
          .layout = {.bits = bits,
                     .group_size = group,
                     .scale_type = scales,
                     .zeros = zeros,
                     .least_zero = zeros == ZeroPoints::kSame ? 1 << (bits - 1) : 1},
          .least_k = group};
}

std::vector<Format> formats() {
  return {gguf("q4_0", GgufFormat::kQ4_0, 64),
          gguf("q5_0", GgufFormat::kQ5_0, 64),
          gguf("q5_1", GgufFormat::kQ5_1, 128),
          gguf("q8_0", GgufFormat::kQ8_0, 64),
          gguf("q2_k", GgufFormat::kQ2_K, 32),
          gguf("q3_k", GgufFormat::kQ3_K, 16),
          gguf("q4_k", GgufFormat::kQ4_K, 32),
          gguf("q5_k", GgufFormat::kQ5_K, 32),
          gguf("q6_k", GgufFormat::kQ6_K, 16),
          gguf("iq4_nl", GgufFormat::kIq4Nl, 64),
          gguf("iq4_xs", GgufFormat::kIq4Xs, 16),
          small_floats("mxfp4", BlockFloat::kMxfp4),
          small_floats("mxfp8", BlockFloat::kMxfp8),
          small_floats("nvfp4", BlockFloat::kNvfp4),
          small_floats("nvfp4 of a tensor", BlockFloat::kScaledNvfp4),
          small_floats("float8", BlockFloat::kFloat8),
          small_floats("nf4", BlockFloat::kNf4),
          zero_points(4, 32, FloatType::kF16, ZeroPoints::kBytes),
          zero_points(4, 64, FloatType::kBf16, ZeroPoints::kBytes),
          zero_points(4, 128, FloatType::kF16, ZeroPoints::kSame),
          zero_points(8, 32, FloatType::kBf16, ZeroPoints::kSame),
          zero_points(8, 128, FloatType::kF16, ZeroPoints::kBytes)};
}

// Writes scales of a moderate size; what else a block holds may be any bytes.
void set_scales(const Format& f, std::mt19937& random, uint8_t* block) {
  const QuantisedLayout& l = f.layout;
  const auto floats = [&](uint8_t* to, int64_t count, FloatType type, float size) {
    std::uniform_real_distribution<float> value(0.25f * size, size);
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<uint8_t> one =
          encode({random() % 4 == 0 ? -value(random) : value(random)}, type);
      std::memcpy(to + i * float_type_bytes(type), one.data(), one.size());
    }
  };
  if (f.halves > 0) return floats(block, f.halves, FloatType::kF16, 0.01f);
  const int64_t count = l.groups() * 16;
  if (l.zeros != ZeroPoints::kNone) return floats(block, count, l.scale_type, 0.01f);
  if (block_float_format(l.block_float).scale_bytes == 4)
    return floats(block, count, FloatType::kF32, 0.1f);
  for (int64_t i = 0; i < count; ++i)
    block[i] =
        static_cast<uint8_t>(is_nvfp4(l.block_float) ? random() % 0x48 : 108 + random() % 16);
  if (l.block_float != BlockFloat::kScaledNvfp4) return;
  const float of_tensor[2] = {1, 7321.7f};
  std::memcpy(block + kNvfp4TailAt, of_tensor, sizeof(of_tensor));
}

struct Shape {
  int64_t n, k;
  bool gated = false;
};

struct Weights {
  std::string text;
  CudaWeightLayout blocks, dense;
  std::vector<uint8_t> arranged, values;  // of the device; [N, K] of the type
};

Weights make_weights(const Format& f, const Shape& shape, FloatType type) {
  QuantisedLayout layout = f.layout;
  layout.n = shape.n;
  layout.k = shape.k;
  layout.interleaved = shape.gated;
  std::mt19937 random(5);
  std::vector<uint8_t> packed(static_cast<size_t>(layout.bytes()));
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>(random());
  if (layout.bits == 8 && layout.block_float != BlockFloat::kNone)
    for (uint8_t& byte : packed) byte = (byte & 0x7F) == 0x7F ? byte ^ 1 : byte;  // NaN
  for (size_t at = 0; at < packed.size(); at += static_cast<size_t>(layout.block_bytes()))
    set_scales(f, random, packed.data() + at);
  Weights w = {.text = f.name + " " + name(type) + " N " + std::to_string(shape.n) + " K " +
                       std::to_string(shape.k) + (shape.gated ? " gate" : ""),
               .blocks = cuda_block_layout(layout, type),
               .dense = {.n = shape.n, .k = shape.k, .type = type, .interleaved = shape.gated},
               .arranged = {},
               .values = {}};
  const CudaBlockArrangement arrangement(layout, type);
  w.arranged.resize(static_cast<size_t>(w.blocks.bytes()));
  for (int64_t panel = 0; panel < layout.panels(); ++panel)
    arrangement.arrange(packed.data(), panel, w.arranged.data());
  const int64_t row_bytes = shape.k * float_type_bytes(type);
  w.values.resize(static_cast<size_t>(shape.n * row_bytes));
  for (int64_t row = 0; row < shape.n; ++row) {
    const int64_t from = w.blocks.packed_row(row);
    uint8_t* to = w.values.data() + row * row_bytes;
    if (layout.gguf != GgufFormat::kNone)
      gguf_row_cpu(layout, packed.data(), from, type, to);
    else if (layout.block_float != BlockFloat::kNone)
      block_float_row_cpu(layout, packed.data(), from, type, to);
    else
      affine_row_cpu(layout, packed.data(), from, type, to);
  }
  return w;
}

// y of m rows at `x`, by one of the two weights; in tiles as the rows of one expert.
std::vector<uint8_t> run(CudaStream stream, const CudaWeightLayout& layout, const DeviceBytes& w,
                         const void* x, int64_t m, bool in_tiles = false) {
  const int64_t columns = layout.interleaved ? layout.n / 2 : layout.n;
  const DeviceBytes y(static_cast<size_t>(m * columns * float_type_bytes(layout.type)));
  LinearCudaParams p = {.layout = layout, .out_type = layout.type, .rows = m, .x = x, .w = w.get()};
  p.y = y.get();
  std::vector<LinearCudaTile> tiles;
  for (int64_t row = 0; row < m; row += kLinearCudaTile)
    tiles.push_back(
        {0, static_cast<int32_t>(row), static_cast<int32_t>(std::min(kLinearCudaTile, m - row))});
  const DeviceBytes listed(tiles), count(std::vector<int32_t>{static_cast<int32_t>(tiles.size())}),
      experts(std::vector<const void*>{w.get()});
  if (in_tiles) {
    p.tiles = listed.as<LinearCudaTile>();
    p.num_tiles = count.as<int32_t>();
    p.max_tiles = static_cast<int64_t>(tiles.size());
    p.expert_weights = experts.as<const void*>();
  }
  linear_cuda(stream, p);
  return y.read<uint8_t>();
}

void check_rows(CudaStream stream, const Weights& w, const DeviceBytes& blocks,
                const DeviceBytes& dense) {
  const int64_t counts[] = {1, 2, 3, 8, 9, 17, 32, 33, 64, 65, 129, 200, 300};
  // The same rows once more where no 16 bytes of theirs are aligned, for which there are other
  // kernels.
  std::vector<float> rows = random_floats(static_cast<size_t>(300 * w.dense.k), w.dense.type, 3);
  const DeviceBytes x(encode(rows, w.dense.type));
  rows.insert(rows.begin(), 0.0f);
  const DeviceBytes shifted(encode(rows, w.dense.type));
  const void* odd = shifted.as<uint8_t>() + float_type_bytes(w.dense.type);
  for (const int64_t m : counts) {
    if (w.dense.type == FloatType::kF32 && m > 33) break;
    const std::string text = w.text + " M " + std::to_string(m);
    const std::vector<uint8_t> wanted = run(stream, w.dense, dense, x.get(), m);
    compare_bits(text, wanted, run(stream, w.blocks, blocks, x.get(), m));
    compare_bits(text + " shifted", wanted, run(stream, w.blocks, blocks, odd, m));
    if (m <= 33)
      compare_bits(text + " in tiles", wanted, run(stream, w.blocks, blocks, x.get(), m, true));
  }
}

// Against float64, for the first rows.
void check_sums(CudaStream stream, const Weights& w, const DeviceBytes& blocks) {
  const int64_t m = 3, n = w.dense.n, k = w.dense.k;
  const std::vector<float> x = random_floats(static_cast<size_t>(m * k), w.dense.type, 4),
                           values = decode(w.values, w.dense.type);
  const DeviceBytes there(encode(x, w.dense.type));
  const std::vector<float> y = decode(run(stream, w.blocks, blocks, there.get(), m), w.dense.type);
  double worst = 0;
  for (int64_t t = 0; t < m; ++t)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(x[t * k + i]) * values[j * k + i];
        sum += product;
        size += std::abs(product);
      }
      const double error =
          std::abs(y[t * n + j] - sum) / (rounding(w.dense.type) * std::abs(sum) + 1e-6 * size);
      if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    }
  report(worst <= 1, w.text + " against float64", worst, 1);
}

void check_embedding(CudaStream stream, const Weights& w, const DeviceBytes& blocks) {
  const int64_t row_bytes = w.dense.k * float_type_bytes(w.dense.type);
  std::vector<int32_t> ids;
  std::vector<uint8_t> wanted;
  for (int64_t row = 0; row < w.dense.n; row += 7) {
    ids.push_back(static_cast<int32_t>(row));
    wanted.insert(wanted.end(), w.values.begin() + row * row_bytes,
                  w.values.begin() + (row + 1) * row_bytes);
  }
  const DeviceBytes at(ids), y(wanted.size());
  embedding_cuda(stream, {.tokens = static_cast<int64_t>(ids.size()),
                          .ids = at.as<int32_t>(),
                          .layout = w.blocks,
                          .packed = blocks.get(),
                          .k = w.dense.k,
                          .out_type = w.dense.type,
                          .y = y.get()});
  const std::vector<float> got = read_floats(y, w.dense.type), want = decode(wanted, w.dense.type);
  report(got == want, w.text + " embedding", 0, 0);  // 0 equals -0
}

void check(CudaStream stream, const Format& format, const Shape& shape, FloatType type) {
  const Weights w = make_weights(format, shape, type);
  const DeviceBytes blocks(w.arranged), dense(static_cast<size_t>(w.dense.bytes()));
  const DeviceBytes values(w.values);
  clear_packed_cuda(stream, w.dense, dense.get());
  pack_rows_cuda(stream, {.layout = w.dense,
                          .rows = shape.n,
                          .source = values.get(),
                          .source_type = type,
                          .packed = dense.get()});
  check_rows(stream, w, blocks, dense);
  check_embedding(stream, w, blocks);
  if (!shape.gated) check_sums(stream, w, blocks);
}

}  // namespace

void check_blocks(CudaStream stream) {
  for (const Format& f : formats()) {
    if (!is_mine()) continue;
    // A K that neither fills blocks nor stages, where the format has one.
    const int64_t odd = (1000 / f.least_k + 1) * f.least_k;
    check(stream, f, {.n = 200, .k = odd}, FloatType::kBf16);
    if (few) continue;
    check(stream, f, {.n = 4160, .k = 768}, FloatType::kBf16);  // enough panels for all tiles
    check(stream, f, {.n = 640, .k = 2304, .gated = true}, FloatType::kBf16);
    check(stream, f, {.n = 100, .k = odd}, FloatType::kF16);
    check(stream, f, {.n = 48, .k = 512}, FloatType::kF32);
  }
}

void bench_blocks(CudaStream stream) {
  const Shape shape = {.n = 24576, .k = 4096};
  const DeviceBytes x(encode(
      random_floats(static_cast<size_t>(2048 * shape.k), FloatType::kBf16, 1), FloatType::kBf16)),
      y(static_cast<size_t>(2048 * shape.n * 2));
  for (const Format& f : formats()) {
    QuantisedLayout l = f.layout;
    l.n = shape.n;
    l.k = shape.k;
    const CudaWeightLayout layout = cuda_block_layout(l, FloatType::kBf16);
    const int64_t copies = std::max<int64_t>(2, (int64_t{300} << 20) / layout.bytes());
    const DeviceBytes w(static_cast<size_t>(copies * layout.bytes()));
    check_cuda(cudaMemset(w.get(), 0x2C, w.size()), "memset");
    int64_t next = 0;
    for (const int64_t m : {1, 8, 16, 64, 256, 2048}) {
      const double us = time_us(stream, [&](CudaStream s) {
        LinearCudaParams p = {.layout = layout, .out_type = FloatType::kBf16, .rows = m};
        p.x = x.get();
        p.w = w.as<uint8_t>() + next++ % copies * layout.bytes();
        p.y = y.get();
        linear_cuda(s, p);
      });
      std::printf("%-22s %6ld x %5ld M %4ld  %8.1f us  %5.2f TB/s  %6.1f TFLOP/s\n", f.name.c_str(),
                  shape.n, shape.k, m, us, static_cast<double>(layout.bytes()) / us * 1e-6,
                  2.0 * shape.n * shape.k * m / us * 1e-6);
    }
  }
}

}  // namespace quire::ops::cuda_test
