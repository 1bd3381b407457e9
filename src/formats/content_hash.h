#pragma once
#include <cstddef>
#include <cstdint>

namespace quire::formats {

using ContentHash = uint64_t (*)(const void* data, size_t size);

// XXH3 with the instructions of AVX2, or null where the build does not have it. Called only where
// the CPU has AVX2.
ContentHash content_hash_avx2();

}  // namespace quire::formats
