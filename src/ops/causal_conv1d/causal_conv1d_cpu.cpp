#include "ops/causal_conv1d/causal_conv1d_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/causal_conv1d/causal_conv1d_cpu.cpp"
#include "ops/highway.h"
// After it, because its code is per target too.
#include "ops/silu_mul/silu_mul-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kMaxRows = 8;  // kMaxConvKernel

// One token. rows[j] is the input `kernel - 1 - j` tokens ago; null stands for zeros.
template <class T>
HWY_INLINE void convolve_row(const T* const* rows, const float* weight, int64_t stride,
                             int64_t kernel, T* y, int64_t channels) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    FloatVec sum = hn::Zero(kFloats);
    for (int64_t j = 0; j < kernel; ++j)
      if (rows[j] != nullptr)
        sum = hn::MulAdd(load_floats(weight + j * stride + c), load_floats(rows[j] + c), sum);
    store_floats(silu_mul(sum, one), y + c);
  }
  const int64_t n = channels - c;
  if (n == 0) return;
  FloatVec sum = hn::Zero(kFloats);
  for (int64_t j = 0; j < kernel; ++j)
    if (rows[j] != nullptr)
      sum = hn::MulAdd(load_floats(weight + j * stride + c, n), load_floats(rows[j] + c, n), sum);
  store_floats(silu_mul(sum, one), y + c, n);
}

template <class T>
void convolve(const CausalConv1dParams& p, const CausalConv1dTask& task) {
  const int64_t history = p.kernel - 1;
  const T* x = static_cast<const T*>(p.x) + task.first_channel;
  const float* weight = p.weight + task.first_channel;
  T* y = static_cast<T*>(p.y) + task.first_channel;
  T* state = static_cast<T*>(p.state) + task.slot * history * p.channels + task.first_channel;
  const int64_t tokens = task.end - task.begin;
  // The input of `i` tokens after the first; before it, the slot's.
  const auto input = [&](int64_t i) -> const T* {
    if (i >= 0) return x + (task.begin + i) * p.row;
    return task.is_fresh ? nullptr : state + (history + i) * p.channels;
  };
  for (int64_t i = 0; i < tokens; ++i) {
    const T* rows[kMaxRows];
    for (int64_t j = 0; j < p.kernel; ++j) rows[j] = input(i - history + j);
    convolve_row(rows, weight, p.channels, p.kernel, y + (task.begin + i) * p.channels,
                 task.num_channels);
  }
  // Oldest first: a row of the slot moves down before it is overwritten.
  const size_t bytes = static_cast<size_t>(task.num_channels) * sizeof(T);
  for (int64_t j = 0; j < history; ++j) {
    const T* from = input(tokens - history + j);
    T* to = state + j * p.channels;
    if (from != nullptr) {
      std::memcpy(to, from, bytes);
    } else {
      std::memset(static_cast<void*>(to), 0, bytes);
    }
  }
}

void CausalConv1d(const CausalConv1dParams& params, const CausalConv1dTask& task) {
  switch (params.type) {
    case FloatType::kF32:
      return convolve<float>(params, task);
    case FloatType::kF16:
      return convolve<F16>(params, task);
    case FloatType::kBf16:
      return convolve<Bf16>(params, task);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(CausalConv1d);
void causal_conv1d_cpu(const CausalConv1dParams& params, const CausalConv1dTask& task) {
  HWY_DYNAMIC_DISPATCH(CausalConv1d)(params, task);
}
}  // namespace quire::ops
#endif
