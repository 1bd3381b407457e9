// linear() of dense weights in their true sizes: a row has the same bits alone, by each kernel that
// could take it, and among others. And how long each of these kernels takes for few rows, which is
// what linear_route() goes by.
#include <algorithm>
#include <memory>

#include "harness.h"
#include "ops/cuda/launch.cuh"
#include "ops/linear/cuda/linear_cuda.h"
#include "ops/linear/cuda/linear_kernels.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace quire::ops::cuda_test {
namespace {

constexpr auto kBf16 = FloatType::kBf16, kF32 = FloatType::kF32;
constexpr int64_t kMostRows = 64;

struct Shape {
  const char* name;
  int64_t n, k;
  bool gated = false, norm = false, residual = false;
  FloatType out_type = kBf16;

  int64_t columns() const { return gated ? n / 2 : n; }
};

constexpr Shape kShapes[] = {
    {.name = "qkv 8B", .n = 6144, .k = 4096, .norm = true},
    {.name = "output 8B", .n = 4096, .k = 4096, .residual = true},
    {.name = "gate and up 8B", .n = 24576, .k = 4096, .gated = true, .norm = true},
    {.name = "down 8B", .n = 4096, .k = 12288, .residual = true},
    {.name = "head 8B", .n = 151936, .k = 4096, .norm = true, .out_type = kF32},
    {.name = "qkv 0.6B", .n = 4096, .k = 1024, .norm = true},
    {.name = "output 0.6B", .n = 1024, .k = 2048, .residual = true},
    {.name = "gate and up 0.6B", .n = 6144, .k = 1024, .gated = true, .norm = true},
    {.name = "down 0.6B", .n = 1024, .k = 3072, .residual = true},
    {.name = "head 0.6B", .n = 151936, .k = 1024, .norm = true, .out_type = kF32},
    {.name = "qkv 1.7B", .n = 4096, .k = 2048, .norm = true},
    {.name = "gate and up 1.7B", .n = 12288, .k = 2048, .gated = true, .norm = true},
    {.name = "down 70B", .n = 8192, .k = 28672, .residual = true},
};

// Element i of a weight: bfloat16 of either sign in [2^-8, 2^-4), so that sums are rounded.
__host__ __device__ inline uint16_t weight_bits(uint64_t i) {
  auto h = static_cast<uint32_t>(i) * 0x9E3779B1u ^ static_cast<uint32_t>(i >> 32);
  h = (h ^ (h >> 15)) * 0x85EBCA77u;
  h = (h ^ (h >> 13)) * 0xC2B2AE3Du;
  h ^= h >> 16;
  return static_cast<uint16_t>((h & 0x807Fu) | (119u + (h >> 8 & 3u)) << 7);
}

__global__ void fill_weight(uint16_t* to, uint64_t count) {
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x)
    to[i] = weight_bits(i);
}

enum class Way { kRoute, kFewRows, kWarpgroups, kManyRows };
constexpr const char* kWays[] = {"", "few rows", "warpgroup products", "many rows"};

class LongRow {
 public:
  // `copies` of the weight, one after another.
  LongRow(CudaStream stream, const Shape& shape, int64_t copies = 1)
      : stream_(stream),
        shape_(shape),
        layout_{.n = shape.n, .k = shape.k, .type = kBf16, .interleaved = shape.gated},
        copies_(copies),
        x_values_(random_floats(static_cast<size_t>(kMostRows * shape.k), kBf16, 1)),
        norm_values_(random_floats(static_cast<size_t>(shape.k), kF32, 2)),
        residual_values_(
            random_floats(static_cast<size_t>(kMostRows * shape.columns()), shape.out_type, 3)),
        w_(static_cast<size_t>(copies * layout_.bytes())),
        x_(encode(x_values_, kBf16)),
        normed_(x_.size()),
        scratch_(x_.size()),
        norm_(norm_values_),
        residual_(encode(residual_values_, shape.out_type)),
        y_(static_cast<size_t>(kMostRows * shape.columns() * float_type_bytes(shape.out_type))) {
    const DeviceBytes source(static_cast<size_t>(shape.n * shape.k * 2));
    fill_weight<<<1024, 256>>>(source.as<uint16_t>(), static_cast<uint64_t>(shape.n * shape.k));
    check_cuda(cudaDeviceSynchronize(), "weights");
    for (int64_t i = 0; i < copies; ++i) {
      char* packed = w_.as<char>() + i * layout_.bytes();
      clear_packed_cuda(stream, layout_, packed);
      pack_rows_cuda(stream, {.layout = layout_,
                              .rows = shape.n,
                              .source = source.get(),
                              .source_type = kBf16,
                              .packed = packed});
    }
    check_cuda(cudaDeviceSynchronize(), "packing");
  }

