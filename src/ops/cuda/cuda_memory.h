#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace quire::ops {

// The memory of a GPU. What is given back is kept for the next of its size: all kernels are on one
// stream, so memory may be taken again while kernels that use it still wait there. Steps of the
// same sizes allocate nothing. Any thread.
class CudaMemory {
 public:
  CudaMemory() = default;
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // At a multiple of 256 bytes. Throws std::runtime_error, with the size, if there is none.
  void* take(size_t bytes);
  void give_back(void* memory) noexcept;

  // Memory that goes back to the driver when it is freed: that waits for the GPU.
  void* allocate(size_t bytes);
  void free(void* memory) noexcept;

  bool owns(const void* memory) const;

  struct Stats {
    int64_t allocations = 0;  // calls to the driver so far
    size_t cached = 0;        // bytes kept for reuse
    size_t used = 0;          // bytes that are taken
  };
  Stats stats() const;

 private:
  void* allocate_locked(size_t bytes);
  void drop_cache();

  mutable std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> free_;  // by rounded size
  std::unordered_map<void*, size_t> taken_;              // rounded sizes
  std::map<uintptr_t, size_t> blocks_;                   // all memory of the driver's
  Stats stats_;
};

}  // namespace quire::ops
