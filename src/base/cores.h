#pragma once
#include <span>
#include <string>
#include <vector>

namespace quire {

// The numbers of the processors that the process may run on (its affinity mask, which containers
// set); empty where the system does not tell.
std::vector<int> usable_processor_numbers();

// How many physical cores the process may run on: threads of one core share its multipliers, so a
// second one gains kernels nothing and costs waiting. At least 1.
int usable_physical_cores();

// The same of these processors, by Linux's "cpuN/topology/thread_siblings_list" below `folder`. A
// processor of which nothing is known counts as a core.
int physical_cores(std::span<const int> processors, const std::string& folder);

}  // namespace quire
