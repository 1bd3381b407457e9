#pragma once
#include <cstddef>  // says which C library it is
#if defined(__GLIBC__)
#include <malloc.h>
#elif defined(__APPLE__)
#include <malloc/malloc.h>
#endif

namespace quire {

// Asks the allocator to give the system what was freed.
inline void give_back_freed_memory() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#elif defined(__APPLE__)
  ::malloc_zone_pressure_relief(nullptr, 0);
#endif
}

}  // namespace quire
