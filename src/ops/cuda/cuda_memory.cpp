#include "ops/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>

#include "ops/cuda/cuda_error.h"

namespace quire::ops {
namespace {

constexpr size_t kSmallest = 512;

// Eight sizes for each power of two, all multiples of 256.
size_t round_up(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::max<size_t>(256, std::bit_floor(bytes - 1) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

CudaMemory::~CudaMemory() {
  for (const auto& [address, size] : blocks_) cudaFree(reinterpret_cast<void*>(address));
}

void* CudaMemory::take(size_t bytes) {
  const size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (const auto place = arena_plan_.take_within(size, arena_size_))
    memory = arena_ + *place;
  else
    memory = take_from_bins(size);
  taken_[memory] = size;
  stats_.used += size;
  planned_ += plans_ ? static_cast<int64_t>(size) : 0;
  peak_ = std::max(peak_, planned_);
  return memory;
}

void* CudaMemory::take_from_bins(size_t size) {
  auto& bin = free_[size];
  if (bin.empty()) return allocate_locked(size);
  void* memory = bin.back();
  bin.pop_back();
  stats_.cached -= size;
  return memory;
}

void CudaMemory::begin_plan() {
  const std::lock_guard lock(mutex_);
  plans_ = true;
  planned_ = peak_ = 0;
}

// Gaps between pieces of other steps take some more.
void CudaMemory::end_plan() {
  const std::lock_guard lock(mutex_);
  plans_ = false;
  const auto size = static_cast<size_t>(peak_ + peak_ / 16);
  if (size <= arena_size_) return;
  drop_cache();
  if (arena_ && arena_plan_.is_empty()) {
    free_locked(arena_);
  }
  arena_size_ = 0;
  arena_ = static_cast<std::byte*>(allocate_locked(size));
  arena_plan_ = MemoryPlan();
  arena_size_ = size;
}

void CudaMemory::give_back(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = taken_.find(memory);
  if (it == taken_.end()) return;
  const ptrdiff_t place = static_cast<std::byte*>(memory) - arena_;
  if (arena_ && place >= 0 && static_cast<size_t>(place) < arena_size_) {
    arena_plan_.give_back(static_cast<size_t>(place));
  } else if (blocks_.contains(reinterpret_cast<uintptr_t>(memory))) {
    free_[it->second].push_back(memory);
    stats_.cached += it->second;
  }  // else of an earlier plan, whose memory is not used again
  planned_ -= plans_ ? static_cast<int64_t>(it->second) : 0;
  stats_.used -= it->second;
  taken_.erase(it);
}

void* CudaMemory::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  return allocate_locked(std::max(bytes, kSmallest));
}

void CudaMemory::free(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  free_locked(memory);
}

void CudaMemory::free_locked(void* memory) noexcept {
  blocks_.erase(reinterpret_cast<uintptr_t>(memory));
  ++stats_.frees;
  cudaFree(memory);
}

void* CudaMemory::allocate_locked(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    drop_cache();
    const std::string what = "cudaMalloc of " + std::to_string(bytes) + " bytes";
    check_cuda(cudaMalloc(&memory, bytes), what.c_str());
  }
  ++stats_.allocations;
  blocks_[reinterpret_cast<uintptr_t>(memory)] = bytes;
  return memory;
}

void CudaMemory::drop_cache() {
  for (auto& [size, bin] : free_) {
    for (void* memory : bin) free_locked(memory);
    bin.clear();
  }
  stats_.cached = 0;
}

bool CudaMemory::owns(const void* memory) const {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  return address - it->first < it->second;
}

CudaMemory::Stats CudaMemory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace quire::ops
