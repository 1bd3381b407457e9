#if defined(__aarch64__) && defined(__linux__)
#include "ops/linear/int8/int8_panels_cpu.h"

#define QUIRE_NEON_DOTPROD
#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8/int8_panels_neon_dotprod_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/int8/int8_panels-inl.h"

namespace quire::ops {

void int8_panels_neon_dotprod(const Int8RowBatch& batch, int64_t panel, int64_t panels,
                              float* acc) {
  static_assert(HWY_NAMESPACE::int8_panels::kSignedDot);
  HWY_NAMESPACE::int8_panels::run(batch, panel, panels, acc);
}

}  // namespace quire::ops
#endif
