#pragma once

namespace quire::ops {

// What the CPU kernels in force have in common with all others that compute the same bits:
// "fma" (AMX, AVX-512 and AVX2, and AVX-512-BF16 under portable bits), "vdpbf16ps", "neon" (and
// BF16 of 64-bit ARM under portable bits), "bfdot" or "portable". See force_cpu_isa and
// set_portable_bits.
const char* cpu_bits_class();

}  // namespace quire::ops
