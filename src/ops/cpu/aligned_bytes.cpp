#include "ops/cpu/aligned_bytes.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace quire::ops {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Address space of its own that begins at a huge page and ends where the bytes do: the last,
// partial huge page then consists of small ones, and rounding up costs no memory.
std::shared_ptr<std::byte[]> map_huge(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes + page - 1) / page * page;
  const size_t reserved = size + kHugePage;
  void* memory =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > begin) munmap(memory, aligned - begin);
  const uintptr_t end = aligned + size;
  if (begin + reserved > end) munmap(reinterpret_cast<void*>(end), begin + reserved - end);
  auto* data = reinterpret_cast<std::byte*>(aligned);
#ifdef MADV_HUGEPAGE
  madvise(data, size, MADV_HUGEPAGE);  // a hint: fails without harm
#endif
  return {data, [size](std::byte* p) { munmap(p, size); }};
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_aligned(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  if (bytes >= kOwnPages) return map_huge(bytes);
  constexpr size_t kAlignment = 64;
  const size_t size = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  void* memory = std::aligned_alloc(kAlignment, size);
  if (!memory) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

std::byte* ScratchMemory::reserve(int64_t bytes) {
  if (capacity_ < bytes) {
    capacity_ = 0;
    memory_.reset();
    const int64_t needed = std::max(bytes, least_);
    memory_ = allocate_aligned(static_cast<size_t>(needed));
    capacity_ = needed;
  }
  return memory_.get();
}

}  // namespace quire::ops
