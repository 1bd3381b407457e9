#include "bench/ops/machine.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <fstream>

namespace quire::bench {
namespace {

// The first value of a key in Linux's list; empty: there is none.
std::string first_value(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key)
      continue;
    return colon + 2 <= line.size() ? line.substr(colon + 2) : "";
  }
  return "";
}

}  // namespace

std::string cpu_model() {
#ifdef __APPLE__
  std::string name(256, '\0');
  size_t size = name.size();
  if (sysctlbyname("machdep.cpu.brand_string", name.data(), &size, nullptr, 0) != 0) size = 1;
  name.resize(size - 1);  // without the zero behind it
#else
  const std::string name = first_value("model name");
#endif
  return name.empty() ? "unknown CPU" : name;
}

std::string cpu_kind() {
  const std::string family = first_value("cpu family"), model = first_value("model");
  if (!family.empty() && !model.empty())
    return cpu_model() + ", family " + family + " model " + model;
  const std::string part = first_value("CPU part");  // ARM
  return part.empty() ? cpu_model() : "ARM part " + part;
}

}  // namespace quire::bench
