#include "ops/roofline/roofline_x86.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace quire::ops {

#if defined(__x86_64__) && defined(__linux__)
namespace {

// Feature bits of CPUID leaf 7 (Intel SDM volume 2A) and state bits of XCR0.
struct CpuFeatures {
  bool zmm = false, tiles = false;  // the operating system saves these registers
  bool vnni = false, bf16 = false, amx_bf16 = false, amx_int8 = false;
};

CpuFeatures read_features() {
  CpuFeatures features;
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 27 & 1)) return features;  // OSXSAVE
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  features.zmm = (low & 0xE6) == 0xE6;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return features;
  features.vnni = features.zmm && (ecx >> 11 & 1);
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  features.tiles = (low >> 17 & 3) == 3 && (edx >> 24 & 1) &&
                   syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  features.amx_bf16 = features.tiles && (edx >> 22 & 1);
  features.amx_int8 = features.tiles && (edx >> 25 & 1);
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
    features.bf16 = features.zmm && (eax >> 5 & 1);
  return features;
}

const CpuFeatures& features() {
  static const CpuFeatures result = read_features();
  return result;
}

// Twelve independent chains hide the latency. Registers 12 and 13 hold small numbers of either
// type, so that no sum overflows soon or becomes denormal: 0x3c3c is 0.0115 as bfloat16.
#define QUIRE_ZERO(r) "vpxord %%zmm" #r ", %%zmm" #r ", %%zmm" #r "\n"
#define QUIRE_DOT(op, r) op " %%zmm12, %%zmm13, %%zmm" #r "\n"
#define QUIRE_DOT_LOOP(op) \
  int64_t left = rounds;   \
  asm volatile("movl $0x3c3c3c3c, %%eax\n"                                                       \
               "vpbroadcastd %%eax, %%zmm12\n"                                                   \
               "vpbroadcastd %%eax, %%zmm13\n" QUIRE_ZERO(0) QUIRE_ZERO(1) QUIRE_ZERO(2)         \
                   QUIRE_ZERO(3) QUIRE_ZERO(4) QUIRE_ZERO(5) QUIRE_ZERO(6) QUIRE_ZERO(7)         \
                       QUIRE_ZERO(8) QUIRE_ZERO(9) QUIRE_ZERO(10) QUIRE_ZERO(11)                 \
               "1:\n" QUIRE_DOT(op, 0) QUIRE_DOT(op, 1) QUIRE_DOT(op, 2) QUIRE_DOT(op, 3)        \
                   QUIRE_DOT(op, 4) QUIRE_DOT(op, 5) QUIRE_DOT(op, 6) QUIRE_DOT(op, 7)           \
                       QUIRE_DOT(op, 8) QUIRE_DOT(op, 9) QUIRE_DOT(op, 10) QUIRE_DOT(op, 11)     \
               "decq %0\n"                                                                       \
               "jnz 1b\n"                                                                        \
               "vzeroupper\n"                                                                    \
               : "+r"(left)                                                                      \
               :                                                                                 \
               : "eax", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",  \
                 "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "cc")

double run_bf16_dot(int64_t rounds) {
  QUIRE_DOT_LOOP("vdpbf16ps");
  return static_cast<double>(rounds) * 12 * 32 * 2;  // 16 lanes of 2 products
}

double run_int8_dot(int64_t rounds) {
  QUIRE_DOT_LOOP("vpdpbusd");
  return static_cast<double>(rounds) * 12 * 64 * 2;  // 16 lanes of 4 products
}

// Eight tiles of 16 rows of 64 bytes: 0 to 3 sum, 4 and 5 are A, 6 and 7 are B.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// 4 KiB of operands. Random, because multipliers fed with zeros draw less power and clock higher.
// As bfloat16 the numbers are below 2 in size.
struct alignas(4096) TileData {
  uint16_t values[4][512];
  TileData() {
    uint32_t state = 12345;
    for (auto& tile : values)
      for (auto& value : tile) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<uint16_t>((state >> 16 & 0x80FF) | 0x3F00);
      }
  }
};

#define QUIRE_TILE_LOOP(op)                                                    \
  const TileConfig config;                                                     \
  static const TileData data;                                                  \
  int64_t left = rounds;                                                       \
  asm volatile(                                                                \
      "ldtilecfg (%1)\n"                                                       \
      "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"   \
      "movl $64, %%eax\n"                                                      \
      "1:\n"                                                                   \
      "tileloadd (%2,%%rax,1), %%tmm4\n"                                       \
      "tileloadd 1024(%2,%%rax,1), %%tmm6\n" op                                \
      " %%tmm6, %%tmm4, %%tmm0\n"                                              \
      "tileloadd 2048(%2,%%rax,1), %%tmm7\n" op                                \
      " %%tmm7, %%tmm4, %%tmm1\n"                                              \
      "tileloadd 3072(%2,%%rax,1), %%tmm5\n" op " %%tmm6, %%tmm5, %%tmm2\n" op \
      " %%tmm7, %%tmm5, %%tmm3\n"                                              \
      "decq %0\n"                                                              \
      "jnz 1b\n"                                                               \
      "tilerelease\n"                                                          \
      : "+r"(left)                                                             \
      : "r"(&config), "r"(data.values)                                         \
      : "rax", "cc", "memory")

double run_amx_bf16(int64_t rounds) {
  QUIRE_TILE_LOOP("tdpbf16ps");
  return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

double run_amx_int8(int64_t rounds) {
  QUIRE_TILE_LOOP("tdpbssd");
  return static_cast<double>(rounds) * 4 * 16 * 16 * 64 * 2;
}

}  // namespace

const InstructionProbe kBf16DotProbe = {"vdpbf16ps", [] { return features().bf16; }, run_bf16_dot};
const InstructionProbe kInt8DotProbe = {"vpdpbusd", [] { return features().vnni; }, run_int8_dot};
const InstructionProbe kAmxBf16Probe = {"amx bf16", [] { return features().amx_bf16; },
                                        run_amx_bf16};
const InstructionProbe kAmxInt8Probe = {"amx int8", [] { return features().amx_int8; },
                                        run_amx_int8};

#else  // not x86 Linux: none of them is there
namespace {
bool absent() { return false; }
double nothing(int64_t) { return 0; }
}  // namespace
const InstructionProbe kBf16DotProbe = {"vdpbf16ps", absent, nothing};
const InstructionProbe kInt8DotProbe = {"vpdpbusd", absent, nothing};
const InstructionProbe kAmxBf16Probe = {"amx bf16", absent, nothing};
const InstructionProbe kAmxInt8Probe = {"amx int8", absent, nothing};
#endif

}  // namespace quire::ops
