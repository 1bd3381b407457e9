#pragma once
// The instruction sets that CPU kernels are built for: AVX-512, AVX2 or NEON, and the static
// baseline. Each further target costs build time and a row in the test grids, and brings no speed.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE_256 | HWY_SVE2 | HWY_SVE2_128)
#include <hwy/targets.h>