  // Rows [first, first + rows). `norms_before`: by a kernel of its own.
  void launch(Way way, int64_t first, int64_t rows, bool norms_before = false) {
    const int64_t y_row = shape_.columns() * float_type_bytes(shape_.out_type);
    LinearCudaParams p = {
        .layout = layout_,
        .out_type = shape_.out_type,
        .rows = rows,
        .x = x_.as<char>() + first * shape_.k * 2,
        .w = w_.as<char>() + next_++ % copies_ * layout_.bytes(),
    };
    p.y = y_.as<char>() + first * y_row;
    p.y_pitch = shape_.columns();
    p.scratch = scratch_.get();
    if (shape_.residual) p.residual = residual_.as<char>() + first * y_row;
    if (shape_.norm && norms_before) {
      rms_norm_cuda(stream_,
                    {.type = kBf16,
                     .width = shape_.k,
                     .eps = 1e-6f,
                     .x = p.x,
                     .weight = norm_.as<float>(),
                     .y = normed_.get()},
                    rows);
      p.x = normed_.get();
    } else if (shape_.norm) {
      p.norm_weight = norm_.as<float>();
      p.norm_eps = 1e-6f;
    }
    switch (way) {
      case Way::kRoute:
        linear_cuda(stream_, p);
        return;
      case Way::kFewRows:
        return run_few_rows<DeviceBf16>(stream_, p);
      case Way::kWarpgroups:
        return run_wgmma(stream_, p);
      case Way::kManyRows:
        return run_many_rows(stream_, p);
    }
  }
  std::vector<uint8_t> run(Way way, int64_t first, int64_t rows, bool norms_before = false) {
    check_cuda(cudaMemset(y_.get(), 0xFF, y_.size()), "memset");
    launch(way, first, rows, norms_before);
    const std::vector<uint8_t> all = y_.read<uint8_t>();
    const int64_t y_row = shape_.columns() * float_type_bytes(shape_.out_type);
    return {all.begin() + first * y_row, all.begin() + (first + rows) * y_row};
  }

  void check() {
    const std::string what = std::string("long row, ") + shape_.name + " " +
                             std::to_string(shape_.n) + " x " + std::to_string(shape_.k);
    const std::vector<uint8_t> all = run(Way::kRoute, 0, kMostRows);
    compare_with_float64(what, all);
    const auto same = [&](Way way, int64_t first, int64_t rows, bool norms_before) {
      const auto size = static_cast<int64_t>(all.size()) / kMostRows;
      const std::vector<uint8_t> want(all.begin() + first * size,
                                      all.begin() + (first + rows) * size);
      compare_bits(what + ", rows " + std::to_string(first) + "+" + std::to_string(rows) + " " +
                       kWays[static_cast<int>(way)] + (norms_before ? ", normed before" : ""),
                   want, run(way, first, rows, norms_before));
    };
    for (const int64_t first : {0, 1, 31, 63}) same(Way::kRoute, first, 1, false);
    for (const int64_t rows : {2, 3, 4, 8, 9, 16, 17, 32, 33, 63})
      same(Way::kRoute, 0, rows, false);
    for (const int64_t rows : {1, 2, 8, 16, 64})
      for (const Way way : {Way::kFewRows, Way::kWarpgroups, Way::kManyRows})
        same(way, 0, rows, true);
    // Its blocks norm what they read.
    if (shape_.norm)
      for (const int64_t rows : {1, 2, 8}) same(Way::kFewRows, 0, rows, false);
  }

