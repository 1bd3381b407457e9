#pragma once
#include <cstdint>

#include "ops/linear/gguf/gguf_format.h"

namespace quire::ops {

// The k values of one row as a GGUF file stores it (any alignment), value by value, in float32:
// out [k]. The formulas, as llama.cpp's ggml-quants.c and the `gguf` package have them; d, m and
// dmin are float16, and nibble j of qs is the low half of byte j for j < 16, else the high one:
//
//   q4_0    d, qs[16]                      d * (nibble - 8)
//   q4_1    d, m, qs[16]                   d * nibble + m
//   q5_0    d, u32 qh, qs[16]              d * (nibble + 16 * bit of qh - 16)
//   q5_1    d, m, u32 qh, qs[16]           d * (nibble + 16 * bit of qh) + m
//   q8_0    d, i8 q[32]                    d * q
//   q2_k    sc[16], qs[64], d, dmin        groups of 16: d * (sc & 15) * q - dmin * (sc >> 4)
//   q3_k    hm[32], qs[64], sc[12], d      groups of 16: d * (s - 32) * (q - 4), 6-bit s
//   q4_k    d, dmin, sc[12], qs[128]       groups of 32: d * s * q - dmin * m, 6-bit s and m
//   q5_k    d, dmin, sc[12], qh[32], qs[128]        likewise
//   q6_k    ql[128], qh[64], i8 sc[16], d  groups of 16: d * sc * (q - 32)
//   iq4_nl  d, qs[16]                      d * table[nibble]
//   iq4_xs  d, u16 sh, sl[4], qs[128]      groups of 32: d * (s - 32) * table[nibble], 6-bit s
//   mxfp4   e, qs[16]                      2^(e - 127) * e2m1 value of the nibble
//   nvfp4   e[4], qs[4][8]                 groups of 16, nibble j as above but for 8 bytes: e4m3
//                                          value of e, which has no sign and is 0 of 0x7F, * e2m1
//
// Every product of a scale and a code is exact in float32, so it does not matter how the formula is
// bracketed: one rounding is left where a minimum is subtracted.
void gguf_reference(GgufFormat format, const void* row, int64_t k, float* out);

}  // namespace quire::ops
