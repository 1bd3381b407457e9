#pragma once
#include <cstddef>
#include <memory>

namespace quire::ops {

// Uninitialised memory, 64-byte aligned. From 8 MiB on it asks for huge pages and is aligned to
// them: streaming weights then misses the TLB rarely. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> allocate_aligned(size_t bytes);

}  // namespace quire::ops
