#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace quire::ops {

// The instruction set that CPU kernels use, as the suffix of their names in the KernelLog:
// "cpu_avx512", "cpu_avx2", "cpu_neon" or "cpu_portable". Chosen from the CPU; see force_cpu_isa.
const char* cpu_kernel_name();
// "avx512", "avx2", "neon" or "portable".
std::string cpu_isa_name();
// Limits CPU kernels to `name` (QUIRE_CPU_ISA, tests); "" goes back to the best. Throws LoadError
// if this CPU or build lacks it. Process-wide, as the dispatch tables are: call it while no kernel
// runs.
void force_cpu_isa(std::string_view name);
// The names that this CPU can run, best first.
std::vector<std::string> available_cpu_isas();

}  // namespace quire::ops
