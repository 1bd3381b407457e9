#pragma once
#include <cstdint>

namespace quire::engine {

// How often this thread has called operator new, which test_allocations.cpp replaces.
int64_t num_allocations();

}  // namespace quire::engine
