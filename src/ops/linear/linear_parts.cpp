#include "ops/linear/linear_parts.h"

#include <cstring>

#include "base/check.h"
#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/gated_activation/gated_activation_cpu.h"

namespace quire::ops {
namespace {

// Of the stream thread, beside the scratch that the parts' kernels use.
std::byte* parts_scratch(int64_t bytes) {
  thread_local ScratchMemory memory;
  return memory.reserve(bytes);
}

// A part's call: its weight, and what the whole call says.
LinearParams part_params(const LinearParams& part, const LinearParams& whole, int64_t first) {
  LinearParams p = part;
  p.type = whole.type;
  p.out_type = whole.out_type;
  p.rows = whole.rows;
  p.x = whole.x;
  p.bias = whole.bias ? whole.bias + first : nullptr;
  p.norm_weight = whole.norm_weight;
  p.norm_eps = whole.norm_eps;
  return p;
}

void run_part(ThreadPool& pool, const LinearParams& p) { linear_kernel_for(p).run(pool, p); }

// Copies some columns of all rows; strides and the width are in bytes.
void copy_columns(ThreadPool& pool, int64_t rows, int64_t width, const void* from,
                  int64_t from_stride, void* to, int64_t to_stride) {
  parallel_blocks(pool, rows, rows_per_block(width / 2), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * to_stride,
                  static_cast<const std::byte*>(from) + row * from_stride,
                  static_cast<size_t>(width));
  });
}

// One row's columns lie where the whole row wants them; those of more are put there.
void run_stack(ThreadPool& pool, const LinearParams& whole, const LinearParams* parts) {
  const int64_t size = float_type_bytes(whole.out_type), stride = whole.n * size;
  int64_t first = 0;
  for (int64_t i = 0; i < whole.num_parts; first += parts[i].n, ++i) {
    LinearParams p = part_params(parts[i], whole, first);
    std::byte* y = static_cast<std::byte*>(whole.y) + first * size;
    const auto* residual = static_cast<const std::byte*>(whole.residual);
    if (residual) residual += first * size;
    if (whole.rows == 1) {
      p.residual = residual;
      p.y = y;
      run_part(pool, p);
      continue;
    }
    const int64_t width = p.n * size, bytes = (p.rows * width + 63) / 64 * 64;
    std::byte* scratch = parts_scratch(2 * bytes);
    if (residual) {
      copy_columns(pool, p.rows, width, residual, stride, scratch + bytes, width);
      p.residual = scratch + bytes;
    }
    p.y = scratch;
    run_part(pool, p);
    copy_columns(pool, p.rows, width, scratch, width, y, stride);
  }
}

// Gates, then ups, then what the gate makes of the rounded ones.
void run_gated(ThreadPool& pool, const LinearParams& whole, const LinearParams* parts) {
  QUIRE_CHECK(whole.num_parts == 2) << "a gate of " << whole.num_parts << " parts";
  const int64_t width = whole.n / 2;
  const int64_t bytes = (whole.rows * width * float_type_bytes(whole.out_type) + 63) / 64 * 64;
  std::byte* scratch = parts_scratch(2 * bytes);
  for (int64_t i = 0; i < 2; ++i) {
    LinearParams p = part_params(parts[i], whole, i * width);
    p.y = scratch + i * bytes;
    run_part(pool, p);
  }
  const GatedActivationParams gate = {.type = whole.out_type,
                                      .gate = whole.gate,
                                      .ups = GatedActivationParams::Up::kApart,
                                      .width = width,
                                      .gate_up = scratch,
                                      .up = scratch + bytes,
                                      .up_row = width,
                                      .y = whole.y};
  parallel_blocks(pool, whole.rows, rows_per_block(width),
                  [&](int64_t begin, int64_t end) { gated_activation_cpu(gate, begin, end); });
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows == 0) return;
  const auto* parts = static_cast<const LinearParams*>(p.w);
  p.gated ? run_gated(pool, p, parts) : run_stack(pool, p, parts);
}

const char* name() { return "cpu_parts"; }
bool serves(const LinearParams& p) { return p.num_parts > 0; }

}  // namespace

const LinearKernel kPartsLinear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
