#pragma once
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/source_dir.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/context.h"

// Shared by the ops' tests: random arrays by seed, comparison with bounds, one ISA at a time.
namespace quire::ops::testing {

namespace mx = mlx::core;

// Whether this process tests a GPU: with QUIRE_TEST_CUDA=1 (make test-cuda) every context is there,
// and the instruction sets of the CPU are left out. A machine without one fails such a run.
inline bool on_cuda() {
  static const bool on = std::getenv("QUIRE_TEST_CUDA") != nullptr;
  return on;
}

// The same for an Apple GPU, with QUIRE_TEST_METAL=1. tests/metal puts an emulator in its place.
inline bool on_metal() {
  static const bool on = std::getenv("QUIRE_TEST_METAL") != nullptr;
  return on;
}
inline std::shared_ptr<Device> (*make_metal_for_tests)() = make_metal_device;
// Whether an emulator computes, of such a GPU or, with QUIRE_EMULATED=1 (tools/test_arm64.sh), of a
// CPU: large cases are cut there, it takes seconds for milliseconds.
inline bool on_emulated_cpu() {
  static const bool on = std::getenv("QUIRE_EMULATED") != nullptr;
  return on;
}
inline bool on_emulator() {
  return on_emulated_cpu() || (on_metal() && make_metal_for_tests != make_metal_device);
}
inline bool on_gpu() { return on_cuda() || on_metal(); }

// MLX stays on the CPU, but of an Apple GPU, and freed arrays go back to malloc at once so that
// ASan sees a late use.
class MlxEnvironment : public ::testing::Environment {
 public:
  void SetUp() override {
    mx::set_default_device(mx::Device::cpu);
    mx::set_cache_limit(0);
    if (on_cuda()) set_default_device(make_cuda_device());
    if (on_metal()) set_default_device(make_metal_for_tests());
  }
  void TearDown() override { set_default_device(nullptr); }
};
inline ::testing::Environment* const kMlxEnvironment =
    ::testing::AddGlobalTestEnvironment(new MlxEnvironment);

inline std::vector<mx::Dtype> float_dtypes() { return {mx::float32, mx::float16, mx::bfloat16}; }
inline const char* dtype_name(mx::Dtype dtype) {
  return dtype == mx::float32 ? "float32" : dtype == mx::float16 ? "float16" : "bfloat16";
}

// The largest relative error of one rounding to nearest: 2^-p for a p-bit significand.
inline float unit_roundoff(mx::Dtype dtype) {
  return std::ldexp(1.0f, dtype == mx::float32 ? -24 : dtype == mx::float16 ? -11 : -8);
}

// Normal numbers times `scale`, rounded to dtype, already evaluated.
inline mx::array random_array(mx::Shape shape, mx::Dtype dtype, uint32_t seed, float scale = 1.0f) {
  size_t size = 1;
  for (const auto length : shape) size *= static_cast<size_t>(length);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  mx::array result = mx::astype(mx::array(values.data(), std::move(shape), mx::float32), dtype);
  mx::eval(result);
  return result;
}

// Evaluates x and returns its values as float (exact for the three float dtypes).
inline std::vector<float> to_floats(const mx::array& x) {
  mx::array wide = mx::contiguous(mx::astype(x, mx::float32));
  mx::eval(wide);
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

// Evaluates x and returns its bytes.
inline std::vector<uint8_t> to_bytes(const mx::array& x) {
  mx::array flat = mx::contiguous(x);
  mx::eval(flat);
  const auto* bytes = reinterpret_cast<const uint8_t*>(flat.data<char>());
  return {bytes, bytes + flat.nbytes()};
}

// |actual - expected| <= abs + rel * |expected| for each element.
struct Bound {
  float abs = 0.0f;
  float rel = 0.0f;
};

inline ::testing::AssertionResult near(const mx::array& actual, const mx::array& expected,
                                       Bound bound) {
  if (actual.shape() != expected.shape()) return ::testing::AssertionFailure() << "shapes differ";
  const auto a = to_floats(actual), e = to_floats(expected);
  double worst = 0;
  size_t where = 0, failures = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    const double allowed = bound.abs + static_cast<double>(bound.rel) * std::abs(e[i]);
    const double ratio = std::abs(static_cast<double>(a[i]) - e[i]) / allowed;
    if (!(ratio <= 1)) ++failures;
    if (!(ratio <= worst)) worst = ratio, where = i;
  }
  if (failures == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << failures << " of " << a.size() << " outside the bound; worst at " << where << ": "
         << a[where] << ", expected " << e[where] << ", " << worst << " times the bound";
}

inline ::testing::AssertionResult same_bits(const mx::array& a, const mx::array& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << "shapes or dtypes differ";
  const auto x = to_bytes(a), y = to_bytes(b);
  const size_t width = a.itemsize();
  size_t different = 0, first = 0;
  for (size_t i = x.size(); i > 0; i -= width) {
    if (std::memcmp(&x[i - width], &y[i - width], width) == 0) continue;
    ++different;
    first = i / width - 1;
  }
  if (different == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << different << " of " << x.size() / width << " differ, first at " << first;
}

// Cases recorded from torch (tests/parity): arrays "<case>.<name>", numbers in the metadata.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path)
      : file_(mx::load_safetensors(source_dir() + "/" + path)) {}
  std::vector<std::string> cases() const {
    std::vector<std::string> names;
    std::istringstream list(file_.second.at("cases"));
    for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    return names;
  }
  bool has(const std::string& name, const std::string& part) const {
    return file_.first.contains(name + "." + part);
  }
  mx::array array(const std::string& name, const std::string& part) const {
    return file_.first.at(name + "." + part);
  }
  const std::string& text(const std::string& name, const std::string& part) const {
    return file_.second.at(name + "." + part);
  }
  float number(const std::string& name, const std::string& part) const {
    return std::stof(text(name, part));
  }

 private:
  mx::SafetensorsLoad file_;
};

// Forces one instruction set while it lives. "cuda" and "metal" are where such a process is anyway.
class ForcedIsa {
 public:
  explicit ForcedIsa(std::string_view name) {
    if (name != "cuda" && name != "metal") force_cpu_isa(name);
  }
  ~ForcedIsa() { force_cpu_isa(""); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

// What this machine can run; those of its architecture that it cannot are printed. Not in the words
// of googletest for a skipped test: ctest takes a test that prints them for skipped, even if it
// fails.
inline std::vector<std::string> isas_to_test(bool with_vnni = false) {
  if (on_cuda()) return {"cuda"};
  if (on_metal()) return {"metal"};
  printf("left out: cuda, it has a run of its own\n");
  auto available = with_vnni ? available_cpu_isas() : available_float_isas();
#if defined(__x86_64__)
  std::vector<std::string> known = {"amx", "avx512_bf16", "avx512", "avx2", "portable"};
  if (with_vnni) known.insert(known.end(), {"avx512_vnni", "avx2_vnni"});
#else
  std::vector<std::string> known = {"neon_bf16", "neon"};
  if (with_vnni) known.emplace_back("neon_dotprod");
#endif
  for (const auto& name : known)
    if (std::find(available.begin(), available.end(), name) == available.end())
      printf("left out: instruction set %s, not on this machine\n", name.c_str());
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The vector kernels are one text: with one width less, and without the slowest, it is read just
  // as well, in half the time.
  const std::string best = available.front();
  for (const char* name : {"avx512", "portable"}) {
    if (name == best || std::erase(available, name) == 0) continue;
    printf("left out: instruction set %s, other builds test it\n", name);
  }
#endif
  return available;
}

// Whether the CPU's kernels run here on this one, those that isas_to_test leaves out among them.
inline bool has_cpu_isa(std::string_view name) {
  if (on_gpu()) return false;
  const auto available = available_float_isas();
  return std::find(available.begin(), available.end(), name) != available.end();
}

// Where products are computed on an NVIDIA GPU: on tensor cores but for float32. Which of their
// kernels takes how many rows, tests/cuda says (kernel_choice_checks.cpp).
inline const char* cuda_products(mx::Dtype dtype) {
  return dtype == mx::float32 ? "cuda_plain" : "cuda_mma|cuda_sm90|cuda_mma_sm90";
}

// That this kernel (by default the device's usual one: the Highway kernel of the ISA in force; on
// Metal what is composed of MLX's operations counts, too), or one of several between bars, and not
// the reference, has run `times` times in this context.
inline ::testing::AssertionResult kernel_ran(const Context& context, const char* op, int64_t times,
                                             const char* kernel = nullptr) {
  const bool is_usual = kernel == nullptr;
  if (is_usual) kernel = context.device->kernel_name();
  int64_t count = 0;
  std::istringstream kernels{std::string(kernel)};
  for (std::string one; std::getline(kernels, one, '|');) count += context.kernels->count(op, one);
  if (is_usual && context.device->metal()) count += context.kernels->count(op, "mlx");
  if (count == times) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure() << op << "/" << kernel << " ran " << count
                                               << " times, expected " << times << "; ran:";
  for (const auto& [name, n] : context.kernels->snapshot()) failure << " " << name << "=" << n;
  return failure;
}

}  // namespace quire::ops::testing
