#include "ops/linear/int8/int8_panels_cpu.h"

#include <cstring>

#include "ops/linear/int8/int8_rows_cpu.h"

#define QUIRE_FOUR_LANES
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8/int8_panels_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/linear/int8/int8_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

void Panels(const Int8RowBatch& s, int64_t panel, int64_t panels, float* acc) {
  int8_panels::run(s, panel, panels, acc);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Panels);
void int8_panels_cpu(const Int8RowBatch& batch, int64_t panel, int64_t panels, float* acc) {
  HWY_DYNAMIC_DISPATCH(Panels)(batch, panel, panels, acc);
}

namespace {
// The code that means 0, of weights without biases; 0 if they have biases.
int zero_code(const LinearParams& p) {
  const GgufFormat format = int8_format(p);
  return format == GgufFormat::kNone ? 0 : gguf_zero_byte(format);
}
}  // namespace

void int8_pack_row_cpu(const Int8RowBatch& s, int64_t row, void* scratch) {
  const LinearParams& p = s.params;
  const int64_t groups = p.k / p.group_size;
  const int zero = zero_code(p);
  int8_t* to = s.x + row * p.k;
  if (row >= p.rows) {  // tiles multiply codes as they are: `start` is the sum's memory
    std::memset(to, 0, static_cast<size_t>(p.k));
    std::memset(s.scale + row * groups, 0, static_cast<size_t>(groups) * sizeof(float));
    std::memset(s.sum + row * groups, 0, static_cast<size_t>(groups) * sizeof(float));
    return;
  }
  const bool in_order = p.bits != 4 || int8_format(p) != GgufFormat::kNone;
  int8_t* q = in_order ? to : static_cast<int8_t*>(scratch);
  quantize_row_int8_cpu(p.type, linear_row(p, row, static_cast<int8_t*>(scratch) + p.k), p.k,
                        p.group_size,
                        {.q = q,
                         .scale = s.scale + row * groups,
                         .sum = zero ? nullptr : s.sum + row * groups,
                         .start = zero || s.lower ? s.start + row * groups : nullptr,
                         .zero = zero - s.lower,
                         .per_token = p.per_token});
  if (in_order) return;
  for (int64_t k = 0; k < p.k; k += 8, q += 8)
    for (const int at : kAffineNibbleOrder) *to++ = q[at];
}
}  // namespace quire::ops
#endif
