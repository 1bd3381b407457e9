#include "ops/cpu_isa.h"

#include <atomic>

#include "base/error.h"
#include "ops/highway_targets.h"

namespace quire::ops {
namespace {

struct Isa {
  const char* name;
  const char* kernel;
  int64_t target;
};

// Best first.
constexpr Isa kIsas[] = {
#if HWY_ARCH_X86
    {"avx512", "cpu_avx512", HWY_AVX3},
    {"avx2", "cpu_avx2", HWY_AVX2},
#elif HWY_ARCH_ARM
    {"neon", "cpu_neon", HWY_NEON},
#endif
    {"portable", "cpu_portable", HWY_STATIC_TARGET},
};

// What the dispatch tables point to. Kept here because hwy::SupportedTargets() asks the CPU, which
// costs microseconds in a virtual machine, and every launch asks for the name.
std::atomic<const Isa*> g_chosen{nullptr};

std::vector<const Isa*> available() {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t supported = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  std::vector<const Isa*> isas;
  int64_t seen = 0;  // a build for one CPU has "portable" equal to the best
  for (const Isa& isa : kIsas) {
    if ((supported & isa.target) && !(seen & isa.target)) isas.push_back(&isa);
    seen |= isa.target;
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

const char* cpu_kernel_name() { return chosen().kernel; }
std::string cpu_isa_name() { return chosen().name; }

std::vector<std::string> available_cpu_isas() {
  const Isa* before = &chosen();
  std::vector<std::string> names;
  for (const Isa* isa : available()) names.emplace_back(isa->name);
  choose(before);
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
