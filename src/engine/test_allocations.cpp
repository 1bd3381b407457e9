// Counts calls of operator new: for tests that have a program of their own.
#include "engine/test_allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local int64_t num_calls = 0;

void* counted(void* memory) {
  ++num_calls;
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace quire::engine {
int64_t num_allocations() { return num_calls; }
}  // namespace quire::engine

// Not inlined: gcc would take the pair for a mismatch of new and free.
[[gnu::noinline]] void* operator new(size_t size) { return counted(std::malloc(size)); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
