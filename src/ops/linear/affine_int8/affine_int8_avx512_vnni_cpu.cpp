#if defined(__x86_64__)
#include "ops/linear/affine_int8/affine_int8_cpu.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/affine_int8/affine_int8_avx512_vnni_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/affine_int8/affine_int8_panels-inl.h"

namespace quire::ops {

void int8_panels_avx512_vnni(const Int8RowBatch& batch, int64_t panel, int64_t panels, float* acc) {
  static_assert(HWY_NAMESPACE::int8_panels::kHasDot);
  HWY_NAMESPACE::int8_panels::run(batch, panel, panels, acc);
}

}  // namespace quire::ops
#endif
