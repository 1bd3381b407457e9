#pragma once
#include <cstddef>
#include <memory>

namespace quire::ops {

// Uninitialised memory, 64-byte aligned. From 2 MiB on it begins at a huge page and asks for huge
// pages: streaming weights then misses the TLB rarely. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> allocate_aligned(size_t bytes);

}  // namespace quire::ops
