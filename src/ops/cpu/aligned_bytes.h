#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace quire::ops {

// From here on allocate_aligned() gives pages of their own.
inline constexpr size_t kOwnPages = size_t{2} << 20;

// Uninitialised memory, 64-byte aligned. From 2 MiB on it begins at a huge page and asks for huge
// pages: streaming weights then misses the TLB rarely. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> allocate_aligned(size_t bytes);

// Memory that one thread uses again and again for one purpose. It grows to the largest request, so
// that a steady state allocates nothing.
class ScratchMemory {
 public:
  // `least`: bytes that it has from the first request on.
  constexpr explicit ScratchMemory(int64_t least = 0) : least_(least) {}
  // As allocate_aligned() gives it. What it held is lost if it grows.
  std::byte* reserve(int64_t bytes);

 private:
  int64_t least_, capacity_ = 0;
  std::shared_ptr<std::byte[]> memory_;
};

}  // namespace quire::ops
