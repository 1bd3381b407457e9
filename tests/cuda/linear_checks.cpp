#include "harness.h"
#include "ops/linear/cuda/linear_cuda.h"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace quire::ops::cuda_test {
namespace {

struct Case {
  FloatType type;
  int bits = 0, group = 0;
  FloatType scale_type = FloatType::kBf16, out_type = FloatType::kBf16;
  int64_t n = 0, k = 0, m = 0;
  bool bias = false, residual = false, gated = false, norm = false;

  std::string text() const {
    std::string s = std::string("linear ") + name(type) + " -> " + name(out_type);
    if (bits)
      s += " affine " + std::to_string(bits) + "/" + std::to_string(group) + " " + name(scale_type);
    s += " N " + std::to_string(n) + " K " + std::to_string(k) + " M " + std::to_string(m);
    return s + (bias ? " bias" : "") + (residual ? " residual" : "") + (gated ? " gate" : "") +
           (norm ? " norm" : "");
  }
};

// A weight on the device, and its values as they count.
struct Weight {
  CudaWeightLayout layout;
  std::vector<float> values;
  std::vector<uint8_t> packed;
};

Weight make_weight(CudaStream stream, const Case& c, uint32_t seed) {
  Weight w;
  w.layout = {.n = c.n,
              .k = c.k,
              .type = c.type,
              .interleaved = c.gated,
              .bits = c.bits,
              .group_size = c.group,
              .scale_type = c.scale_type};
  const DeviceBytes packed(static_cast<size_t>(w.layout.bytes()));
  PackRowsCudaParams pack = {.layout = w.layout, .packed = packed.get()};
  clear_packed_cuda(stream, w.layout, packed.get());
  if (c.bits == 0) {
    w.values = random_floats(static_cast<size_t>(c.n * c.k), c.type, seed, 0.05f);
    const DeviceBytes source(encode(w.values, c.type));
    pack.source = source.get();
    pack.source_type = c.type;
    const int64_t first = c.n / 3;  // in two parts
    pack.rows = first;
    pack_rows_cuda(stream, pack);
    pack.first_row = first;
    pack.rows = c.n - first;
    pack.source = source.as<uint8_t>() + first * c.k * float_type_bytes(c.type);
    pack_rows_cuda(stream, pack);
    w.packed = packed.read<uint8_t>();
    return w;
  }
  std::mt19937 random(seed);
  const auto groups = static_cast<size_t>(c.n * (c.k / c.group));
  std::vector<float> scales = random_floats(groups, c.scale_type, seed + 1, 0.01f);
  std::vector<float> biases = random_floats(groups, c.scale_type, seed + 2, 0.05f);
  std::vector<uint8_t> integers(static_cast<size_t>(c.n * c.k * c.bits / 8));
  for (uint8_t& byte : integers) byte = static_cast<uint8_t>(random());
  w.values.resize(static_cast<size_t>(c.n * c.k));
  for (int64_t i = 0; i < c.n * c.k; ++i) {
    const int q = c.bits == 8 ? integers[i] : (integers[i / 2] >> (i % 2 * 4)) & 15;
    const int64_t g = i / c.k * (c.k / c.group) + i % c.k / c.group;
    w.values[i] = through(scales[g] * static_cast<float>(q) + biases[g], c.type);
  }
  const DeviceBytes source(integers), s(encode(scales, c.scale_type)),
      b(encode(biases, c.scale_type));
  pack.rows = c.n;
  pack.source = source.get();
  pack.source_bits = c.bits;
  pack.source_group = c.group;
  pack.source_scale_type = c.scale_type;
  pack.scales = s.get();
  pack.biases = b.get();
  pack_rows_cuda(stream, pack);
  w.packed = packed.read<uint8_t>();
  return w;
}

struct Inputs {
  std::vector<float> x, bias, residual, norm;
};

// y by the kernel, for the first m rows of the inputs.
std::vector<uint8_t> run(CudaStream stream, const Case& c, const Weight& w, const Inputs& in,
                         int64_t m) {
  const int64_t columns = c.gated ? c.n / 2 : c.n;
  const DeviceBytes packed(w.packed), bias(in.bias), norm(in.norm);
  const DeviceBytes x(encode({in.x.begin(), in.x.begin() + m * c.k}, c.type));
  const DeviceBytes residual(
      encode({in.residual.begin(), in.residual.begin() + m * columns}, c.out_type));
  const DeviceBytes y(static_cast<size_t>(m * columns * float_type_bytes(c.out_type)));
  LinearCudaParams p = {
      .layout = w.layout, .out_type = c.out_type, .rows = m, .x = x.get(), .w = packed.get()};
  p.y = y.get();
  if (c.bias) p.bias = bias.as<float>();
  if (c.residual) p.residual = residual.get();
  if (c.norm) {
    p.norm_weight = norm.as<float>();
    p.norm_eps = 1e-6f;
  }
  const DeviceBytes scratch(linear_cuda_scratch_bytes(p));
  p.scratch = scratch.get();
  linear_cuda(stream, p);
  return y.read<uint8_t>();
}

std::vector<double> oracle(const Case& c, const Weight& w, const Inputs& in,
                           std::vector<double>& size) {
  std::vector<double> y;
  for (int64_t t = 0; t < c.m; ++t) {
    std::vector<double> x(in.x.begin() + t * c.k, in.x.begin() + (t + 1) * c.k);
    if (c.norm) {
      double sum = 0;
      for (const double v : x) sum += v * v;
      const double scale = 1 / std::sqrt(sum / c.k + 1e-6);
      for (int64_t i = 0; i < c.k; ++i)
        x[i] = through(static_cast<float>(x[i] * scale * in.norm[i]), c.type);
    }
    std::vector<double> row(c.n), magnitude(c.n);
    for (int64_t n = 0; n < c.n; ++n) {
      for (int64_t i = 0; i < c.k; ++i) {
        row[n] += x[i] * w.values[n * c.k + i];
        magnitude[n] += std::abs(x[i] * w.values[n * c.k + i]);
      }
      if (c.bias) row[n] += in.bias[n];
    }
    const int64_t columns = c.gated ? c.n / 2 : c.n;
    for (int64_t n = 0; n < columns; ++n) {
      double v = row[n];
      if (c.gated) v = v / (1 + std::exp(-v)) * row[c.n / 2 + n];
      if (c.residual) v += in.residual[t * columns + n];
      y.push_back(v);
      size.push_back(std::abs(v) + std::abs(row[n]) + 0.05 * magnitude[n] +
                     (c.gated ? std::abs(row[c.n / 2 + n]) : 0));
    }
  }
  return y;
}

void check(CudaStream stream, const Case& c, uint32_t seed) {
  const Weight w = make_weight(stream, c, seed);
  const int64_t most = std::max<int64_t>(c.m, 200);
  Inputs in = {.x = random_floats(static_cast<size_t>(most * c.k), c.type, seed + 3),
               .bias = random_floats(static_cast<size_t>(c.n), FloatType::kF32, seed + 4),
               .residual = random_floats(static_cast<size_t>(most * c.n), c.out_type, seed + 5),
               .norm = random_floats(static_cast<size_t>(c.k), FloatType::kF32, seed + 6)};
  const std::vector<uint8_t> y = run(stream, c, w, in, c.m);
  const std::vector<float> got = decode(y, c.out_type);
  std::vector<double> size;
  const std::vector<double> want = oracle(c, w, in, size);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / (size[i] + 1e-3);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  // A normed x is rounded to its dtype: one that falls the other way counts too.
  const double bound =
      (c.gated ? 4 : 2) * rounding(c.out_type) + 2e-6 + (c.norm ? 2 * rounding(c.type) : 0);
  report(worst <= bound, c.text(), worst, bound);
  // The same rows in any batch.
  for (const int64_t m :
       {int64_t{1}, int64_t{3}, int64_t{9}, int64_t{30}, int64_t{64}, int64_t{65}, int64_t{200}}) {
    std::vector<uint8_t> other = run(stream, c, w, in, m);
    const size_t both = std::min(other.size(), y.size());
    compare_bits(c.text() + " as of " + std::to_string(m), {y.begin(), y.begin() + both},
                 {other.begin(), other.begin() + both});
  }
}

}  // namespace

