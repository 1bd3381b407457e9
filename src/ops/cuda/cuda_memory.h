#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "ops/runtime/memory_plan.h"

namespace quire::ops {

// The memory of a GPU. What is given back is taken again while kernels that use it still wait: all
// are on one stream. It lies in one piece, planned to hold the largest step; what finds no room
// there, or comes before that plan, is kept for the next of its size. Any thread.
class CudaMemory {
 public:
  CudaMemory() = default;
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // At a multiple of 256 bytes. Throws std::runtime_error, with the size, if there is none.
  void* take(size_t bytes);
  void give_back(void* memory) noexcept;

  // What is taken between these calls is to find room in one piece from now on. Nothing of it may
  // be taken any more when the plan ends.
  void begin_plan();
  void end_plan();

  // Memory that goes back to the driver when it is freed: that waits for the GPU.
  void* allocate(size_t bytes);
  void free(void* memory) noexcept;

  bool owns(const void* memory) const;

  struct Stats {
    int64_t allocations = 0;  // calls to the driver so far
    int64_t frees = 0;        // likewise: each waits for the GPU
    size_t cached = 0;        // bytes kept for reuse
    size_t used = 0;          // bytes that are taken
  };
  Stats stats() const;

 private:
  void* allocate_locked(size_t bytes);
  void free_locked(void* memory) noexcept;
  void* take_from_bins(size_t size);
  void drop_cache();

  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;  // by rounded size
  std::unordered_map<void*, size_t> taken_;              // rounded sizes
  std::map<uintptr_t, size_t> blocks_;                   // all memory of the driver's
  std::byte* arena_ = nullptr;                           // of planned memory
  size_t arena_size_ = 0;
  MemoryPlan arena_plan_;
  bool plans_ = false;
  int64_t planned_ = 0, peak_ = 0;  // bytes taken since the plan began, now and at most
  Stats stats_;
};

}  // namespace quire::ops
