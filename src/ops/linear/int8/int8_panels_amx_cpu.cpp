#if defined(__x86_64__)
#include "ops/linear/int8/int8_panels_cpu.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8/int8_panels_amx_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/int8/int8_panels-inl.h"

namespace quire::ops {

void int8_panels_amx(const Int8RowBatch& batch, int64_t panel, int64_t panels, float* acc) {
  static_assert(HWY_NAMESPACE::int8_panels::kHasDot && HWY_NAMESPACE::int8_panels::kHasTiles);
  HWY_NAMESPACE::int8_panels::run(batch, panel, panels, acc);
}

}  // namespace quire::ops
#endif
