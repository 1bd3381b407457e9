#include "ops/cpu/cpu_isa.h"

#include <atomic>

#include "base/error.h"
#include "ops/cpu/highway_targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#if HWY_ARCH_X86 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if HWY_ARCH_ARM_A64 && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace quire::ops {
namespace {

struct Isa {
  const char* name;
  const char* kernel;  // of its Highway target
  int64_t target;
  CpuIsa level;
};

// Best first.
constexpr Isa kIsas[] = {
#if HWY_ARCH_X86
    {"amx", "cpu_avx512", HWY_AVX3, CpuIsa::kAmx},
    {"avx512_bf16", "cpu_avx512", HWY_AVX3, CpuIsa::kAvx512Bf16},
    {"avx512_vnni", "cpu_avx512", HWY_AVX3, CpuIsa::kAvx512Vnni},
    {"avx512", "cpu_avx512", HWY_AVX3, CpuIsa::kAvx512},
    {"avx2_vnni", "cpu_avx2", HWY_AVX2, CpuIsa::kAvx2Vnni},
    {"avx2", "cpu_avx2", HWY_AVX2, CpuIsa::kAvx2},
#elif HWY_ARCH_ARM
    {"neon_bf16", "cpu_neon", HWY_NEON, CpuIsa::kNeonBf16},
    {"neon_dotprod", "cpu_neon", HWY_NEON, CpuIsa::kNeonDotprod},
    {"neon", "cpu_neon", HWY_NEON, CpuIsa::kNeon},
#endif
    {"portable", "cpu_portable", HWY_STATIC_TARGET, CpuIsa::kPortable},
};

// What the dispatch tables point to. Kept here because hwy::SupportedTargets() asks the CPU, which
// costs microseconds in a virtual machine, and every launch asks for the name.
std::atomic<const Isa*> g_chosen{nullptr};
std::atomic<bool> g_portable_bits{false};

#if HWY_ARCH_X86
struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpuid(unsigned leaf, unsigned subleaf) {
    __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  }
};

// Beside Highway's AVX3 target: AVX512_BF16, VBMI and VNNI (Zen 4, Sapphire Rapids).
bool has_avx512_bf16() {
  const Cpuid leaf7(7, 0), leaf7_1(7, 1);
  const bool vbmi = leaf7.ecx >> 1 & 1, vnni = leaf7.ecx >> 11 & 1;
  return vbmi && vnni && (leaf7_1.eax >> 5 & 1);
}

bool has_avx512_vnni() { return Cpuid(7, 0).ecx >> 11 & 1; }
bool has_avx2_vnni() { return Cpuid(7, 1).eax >> 4 & 1; }

// The tile state is large, so Linux gives it to a process on request only; threads inherit it.
[[maybe_unused]] bool request_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}

bool has_amx() {
#if defined(QUIRE_EMULATE_AMX)
  return has_avx512_bf16();  // the rest is ops/cpu/amx_emulation-inl.h
#else
  const Cpuid leaf7(7, 0);
  const bool bf16 = leaf7.edx >> 22 & 1, tile = leaf7.edx >> 24 & 1, int8 = leaf7.edx >> 25 & 1;
  return bf16 && tile && int8 && has_avx512_bf16() && request_tiles();
#endif
}
#endif

#if HWY_ARCH_ARM
// Linux says what the CPU has; elsewhere the units are not asked for.
#if HWY_ARCH_ARM_A64 && defined(__linux__)
bool has_dotprod() { return getauxval(AT_HWCAP) >> 20 & 1; }                   // HWCAP_ASIMDDP
bool has_bf16() { return has_dotprod() && (getauxval(AT_HWCAP2) >> 14 & 1); }  // HWCAP2_BF16
#else
bool has_dotprod() { return false; }
bool has_bf16() { return false; }
#endif
#endif

bool has_units([[maybe_unused]] CpuIsa level) {
#if HWY_ARCH_X86
  if (level == CpuIsa::kAmx) return has_amx();
  if (level == CpuIsa::kAvx512Bf16) return has_avx512_bf16();
  if (level == CpuIsa::kAvx512Vnni) return has_avx512_vnni();
  if (level == CpuIsa::kAvx2Vnni) return has_avx2_vnni();
#elif HWY_ARCH_ARM
  if (level == CpuIsa::kNeonBf16) return has_bf16();
  if (level == CpuIsa::kNeonDotprod) return has_dotprod();
#endif
  return true;
}

std::vector<const Isa*> available() {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  std::vector<const Isa*> isas;
  for (const Isa& isa : kIsas) {
    // A build for one CPU has "portable" equal to the best.
    const bool repeats =
        isa.level == CpuIsa::kPortable && !isas.empty() && isas.back()->target == HWY_STATIC_TARGET;
    if ((supported & isa.target) && !repeats && has_units(isa.level)) isas.push_back(&isa);
  }
  return isas;
}

// Points Highway's dispatch tables to the target: each HWY_DYNAMIC_DISPATCH reads this choice.
void choose(const Isa* isa) {
  hwy::SetSupportedTargetsForTest(isa->target);
  hwy::GetChosenTarget().Update(isa->target);
  g_chosen.store(isa);
}

const Isa& chosen() {
  if (const Isa* isa = g_chosen.load(std::memory_order_relaxed)) return *isa;
  choose(available().front());
  return *g_chosen.load();
}

}  // namespace

CpuIsa cpu_isa() { return chosen().level; }
bool use_amx() { return cpu_isa() == CpuIsa::kAmx; }
bool use_avx512_bf16() { return cpu_isa() == CpuIsa::kAvx512Bf16 && !portable_bits(); }
bool use_avx512_vnni() { return cpu_isa() >= CpuIsa::kAvx512Vnni; }
bool use_avx2_vnni() { return cpu_isa() == CpuIsa::kAvx2Vnni; }
bool use_neon_dotprod() {
  return cpu_isa() == CpuIsa::kNeonDotprod || cpu_isa() == CpuIsa::kNeonBf16;
}
bool use_neon_bf16() { return cpu_isa() == CpuIsa::kNeonBf16 && !portable_bits(); }
const char* cpu_kernel_name() { return chosen().kernel; }
std::string cpu_isa_name() { return chosen().name; }

void set_portable_bits(bool portable) { g_portable_bits.store(portable); }
bool portable_bits() { return g_portable_bits.load(std::memory_order_relaxed); }

std::vector<std::string> available_cpu_isas() {
  const Isa* before = &chosen();
  std::vector<std::string> names;
  for (const Isa* isa : available()) names.emplace_back(isa->name);
  choose(before);
  return names;
}

std::vector<std::string> available_float_isas() {
  auto names = available_cpu_isas();
  std::erase_if(names, [](const std::string& name) {
    return name.ends_with("_vnni") || name.ends_with("_dotprod");
  });
  return names;
}

void force_cpu_isa(std::string_view name) {
  const Isa* before = &chosen();
  const auto isas = available();
  if (name.empty()) return choose(isas.front());
  std::string list;
  for (const Isa* isa : isas) {
    if (name == isa->name) return choose(isa);
    list += std::string(" ") + isa->name;
  }
  choose(before);
  throw LoadError("CPU instruction set '" + std::string(name) +
                  "' is not available here; choose one of:" + list);
}

}  // namespace quire::ops
