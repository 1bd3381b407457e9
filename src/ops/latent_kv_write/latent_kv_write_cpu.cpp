#include "ops/latent_kv_write/latent_kv_write_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/latent_kv_write/latent_kv_write_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because their code is per target too.
#include "ops/layout/kv_codes-inl.h"
#include "ops/rms_norm/rms_norm-inl.h"
#include "ops/rope/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
HWY_INLINE void make_row(const LatentKvWriteParams& p, int64_t t, T* row) {
  const T* x = static_cast<const T*>(p.x) + t * p.x_row;
  scale_row(x, inverse_rms(x, p.latent, p.eps), p.weight, row, p.latent);
  rotate_head(x + p.latent, p.cos_sin + p.positions[t] * p.rotary_dim, p.rotary_dim / 2,
              row + p.latent);
}

template <class T, class Code>
HWY_INLINE void write_codes(const LatentKvWriteParams& p, int64_t t) {
  T row[kMaxLatentRow];
  make_row(p, t, row);
  const int64_t width = p.latent + p.rotary_dim, slot = p.slots[t];
  p.scale[slot] = quantise_row(row, width, static_cast<Code*>(p.rows) + slot * width);
}

template <class T>
void write_tokens(const LatentKvWriteParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    if (p.slots[t] < 0) continue;
    if (p.kv_type == KvType::kInt8) {
      write_codes<T, I8>(p, t);
    } else if (p.kv_type == KvType::kFp8) {
      write_codes<T, F8>(p, t);
    } else {
      make_row(p, t, static_cast<T*>(p.rows) + p.slots[t] * (p.latent + p.rotary_dim));
    }
  }
}

void LatentKvWrite(const LatentKvWriteParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return write_tokens<float>(params, begin, end);
    case FloatType::kF16:
      return write_tokens<F16>(params, begin, end);
    case FloatType::kBf16:
      return write_tokens<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(LatentKvWrite);
void latent_kv_write_cpu(const LatentKvWriteParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LatentKvWrite)(params, begin, end);
}
}  // namespace quire::ops
#endif
