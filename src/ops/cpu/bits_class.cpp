#include "ops/cpu/bits_class.h"

#include "ops/cpu/cpu_isa.h"

namespace quire::ops {

const char* cpu_bits_class() {
  switch (cpu_isa()) {
    case CpuIsa::kPortable:
      return "portable";
    case CpuIsa::kNeon:
    case CpuIsa::kNeonDotprod:
    case CpuIsa::kNeonBf16:
      return use_neon_bf16() ? "bfdot" : "neon";
    default:
      return use_avx512_bf16() ? "vdpbf16ps" : "fma";
  }
}

}  // namespace quire::ops
