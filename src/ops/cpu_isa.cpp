#include "ops/cpu_isa.h"

#include <hwy/targets.h>

#include <algorithm>

#include "base/error.h"

namespace quire::ops {
namespace {

struct Isa {
  const char* name;
  const char* kernel;
  int64_t targets;  // the Highway targets that belong to it; kernels are compiled for the first one
};

// Best first. Kernels exclude the other Highway targets (HWY_DISABLED_TARGETS in ops/highway.h).
constexpr Isa kIsas[] = {
#if HWY_ARCH_X86
    {"avx512", "cpu_avx512", HWY_AVX3},
    {"avx2", "cpu_avx2", HWY_AVX2},
#elif HWY_ARCH_ARM
    {"neon", "cpu_neon", HWY_NEON},
#endif
    {"portable", "cpu_portable", HWY_STATIC_TARGET},
};

const Isa& current() {
  const int64_t supported = hwy::SupportedTargets();
  for (const Isa& isa : kIsas)
    if (supported & isa.targets) return isa;
  return kIsas[std::size(kIsas) - 1];
}

}  // namespace

const char* cpu_kernel_name() { return current().kernel; }
std::string cpu_isa_name() { return current().name; }

std::vector<std::string> available_cpu_isas() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<std::string> names;
  for (const Isa& isa : kIsas)
    if (hwy::SupportedTargets() & isa.targets) names.emplace_back(isa.name);
  return names;
}

void force_cpu_isa(std::string_view name) {
  const auto names = available_cpu_isas();
  if (name.empty()) return;
  std::string list;
  for (const auto& n : names) list += " " + n;
  const Isa* found = nullptr;
  for (const Isa& isa : kIsas)
    if (name == isa.name && std::find(names.begin(), names.end(), name) != names.end())
      found = &isa;
  if (!found)
    throw LoadError("CPU instruction set '" + std::string(name) +
                    "' is not available here; choose one of:" + list);
  hwy::SetSupportedTargetsForTest(found->targets);
}

}  // namespace quire::ops