namespace {

constexpr auto bf16 = FloatType::kBf16, f16 = FloatType::kF16, f32 = FloatType::kF32;
const Case kCases[] = {
    {.type = bf16, .n = 64, .k = 256, .m = 4},
    {.type = bf16, .n = 96, .k = 1024, .m = 70, .bias = true},
    {.type = bf16, .n = 4096, .k = 1024, .m = 5, .norm = true},
    {.type = bf16, .n = 200, .k = 2560, .m = 9, .residual = true},
    {.type = bf16, .n = 256, .k = 12288, .m = 3},
    {.type = bf16, .n = 320, .k = 896, .m = 33, .gated = true},
    {.type = bf16, .n = 6144, .k = 2048, .m = 2, .gated = true, .norm = true},
    {.type = bf16, .n = 37, .k = 83, .m = 5, .bias = true, .residual = true},
    {.type = bf16, .out_type = f32, .n = 1000, .k = 512, .m = 3},
    {.type = f16, .out_type = f16, .n = 130, .k = 640, .m = 20, .bias = true, .gated = true},
    {.type = f16, .out_type = f32, .n = 48, .k = 72, .m = 100},
    {.type = f32, .out_type = f32, .n = 50, .k = 300, .m = 7, .bias = true, .residual = true},
    {.type = f32, .out_type = f32, .n = 64, .k = 96, .m = 40, .gated = true, .norm = true},
    {.type = bf16, .bits = 4, .group = 64, .scale_type = bf16, .n = 256, .k = 1024, .m = 4},
    {.type = bf16, .bits = 4, .group = 32, .scale_type = f16, .n = 100, .k = 352, .m = 70},
    {.type = bf16,
     .bits = 4,
     .group = 128,
     .scale_type = f32,
     .n = 64,
     .k = 2560,
     .m = 12,
     .gated = true},
    {.type = bf16,
     .bits = 8,
     .group = 64,
     .scale_type = bf16,
     .n = 80,
     .k = 4096,
     .m = 30,
     .residual = true},
    {.type = bf16, .bits = 8, .group = 32, .scale_type = f32, .n = 64, .k = 160, .m = 66},
    {.type = f16,
     .bits = 4,
     .group = 64,
     .scale_type = f16,
     .out_type = f16,
     .n = 96,
     .k = 768,
     .m = 17},
    {.type = f16,
     .bits = 8,
     .group = 128,
     .scale_type = f16,
     .out_type = f16,
     .n = 96,
     .k = 768,
     .m = 90,
     .gated = true},
    {.type = f32,
     .bits = 4,
     .group = 32,
     .scale_type = f32,
     .out_type = f32,
     .n = 40,
     .k = 128,
     .m = 3},
    {.type = f32,
     .bits = 8,
     .group = 64,
     .scale_type = bf16,
     .out_type = f32,
     .n = 40,
     .k = 128,
     .m = 3},
};

}  // namespace

