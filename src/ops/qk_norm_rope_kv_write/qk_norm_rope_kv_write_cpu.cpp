#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because their code is per target too.
#include "ops/layout/kv_codes-inl.h"
#include "ops/rms_norm/rms_norm-inl.h"
#include "ops/rope/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
HWY_INLINE void turn_head(const QkNormRopeKvWriteParams& p, const float* cos, const T* x, T* y) {
  rotate_head(x, cos, p.rotary_dim / 2, y);
  for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) y[i] = x[i];
}

template <class T>
HWY_INLINE void norm_head(const QkNormRopeKvWriteParams& p, const float* weight, const T* x, T* y) {
  scale_row(x, inverse_rms(x, p.head_dim, p.eps), weight, y, p.head_dim);
}

// Normalises (if there is a weight) and rotates n heads, or the other way round.
template <class T>
HWY_INLINE void turn_heads(const QkNormRopeKvWriteParams& p, const float* weight, const float* cos,
                           const T* x, T* y, int64_t n) {
  T between[kMaxRotatedDim];
  for (int64_t h = 0; h < n; ++h, x += p.head_dim, y += p.head_dim) {
    if (weight == nullptr) {
      turn_head(p, cos, x, y);
    } else if (p.norms_follow) {
      turn_head(p, cos, x, between);
      norm_head(p, weight, between, y);
    } else {
      norm_head(p, weight, x, between);
      turn_head(p, cos, between, y);
    }
  }
}

// One token's keys and values become codes.
template <class T, class Code>
HWY_INLINE void write_codes(const QkNormRopeKvWriteParams& p, const float* cos, const T* k,
                            const T* v, int64_t slot) {
  T key[kMaxRotatedDim];
  for (int64_t h = 0; h < p.kv_heads; ++h, k += p.head_dim, v += p.head_dim) {
    const int64_t row = slot * p.kv_heads + h, at = row * p.head_dim;
    turn_heads(p, p.k_norm, cos, k, key, 1);
    p.k_scale[row] = quantise_row(key, p.head_dim, static_cast<Code*>(p.k) + at);
    p.v_scale[row] = quantise_row(v, p.head_dim, static_cast<Code*>(p.v) + at);
  }
}

template <class T>
void turn_tokens(const QkNormRopeKvWriteParams& p, int64_t begin, int64_t end) {
  const int64_t q_width = p.heads * p.head_dim, kv_width = p.kv_heads * p.head_dim;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = static_cast<const T*>(p.qkv) + t * p.row;
    const float* cos = p.cos_sin + p.positions[t] * p.rotary_dim;
    turn_heads(p, p.q_norm, cos, x, static_cast<T*>(p.q) + t * q_width, p.heads);
    if (p.slots[t] < 0) continue;
    const T *k = x + q_width, *v = k + kv_width;
    if (p.kv_type == KvType::kInt8) {
      write_codes<T, I8>(p, cos, k, v, p.slots[t]);
      continue;
    }
    if (p.kv_type == KvType::kFp8) {
      write_codes<T, F8>(p, cos, k, v, p.slots[t]);
      continue;
    }
    const int64_t at = p.slots[t] * kv_width;
    turn_heads(p, p.k_norm, cos, k, static_cast<T*>(p.k) + at, p.kv_heads);
    std::memcpy(static_cast<T*>(p.v) + at, v, kv_width * sizeof(T));
  }
}

void QkNormRopeKvWrite(const QkNormRopeKvWriteParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return turn_tokens<float>(params, begin, end);
    case FloatType::kF16:
      return turn_tokens<F16>(params, begin, end);
    case FloatType::kBf16:
      return turn_tokens<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(QkNormRopeKvWrite);
void qk_norm_rope_kv_write_cpu(const QkNormRopeKvWriteParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(QkNormRopeKvWrite)(params, begin, end);
}
}  // namespace quire::ops
#endif
