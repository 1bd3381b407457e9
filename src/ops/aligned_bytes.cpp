#include "ops/aligned_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace quire::ops {

std::shared_ptr<std::byte[]> allocate_aligned(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  const bool huge = bytes >= 4 * kHugePage;
  const size_t alignment = huge ? kHugePage : 64;
  const size_t size = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  void* memory = std::aligned_alloc(alignment, size);
  if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  if (huge) madvise(memory, size, MADV_HUGEPAGE);  // a hint: fails without harm
#endif
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

}  // namespace quire::ops
