#include "ops/linear/linear_kernel.h"

#include <memory>

#include "ops/aligned_bytes.h"
#include "ops/linear/linear_cpu.h"

namespace quire::ops {
namespace {

// Best first.
constexpr const LinearKernel* kKernels[] = {
    &kHighwayLinear,
};

struct Scratch {
  std::shared_ptr<std::byte[]> memory;
  int64_t capacity = 0;
  void* of(int64_t bytes) {
    if (capacity < bytes) {
      memory.reset();
      memory = allocate_aligned(static_cast<size_t>(bytes));
      capacity = bytes;
    }
    return memory.get();
  }
};

}  // namespace

const LinearKernel* find_linear_kernel(const LinearParams& params) {
  for (const LinearKernel* kernel : kKernels)
    if (kernel->serves(params)) return kernel;
  return nullptr;
}

void* linear_scratch(int64_t bytes) {
  thread_local Scratch scratch;
  return scratch.of(bytes);
}

void* linear_task_scratch(int64_t bytes) {
  thread_local Scratch scratch;
  return scratch.of(bytes);
}

}  // namespace quire::ops
