#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::ops {

// Instruction sets with kernels of their own. Of x86 all from kAvx2Vnni on but kAvx512 have
// hand-written kernels for some ops, and of 64-bit ARM those after kNeon; all other ops run their
// Highway kernels for AVX-512, AVX2 or NEON there.
enum class CpuIsa : uint8_t {
  kPortable,
  kNeon,
  kNeonDotprod,
  kNeonBf16,
  kAvx2,
  kAvx2Vnni,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAmx
};

// The instruction set in force; see force_cpu_isa. An op with special kernels asks this when it
// builds its node; the kernel's name is then "cpu_" and the instruction set's.
CpuIsa cpu_isa();
// What may be used now. AMX: tile, bf16 and int8 units, and AVX-512 with bf16, VBMI and VNNI; the
// process has the kernel's permission, each task must load its own tile configuration.
// AVX-512-BF16: the `vdpbf16ps` order of sums, with bits of its own: not under portable bits.
bool use_amx();
bool use_avx512_bf16();
// VNNI: dot products of bytes, which are exact. With AVX-512, or in AVX2's form without it.
bool use_avx512_vnni();
bool use_avx2_vnni();
// The same of 64-bit ARM (FEAT_DotProd, with bytes of one signedness), which its CPUs with bfloat16
// instructions (FEAT_BF16) have, too. `bfdot` has an order of sums and roundings of its own, with
// bits of its own: not under portable bits.
bool use_neon_dotprod();
bool use_neon_bf16();

// The name of every Highway kernel in the KernelLog: "cpu_avx512", "cpu_avx2", "cpu_neon" or
// "cpu_portable".
const char* cpu_kernel_name();
// "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon_bf16", "neon_dotprod",
// "neon" or "portable".
std::string cpu_isa_name();
// Limits CPU kernels to `name` (QUIRE_CPU_ISA, tests); "" goes back to the best. Throws LoadError
// if this CPU or build lacks it. Process-wide, as the dispatch tables are: call it while no kernel
// runs.
void force_cpu_isa(std::string_view name);
// The names that this CPU can run, best first.
std::vector<std::string> available_cpu_isas();
// Those of them that differ in more than dot products of bytes: without those of VNNI and DotProd.
std::vector<std::string> available_float_isas();

// With portable bits, machines with AMX, AVX-512 and AVX2 compute the same bits, and all of 64-bit
// ARM compute those of plain NEON: kernels with another order of sums (vdpbf16ps, bfdot) step aside
// for the fused multiply-add ones. Process-wide; set it before the first graph is built.
void set_portable_bits(bool portable);
bool portable_bits();

}  // namespace quire::ops
