#include "base/cores.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <vector>

#include "base/parallel.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace quire {

int physical_cores(std::span<const int> processors, const std::string& folder) {
  std::set<std::string> cores;  // each by the list of its threads
  int unknown = 0;
  for (const int processor : processors) {
    std::ifstream file(folder + "/cpu" + std::to_string(processor) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (std::getline(file, siblings) && !siblings.empty()) {
      cores.insert(siblings);
    } else {
      ++unknown;
    }
  }
  return std::max(1, static_cast<int>(cores.size()) + unknown);
}

std::vector<int> usable_processor_numbers() {
  std::vector<int> processors;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) processors.push_back(i);
#endif
  return processors;
}

int usable_physical_cores() {
  const std::vector<int> processors = usable_processor_numbers();
  if (processors.empty()) return usable_processors();
  return physical_cores(processors, "/sys/devices/system/cpu");
}

}  // namespace quire
