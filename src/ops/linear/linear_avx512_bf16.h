#pragma once
#include <cstdint>

#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// bfloat16 weights with `vdpbf16ps`: twice the arithmetic of AVX-512 on CPUs that have it and no
// AMX (Zen 4 and 5). Bits of its own: one chain over all k of an output, odd k before even.
extern const LinearKernel kAvx512Bf16Linear;

struct Bf16Slab {
  LinearParams params;
  uint16_t* packed_x = nullptr;  // [rows][chunks * 32], padding zero
  int64_t first_panel = 0;       // the one at params.w
};
struct Bf16Block {
  int64_t row_begin, row_end, panel_begin, panel_end;  // panels even, except at the matrix's end
};
// Floats of scratch for so many rows.
constexpr int64_t bf16_scratch_floats(int64_t rows) { return rows * 32; }

// Packs rows [begin, end) of x; `row_buffer` holds K elements.
void linear_avx512_bf16_pack_rows(const Bf16Slab& slab, int64_t begin, int64_t end,
                                  void* row_buffer);
void linear_avx512_bf16_block(const Bf16Slab& slab, const Bf16Block& block, float* scratch);

}  // namespace quire::ops
