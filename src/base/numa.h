#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace quire {

// The NUMA nodes that have one of these processors, ascending, by Linux's "nodeN/cpulist" below
// `folder`. Empty: nothing is known.
std::vector<int> numa_nodes(std::span<const int> processors, const std::string& folder);

// Those of the processors that the process may run on (its affinity mask, which containers set),
// without nodes that have no memory or whose memory it may not use, as far as the system tells.
std::vector<int> usable_numa_nodes();

// Whether somebody has told where this thread's memory is to be (numactl, a parent process).
bool has_memory_policy();

// 0 if spread_pages() does it here, else why not.
int try_to_spread(std::span<const int> nodes);

// Asks for the pages that lie in this memory as a whole, none of which is there yet, from these
// nodes in turn. Returns 0, or the errno that says why the system does not do it: containers often
// forbid it (EPERM).
int spread_pages(void* memory, size_t bytes, std::span<const int> nodes);

}  // namespace quire
