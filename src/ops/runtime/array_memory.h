#pragma once
#include <mlx/allocator.h>
#include <mlx/mlx.h>

#include <atomic>
#include <cstddef>
#include <functional>

namespace quire::ops {

namespace mx = mlx::core;

// Memory of the arrays that kernels write. MLX's allocator aligns to 8 bytes, so that most vector
// loads of an activation would cross a cache line; here every array begins at a multiple of 64.
// Freed memory is kept for the next step, which asks for the same sizes, up to a limit. Any thread
// may allocate and free; arrays may outlive the object.
class ArrayMemory {
 public:
  // `cache_limit`: bytes of freed memory that are kept at most.
  explicit ArrayMemory(size_t cache_limit = kDefaultCacheLimit);
  ~ArrayMemory();
  ArrayMemory(const ArrayMemory&) = delete;
  ArrayMemory& operator=(const ArrayMemory&) = delete;

  // Uninitialised. Throws std::bad_alloc.
  mx::allocator::Data allocate(size_t bytes);

  // The same as plain memory, for arrays that only kernels see; give_back() frees it. Any thread.
  void* take(size_t bytes);
  static void give_back(void* memory) noexcept;

  // Launching runs ahead of the kernels, and every launched kernel has its outputs allocated. A
  // launch of `bytes` first waits until those that have not run yet are at most kAheadLimit: a long
  // prompt would else hold the activations of all layers at once, more than the cache keeps. Each
  // launch ends with one finish_launch, from the thread that runs kernels.
  void begin_launch(size_t bytes);
  void finish_launch(size_t bytes) noexcept;
  static constexpr size_t kAheadLimit = size_t{48} << 20;

  struct Stats {
    size_t cached = 0;  // bytes kept for reuse
    size_t used = 0;    // bytes of live arrays, as they were rounded up
  };
  Stats stats() const;

#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kDefaultCacheLimit = 0;  // the sanitizer must see memory go
#else
  static constexpr size_t kDefaultCacheLimit = size_t{256} << 20;
#endif

 private:
  class Cache;
  std::atomic<size_t> launched_{0};  // bytes of kernels that have not run
  Cache* cache_;                     // counts its users: this object and each live array
};

// Bytes of such an array. Throws std::invalid_argument if they overflow 64 bits.
size_t array_bytes(const mx::Shape& shape, mx::Dtype dtype);

// An array over fresh address space of which only the pages that are written to cost memory: for
// pools. Aligned to 2 MiB and of huge pages where the system has them: with small ones attention
// misses the TLB on every other token, and decode at 540 tokens of context took four times as long
// (20 ms a step instead of 4.9, Qwen3-0.6B shape). Throws std::bad_alloc, or std::invalid_argument
// if its size overflows.
mx::array make_lazy_array(const mx::Shape& shape, mx::Dtype dtype);
// Has the system give a lazy array memory for the bytes [begin, end), whose contents stay. A hint.
void commit_memory(const mx::array& lazy, size_t begin, size_t end) noexcept;

// What an array of MLX's CPU has as its memory, over memory that is not MLX's. `free` is called
// with the last handle.
mx::allocator::Data wrap_data(void* memory, std::function<void(void*)> free);
// An array over memory that is not MLX's, and perhaps out of the host's reach: then only kernels
// may be given it. `free` is called with the last handle.
mx::array wrap_memory(void* memory, const mx::Shape& shape, mx::Dtype dtype,
                      std::function<void(void*)> free);

}  // namespace quire::ops