  void print_times(int64_t rows) {
    const auto time = [&](Way way, bool norms_before) {
      return time_us(stream_, [&](CudaStream) { launch(way, 0, rows, norms_before); });
    };
    const double bytes = static_cast<double>(layout_.bytes());
    const double few = time(Way::kFewRows, true), groups = time(Way::kWarpgroups, true),
                 route = time(Way::kRoute, false);
    std::printf("%-18s %6ld x %5ld M %ld  few rows %6.1f us (%.2f TB/s), warpgroups %6.1f (%.2f)",
                shape_.name, shape_.n, shape_.k, rows, few, bytes / few * 1e-6, groups,
                bytes / groups * 1e-6);
    if (shape_.norm) std::printf(", few rows that norm %6.1f", time(Way::kFewRows, false));
    std::printf(", as routed %6.1f\n", route);
    std::fflush(stdout);
  }

 private:
  std::vector<double> row_of_x(int64_t t) const {
    std::vector<double> x(x_values_.begin() + t * shape_.k, x_values_.begin() + (t + 1) * shape_.k);
    if (!shape_.norm) return x;
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(shape_.k) + 1e-6);
    for (int64_t i = 0; i < shape_.k; ++i)
      x[i] = through(static_cast<float>(x[i] * scale * norm_values_[i]), kBf16);
    return x;
  }

  // Some columns of some rows.
  void compare_with_float64(const std::string& what, const std::vector<uint8_t>& bytes) const {
    const std::vector<float> got = decode(bytes, shape_.out_type);
    double worst = 0;
    for (const int64_t t : {int64_t{0}, int64_t{1}, kMostRows - 1}) {
      const std::vector<double> x = row_of_x(t);
      for (int64_t i = 0; i < 48; ++i) {
        const int64_t column = i * (shape_.columns() - 1) / 47;
        double magnitude = 0;
        const auto sum = [&](int64_t row) {
          double total = 0;
          for (int64_t k = 0; k < shape_.k; ++k) {
            const uint32_t bits = uint32_t{weight_bits(static_cast<uint64_t>(row * shape_.k + k))}
                                  << 16;
            float w;
            std::memcpy(&w, &bits, 4);
            total += x[k] * w;
            magnitude += std::abs(x[k] * w);
          }
          return total;
        };
        double want = sum(column), size = std::abs(want);
        if (shape_.gated) {
          const double up = sum(shape_.n / 2 + column);
          want = want / (1 + std::exp(-want)) * up;
          size += std::abs(up) + std::abs(want);
        }
        if (shape_.residual) want += residual_values_[t * shape_.columns() + column];
        const double error = std::abs(got[t * shape_.columns() + column] - want) /
                             (std::abs(want) + size + 0.05 * magnitude);
        if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
      }
    }
    const double bound = (shape_.gated ? 4 : 2) * rounding(shape_.out_type) + 2e-6 +
                         (shape_.norm ? 2 * rounding(kBf16) : 0);
    report(worst <= bound, what, worst, bound);
  }

  CudaStream stream_;
  Shape shape_;
  CudaWeightLayout layout_;
  int64_t copies_, next_ = 0;
  std::vector<float> x_values_, norm_values_, residual_values_;
  DeviceBytes w_, x_, normed_, scratch_, norm_, residual_, y_;
};

}  // namespace

void check_long_rows(CudaStream stream) {
  for (const Shape& shape : kShapes)
    if (!few || shape.n * shape.k <= int64_t{4096} * 1024) LongRow(stream, shape).check();
}

void bench_long_rows(CudaStream stream) {
  for (const Shape& shape : kShapes) {
    // As many copies as leave the L2 cache no chance.
    LongRow row(stream, shape,
                std::max<int64_t>(2, (int64_t{300} << 20) / (shape.n * shape.k * 2)));
    for (const int64_t rows : {1, 2, 4, 8}) row.print_times(rows);
  }
}

}  // namespace quire::ops::cuda_test
