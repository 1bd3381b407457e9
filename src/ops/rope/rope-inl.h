// The rotation of a head; read once per target, by
// *_cpu.cpp only.
#include "ops/cpu/highway.h"

#if defined(QUIRE_OPS_ROPE_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_ROPE_
#undef QUIRE_OPS_ROPE_
#else
#define QUIRE_OPS_ROPE_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// (a, b) becomes (a cos - b sin, b cos + a sin); each is one product and one fused multiply-add.
HWY_INLINE FloatVec turned_a(FloatVec a, FloatVec b, FloatVec cos, FloatVec sin) {
  return hn::NegMulAdd(b, sin, hn::Mul(a, cos));
}
HWY_INLINE FloatVec turned_b(FloatVec a, FloatVec b, FloatVec cos, FloatVec sin) {
  return hn::MulAdd(a, sin, hn::Mul(b, cos));
}

template <class T>
HWY_INLINE void rotate_head(const T* x, const float* cos, int64_t half, T* y) {
  const float* sin = cos + half;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const FloatVec a = load_floats(x + i), b = load_floats(x + half + i);
    const FloatVec c = load_floats(cos + i), s = load_floats(sin + i);
    store_floats(turned_a(a, b, c, s), y + i);
    store_floats(turned_b(a, b, c, s), y + half + i);
  }
  if (const int64_t n = half - i; n > 0) {
    const FloatVec a = load_floats(x + i, n), b = load_floats(x + half + i, n);
    const FloatVec c = load_floats(cos + i, n), s = load_floats(sin + i, n);
    store_floats(turned_a(a, b, c, s), y + i, n);
    store_floats(turned_b(a, b, c, s), y + half + i, n);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