void check_linear(CudaStream stream) {
  uint32_t seed = 100;
  for (const Case& c : kCases) {
    seed += 10;
    if ((!few || (c.n <= 256 && c.k <= 1024)) && is_mine()) check(stream, c, seed);
  }
}

namespace {

void bench_one(CudaStream stream, const char* what, const Case& c) {
  CudaWeightLayout layout = {.n = c.n,
                             .k = c.k,
                             .type = c.type,
                             .interleaved = c.gated,
                             .bits = c.bits,
                             .group_size = c.group,
                             .scale_type = c.scale_type};
  // As many copies as leave the L2 cache no chance.
  const int64_t copies = std::max<int64_t>(2, (int64_t{300} << 20) / layout.bytes());
  const DeviceBytes w(static_cast<size_t>(copies * layout.bytes()));
  check_cuda(cudaMemset(w.get(), 0x3C, w.size()), "memset");
  const DeviceBytes x(encode(random_floats(static_cast<size_t>(c.m * c.k), c.type, 1), c.type));
  const DeviceBytes y(static_cast<size_t>(c.m * c.n * 4));
  const DeviceBytes norm(random_floats(static_cast<size_t>(c.k), FloatType::kF32, 2));
  int64_t next = 0;
  const DeviceBytes scratch(static_cast<size_t>(c.m * c.k * 2));
  const double us = time_us(stream, [&](CudaStream s) {
    LinearCudaParams p = {.layout = layout, .out_type = c.out_type, .rows = c.m, .x = x.get()};
    p.w = w.as<uint8_t>() + next++ % copies * layout.bytes();
    p.y = y.get();
    p.scratch = scratch.get();
    if (c.norm) {
      p.norm_weight = norm.as<float>();
      p.norm_eps = 1e-6f;
    }
    linear_cuda(s, p);
  });
  std::printf("%-22s %6ld x %5ld M %4ld  %8.1f us  %5.2f TB/s  %6.1f TFLOP/s\n", what, c.n, c.k,
              c.m, us, static_cast<double>(layout.bytes()) / us * 1e-6,
              2.0 * c.n * c.k * c.m / us * 1e-6);
}

}  // namespace

void bench_linear(CudaStream stream) {
  const int64_t shapes[][2] = {{4096, 1024},  {1024, 2048},  {6144, 1024},
                               {1024, 3072},  {6144, 4096},  {4096, 4096},
                               {24576, 4096}, {4096, 12288}, {151936, 1024}};
  for (const auto& [n, k] : shapes)
    for (const int64_t m : {1, 8, 16, 32, 64, 128, 256, 2048})
      if (n < 100000 || m <= 64)
        bench_one(stream, "bf16",
                  {.type = bf16, .n = n, .k = k, .m = m, .gated = n == 6144 || n == 24576});
  for (const auto& [n, k] : shapes)
    for (const int64_t m : {1, 8})
      bench_one(stream, "normed, bf16", {.type = bf16, .n = n, .k = k, .m = m, .norm = true});
  for (const int bits : {4, 8})
    for (const int64_t m : {1, 8, 16, 64, 256, 2048})
      bench_one(stream, bits == 4 ? "affine 4 bits" : "affine 8 bits",
                {.type = bf16, .bits = bits, .group = 64, .n = 24576, .k = 4096, .m = m});
  bench_blocks(stream);
}

}  // namespace quire::ops::cuda_test
