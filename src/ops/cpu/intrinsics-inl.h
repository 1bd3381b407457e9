#pragma once
// Included by kernel files for one instruction set only.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes _mm512_undefined_epi32() in its own intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
