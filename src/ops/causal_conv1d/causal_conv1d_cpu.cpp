#include "ops/causal_conv1d/causal_conv1d_cpu.h"

#include <hwy/cache_control.h>

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/causal_conv1d/causal_conv1d_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/gated_activation/silu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kMaxRows = 8;  // kMaxConvKernel

// One token. rows[j] is the input `kernel - 1 - j` tokens ago; null stands for zeros.
template <class T>
HWY_INLINE void convolve_row(const T* const* rows, const float* weight, int64_t stride,
                             int64_t kernel, T* y, int64_t channels) {
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    FloatVec sum = hn::Zero(kFloats);
    for (int64_t j = 0; j < kernel; ++j)
      if (rows[j] != nullptr)
        sum = hn::MulAdd(load_floats(weight + j * stride + c), load_floats(rows[j] + c), sum);
    store_floats(silu(sum), y + c);
  }
  const int64_t n = channels - c;
  if (n == 0) return;
  FloatVec sum = hn::Zero(kFloats);
  for (int64_t j = 0; j < kernel; ++j)
    if (rows[j] != nullptr)
      sum = hn::MulAdd(load_floats(weight + j * stride + c, n), load_floats(rows[j] + c, n), sum);
  store_floats(silu(sum), y + c, n);
}

// A task's rows and channels from `channel` on.
template <class T>
struct Strip {
  const CausalConv1dParams& p;
  const CausalConv1dTask& task;
  int64_t channel;

  // Input of row t; before the sequence's first one, the slot's. Null stands for zeros.
  const T* input(int64_t t) const {
    if (t >= task.begin) return static_cast<const T*>(p.x) + t * p.row + channel;
    const int64_t row = task.slot * (p.kernel - 1) + (p.kernel - 1) + t - task.begin;
    return task.is_fresh ? nullptr : static_cast<const T*>(p.state) + row * p.channels + channel;
  }
  const float* weight() const { return p.weight + channel; }
  T* output(int64_t t) const { return static_cast<T*>(p.y) + t * p.channels + channel; }
};

// kVecs vectors of channels.
template <int64_t kVecs>
struct Row {
  FloatVec v[kVecs];

  HWY_INLINE Row() {}  // the implied one is not compiled for this target
  template <class T>
  HWY_INLINE void load(const T* from) {
    for (int64_t i = 0; i < kVecs; ++i)
      v[i] = from ? load_floats(from + i * kLanes) : hn::Zero(kFloats);
  }
};

// One token of four taps: y from the inputs three, two and one tokens ago and x, which takes the
// place of the oldest. The same sums as convolve_row's: a product with a zero adds none.
template <class T, int64_t kVecs>
HWY_INLINE void convolve_four(const Row<kVecs> (&taps)[4], Row<kVecs>& oldest,
                              const Row<kVecs>& older, const Row<kVecs>& old, const T* x, T* y) {
  for (int64_t i = 0; i < kVecs; ++i) {
    const FloatVec now = load_floats(x + i * kLanes);
    FloatVec sum = hn::MulAdd(taps[0].v[i], oldest.v[i], hn::Zero(kFloats));
    sum = hn::MulAdd(taps[1].v[i], older.v[i], sum);
    sum = hn::MulAdd(taps[2].v[i], old.v[i], sum);
    sum = hn::MulAdd(taps[3].v[i], now, sum);
    oldest.v[i] = now;
    store_floats(silu(sum), y + i * kLanes);
  }
}

// All tokens of a task, inputs in registers from one to the next.
template <class T, int64_t kVecs>
HWY_INLINE void convolve_strip(const Strip<T>& strip) {
  constexpr int64_t kAhead = 12;  // tokens whose rows memory is asked for: each is another page
  const int64_t last = strip.task.last;
  Row<kVecs> taps[4], a, b, c;
  for (int64_t j = 0; j < 4; ++j) taps[j].load(strip.weight() + j * strip.p.channels);
  int64_t t = strip.task.first;
  a.load(strip.input(t - 3));
  b.load(strip.input(t - 2));
  c.load(strip.input(t - 1));
  const auto step = [&](int64_t row, Row<kVecs>& oldest, const Row<kVecs>& older,
                        const Row<kVecs>& old) {
    const T* x = strip.input(row);
    if (row + kAhead < strip.task.end) {
      const char* ahead = reinterpret_cast<const char*>(x + kAhead * strip.p.row);
      for (size_t at = 0; at < kVecs * kLanes * sizeof(T); at += 64) hwy::Prefetch(ahead + at);
    }
    convolve_four<T, kVecs>(taps, oldest, older, old, x, strip.output(row));
  };
  for (; t + 3 <= last; t += 3) {
    step(t, a, b, c);
    step(t + 1, b, c, a);
    step(t + 2, c, a, b);
  }
  if (t < last) step(t, a, b, c);
  if (t + 1 < last) step(t + 1, b, c, a);
}

// Channels [first, first + num_channels) of the task.
template <class T>
void convolve_rows(const Strip<T>& strip, int64_t num_channels) {
  const CausalConv1dParams& p = strip.p;
  for (int64_t t = strip.task.first; t < strip.task.last; ++t) {
    const T* rows[kMaxRows];
    for (int64_t j = 0; j < p.kernel; ++j) rows[j] = strip.input(t - p.kernel + 1 + j);
    convolve_row(rows, strip.weight(), p.channels, p.kernel, strip.output(t), num_channels);
  }
}

// The inputs of the sequence's last tokens to its slot, oldest first: a row of the slot moves down
// before it is overwritten.
template <class T>
void keep_history(const CausalConv1dParams& p, const CausalConv1dTask& task) {
  const int64_t history = p.kernel - 1;
  const Strip<T> strip{p, task, task.first_channel};
  T* state = static_cast<T*>(p.state) + task.slot * history * p.channels + task.first_channel;
  const size_t bytes = static_cast<size_t>(task.num_channels) * sizeof(T);
  for (int64_t j = 0; j < history; ++j) {
    const int64_t t = task.end - history + j;
    T* to = state + j * p.channels;
    if (task.is_fresh && t < task.begin) {
      std::memset(static_cast<void*>(to), 0, bytes);  // nothing came before
    } else {
      std::memcpy(to, strip.input(t), bytes);
    }
  }
}

template <class T>
void convolve(const CausalConv1dParams& p, const CausalConv1dTask& task) {
  constexpr int64_t kVecs = kLanes == 16 ? 4 : 2;  // what the registers hold
  int64_t c = task.first_channel;
  const int64_t end = c + task.num_channels;
  if (p.kernel == 4)
    for (; c + kVecs * kLanes <= end; c += kVecs * kLanes)
      convolve_strip<T, kVecs>(Strip<T>{p, task, c});
  if (c < end) convolve_rows(Strip<T>{p, task, c}, end - c);
  if (task.first == task.begin) keep_history<T>(p, task);
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
