#include "ops/linear/linear_kernel.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "ops/cpu/aligned_bytes.h"
#include "ops/linear/dense/linear_amx.h"
#include "ops/linear/dense/linear_avx512_bf16.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/dense/linear_neon_bf16.h"
#include "ops/linear/dense/planes_amx.h"
#include "ops/linear/dense/quantised_amx.h"
#include "ops/linear/int8/int8_linear.h"
#include "ops/linear/linear_parts.h"
#include "ops/rms_norm/rms_norm_cpu.h"

namespace quire::ops {
namespace {

// Best first.
constexpr const LinearKernel* kKernels[] = {
    &kPartsLinear,
#if defined(__x86_64__)
    &kAmxInt8Linear,     &kAvx512VnniInt8Linear, &kAvx2VnniInt8Linear,
#elif defined(__aarch64__) && defined(__linux__)
    &kNeonDotprodInt8Linear,
#endif
    &kHighwayInt8Linear,
#if defined(__x86_64__)
    &kAmxLinear,         &kAmxQuantisedLinear,   &kAmxPlanesLinear,    &kAvx512Bf16Linear,
#elif defined(__aarch64__) && defined(__linux__)
    &kNeonBf16Linear,
#endif
    &kHighwayLinear,
};

// Enough for allocate_aligned to give huge pages: rows of x are read over and over. Memory that is
// not touched costs nothing.
constexpr int64_t kScratchBytes = 8 << 20;

template <class T>
void gather(const LinearParams& params, const void* x, void* out) {
  for (int64_t j = 0; j < params.k; ++j)
    static_cast<T*>(out)[j] = static_cast<const T*>(x)[params.columns[j]];
}

}  // namespace

LinearParams LinearParams::row_range(int64_t first, int64_t count) const {
  const int64_t x_row = k * float_type_bytes(type);
  const int64_t y_row = y_columns() * float_type_bytes(out_type);
  LinearParams range = *this;
  range.rows = std::min(count, rows - first);
  range.x = static_cast<const std::byte*>(x) + first * x_row;
  range.y = static_cast<std::byte*>(y) + first * y_row;
  if (residual) range.residual = static_cast<const std::byte*>(residual) + first * y_row;
  return range;
}

const LinearKernel* find_linear_kernel(const LinearParams& params) {
  for (const LinearKernel* kernel : kKernels)
    if (kernel->int8_activations == params.int8_activations && kernel->serves(params) &&
        (!params.turned || kernel->reads_turned))
      return kernel;
  return nullptr;
}

const LinearKernel& linear_kernel_for(const LinearParams& params) {
  if (const LinearKernel* kernel = find_linear_kernel(params)) return *kernel;
  throw std::logic_error("no kernel of this instruction set reads a weight packed for another one");
}

bool packs_turned(LinearParams params) {
  params.turned = false;
  return find_linear_kernel(params) == nullptr;
}

void run_linears(ThreadPool& pool, const LinearKernel& kernel,
                 std::span<const LinearParams> products) {
  if (kernel.run_all) return kernel.run_all(pool, products);
  for (const LinearParams& product : products) kernel.run(pool, product);
}

const void* linear_row(const LinearParams& params, int64_t row, void* buffer) {
  thread_local ScratchMemory scratch(kScratchBytes);
  const int64_t bytes = params.k * float_type_bytes(params.type);
  const void* x = static_cast<const std::byte*>(params.x) + row * bytes;
  if (params.norm_weight) {
    void* normed = params.columns ? scratch.reserve(bytes) : buffer;
    rms_norm_cpu({.type = params.type,
                  .width = params.k,
                  .eps = params.norm_eps,
                  .x = x,
                  .weight = params.norm_weight,
                  .y = normed},
                 0, 1);
    x = normed;
  }
  if (!params.columns) return x;
  params.type == FloatType::kF32 ? gather<uint32_t>(params, x, buffer)
                                 : gather<uint16_t>(params, x, buffer);
  return buffer;
}

void* linear_scratch(int64_t bytes) {
  thread_local ScratchMemory scratch(kScratchBytes);
  return scratch.reserve(bytes);
}

void* linear_task_scratch(int64_t bytes) {
  thread_local ScratchMemory scratch(kScratchBytes);
  return scratch.reserve(bytes);
}

}  // namespace quire::ops
