// Compiled with AVX2 where CMakeLists.txt says so: nothing here may be shared with other files.
#include "formats/content_hash.h"

#ifdef __AVX2__
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace quire::formats {

#ifdef __AVX2__
namespace {
uint64_t hash(const void* data, size_t size) { return XXH3_64bits(data, size); }
}  // namespace
ContentHash content_hash_avx2() { return hash; }
#else
ContentHash content_hash_avx2() { return nullptr; }
#endif

}  // namespace quire::formats
