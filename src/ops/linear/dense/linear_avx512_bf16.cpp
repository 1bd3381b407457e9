#include "ops/linear/dense/linear_avx512_bf16.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu/cpu_isa.h"

namespace quire::ops {
namespace {

// Panels that kernels like to have.
int64_t panels_together(std::span<const LinearParams> products, int64_t threads) {
  const LinearParams& first = products.front();
  if (first.bits == 0) return 2;
  const bool one_row = std::all_of(products.begin(), products.end(),
                                   [](const LinearParams& p) { return p.rows == 1; });
  const auto tasks = static_cast<int64_t>(products.size()) * first.panels() / kBf16RowPanels;
  // More threads than that want smaller tasks.
  return first.block_float != BlockFloat::kNone && one_row && tasks >= 2 * threads ? kBf16RowPanels
                                                                                   : 4;
}

constexpr Bf16Unit kUnit = {.pack_rows = linear_avx512_bf16_pack_rows,
                            .block = linear_avx512_bf16_block,
                            .scratch_bytes = bf16_scratch_bytes,
                            .panels_together = panels_together};

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_bf16_linears(pool, products, kUnit);
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows > 0) run_all(pool, {&p, 1});
}

const char* name() { return "cpu_avx512_bf16"; }
// Affine codes are turned, and those of GGUF's formats of 4 bits.
bool wants_turned(const LinearParams& p) {
  return p.gguf != GgufFormat::kNone ? p.bits == 4 : p.has_integers();
}
bool serves(const LinearParams& p) {
  return use_avx512_bf16() && p.type == FloatType::kBf16 && p.turned == wants_turned(p);
}

}  // namespace

const LinearKernel kAvx512Bf16Linear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all, .reads_turned = true};

}  // namespace quire::ops
#endif
