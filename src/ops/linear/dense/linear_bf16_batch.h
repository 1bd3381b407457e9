#pragma once
#include <cstdint>
#include <span>

#include "ops/linear/linear_kernel.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Products of bfloat16 by instructions that multiply and add pairs of neighbouring k: what their
// kernels have in common.
struct Bf16RowBatch {
  LinearParams params;
  uint16_t* packed_x = nullptr;  // [rows][bf16_row_stride], padding zero
};
struct Bf16Block {
  int64_t row_begin, row_end, panel_begin, panel_end;  // panels even, except at the matrix's end
};

// Affine weights come in whole blocks, padded with zeros.
__attribute__((always_inline)) inline int64_t bf16_row_stride(const LinearParams& p) {
  return p.bits == 0 ? linear_chunks(p.k) * 32
                     : quantised_layout(p).blocks() * QuantisedLayout::kBlock;
}

struct Bf16Unit {
  // Packs rows [begin, end) of x; `row_buffer` holds K elements.
  void (*pack_rows)(const Bf16RowBatch& batch, int64_t begin, int64_t end, void* row_buffer);
  void (*block)(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch);
  int64_t (*scratch_bytes)(int64_t rows);
  // Panels that the kernels like to have.
  int64_t (*panels_together)(std::span<const LinearParams> products, int64_t threads);
};
// Of one format and size.
void run_bf16_linears(ThreadPool& pool, std::span<const LinearParams> products,
                      const Bf16Unit& unit);

}  // namespace quire::ops
