#include "ops/linear/dense/linear_neon_bf16.h"

#if defined(__aarch64__) && defined(__linux__)
#include "ops/cpu/cpu_isa.h"

namespace quire::ops {
namespace {

int64_t panels_together(std::span<const LinearParams>, int64_t) { return 2; }

constexpr Bf16Unit kUnit = {.pack_rows = linear_neon_bf16_pack_rows,
                            .block = linear_neon_bf16_block,
                            .scratch_bytes = neon_bf16_scratch_bytes,
                            .panels_together = panels_together};

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_bf16_linears(pool, products, kUnit);
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows > 0) run_all(pool, {&p, 1});
}

const char* name() { return "cpu_neon_bf16"; }
bool serves(const LinearParams& p) {
  return use_neon_bf16() && p.type == FloatType::kBf16 && p.turned == p.has_integers();
}

}  // namespace

const LinearKernel kNeonBf16Linear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all, .reads_turned = true};

}  // namespace quire::ops
#endif
