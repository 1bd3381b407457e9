#pragma once
#include <functional>
#include <string>
#include <vector>

#include "ops/runtime/cuda_support.h"

namespace quire::cli {

// What --device asks for, made out.
struct DeviceChoice {
  bool is_cuda = false, is_metal = false;
  std::string notice;  // for people: why a GPU that is there is not taken; mostly empty
};

// `asked`: auto, cpu, cuda or metal. `cpu_only`: what was asked for that only the CPU has, by flag.
// "auto" takes a GPU that can do all that was asked for. Throws LoadError, with the reason, if
// "cuda" cannot be had, or another device is asked for with what only the CPU has. An Apple GPU has
// to be asked for. `find_support` is not called for "cpu" and "metal": then no driver is touched.
DeviceChoice choose_device(const std::string& asked, const std::vector<std::string>& cpu_only,
                           const std::function<ops::CudaSupport()>& find_support);

}  // namespace quire::cli
