#pragma once
#include <cstddef>  // says which C library it is
#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

namespace quire {

// From now on the allocator gives the system what lies free at the end of its areas as soon as that
// is a megabyte, and takes blocks of four megabytes and more from the system one by one. Without
// this it raises both limits with the largest block that was ever freed, to 64 and 32 MiB, and
// every thread's area keeps as much. For the start of a program, before it has threads.
inline void give_back_memory_when_freed() {
#if defined(__GLIBC__)
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
}

// Asks the allocator to give the system what was freed.
inline void give_back_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#elif defined(__APPLE__)
  ::malloc_zone_pressure_relief(nullptr, 0);
#endif
}

}  // namespace quire
