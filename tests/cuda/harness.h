#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/half.h"
#include "ops/cuda/cuda_stream.h"

// For programs that run kernels on a GPU and compare with float64 on the host. No test framework:
// they travel alone to a machine that has nothing but a driver.
namespace quire::ops::cuda_test {

inline int failures = 0;
// Some small cases of each part, for tools under which a kernel takes a hundred times as long.
inline bool few = false;
// Of the cases of `linear` and `blocks`, which take long under such tools, every `shards`-th is
// this program's.
inline int shard = 0, shards = 1;
inline bool is_mine() {
  static int next = 0;
  return next++ % shards == shard;
}

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline void report(bool passed, const std::string& what, double error, double bound) {
  if (!passed) ++failures;
  std::printf("%-6s %-72s %.3g (bound %.3g)\n", passed ? "ok" : "FAILED", what.c_str(), error,
              bound);
}

// Memory of the device that frees itself.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : bytes_(bytes) {
    check_cuda(cudaMalloc(&data_, bytes + 16), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0xFF, bytes + 16), "cudaMemset");  // NaN in every float type
  }
  template <class T>
  explicit DeviceBytes(const std::vector<T>& from) : DeviceBytes(from.size() * sizeof(T)) {
    check_cuda(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice), "copy up");
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void* get() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  std::vector<T> read() const {
    check_cuda(cudaDeviceSynchronize(), "kernel");
    std::vector<T> out(bytes_ / sizeof(T));
    check_cuda(cudaMemcpy(out.data(), data_, bytes_, cudaMemcpyDeviceToHost), "copy down");
    return out;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A float vector as bytes of a dtype, and back.
inline std::vector<uint8_t> encode(const std::vector<float>& x, FloatType type) {
  std::vector<uint8_t> out(x.size() * static_cast<size_t>(float_type_bytes(type)));
  for (size_t i = 0; i < x.size(); ++i) {
    if (type == FloatType::kF32) std::memcpy(&out[4 * i], &x[i], 4);
    const uint16_t bits =
        type == FloatType::kBf16 ? from_float<Bf16>(x[i]).bits : from_float<F16>(x[i]).bits;
    if (type != FloatType::kF32) std::memcpy(&out[2 * i], &bits, 2);
  }
  return out;
}
inline std::vector<float> decode(const std::vector<uint8_t>& bytes, FloatType type) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(float_type_bytes(type)));
  for (size_t i = 0; i < out.size(); ++i) {
    if (type == FloatType::kF32) {
      std::memcpy(&out[i], &bytes[4 * i], 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, &bytes[2 * i], 2);
    out[i] = type == FloatType::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
  }
  return out;
}
inline float through(float x, FloatType type) { return round_through(x, type); }
inline std::vector<float> read_floats(const DeviceBytes& from, FloatType type) {
  return decode(from.read<uint8_t>(), type);
}

inline std::vector<float> random_floats(size_t size, FloatType type, uint32_t seed,
                                        float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(size);
  for (float& x : out) x = through(normal(random) * scale, type);
  return out;
}

// Half a unit in the last place, relative.
inline double rounding(FloatType type) {
  return type == FloatType::kBf16 ? 0x1p-8 : (type == FloatType::kF16 ? 0x1p-11 : 0x1p-24);
}
inline const char* name(FloatType type) {
  return type == FloatType::kBf16 ? "bf16" : (type == FloatType::kF16 ? "f16" : "f32");
}
inline constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBf16};

// The largest |got - want| / (|want| + floor), against a bound.
inline void compare(const std::string& what, const std::vector<float>& got,
                    const std::vector<double>& want, double bound, double floor = 1e-2) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (size_t i = 0; i < got.size() && i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / (std::abs(want[i]) + floor);
    if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
  }
  report(worst <= bound, what, worst, bound);
}

inline void compare_bits(const std::string& what, const std::vector<uint8_t>& a,
                         const std::vector<uint8_t>& b) {
  size_t different = a.size() == b.size() ? 0 : a.size() + 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) different += a[i] != b[i];
  report(different == 0, what + " bits", static_cast<double>(different), 0);
}

// Microseconds of one run, the median of several of a captured graph of `count` runs.
double time_us(CudaStream stream, const std::function<void(CudaStream)>& run, int count = 20);

void check_kernel_choice(CudaStream stream);
void check_elementwise(CudaStream stream);
void check_linear(CudaStream stream);
void check_long_rows(CudaStream stream);
void check_blocks(CudaStream stream);
void check_attention(CudaStream stream);
void check_new_keys(CudaStream stream);
void check_state(CudaStream stream);
void check_sample(CudaStream stream);
void check_experts(CudaStream stream);
void check_large_pools(CudaStream stream);
// Kernels with a mistake each, for compute-sanitizer to find: see sanitize.sh.
void plant_overrun(CudaStream stream);
void plant_race(CudaStream stream);
void plant_divergence(CudaStream stream);
void bench_linear(CudaStream stream);
void bench_long_rows(CudaStream stream);
void bench_blocks(CudaStream stream);
void bench_attention(CudaStream stream);
void bench_designs(CudaStream stream);
void bench_step(CudaStream stream);

}  // namespace quire::ops::cuda_test
