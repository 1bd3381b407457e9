#pragma once
#include <cstdint>

namespace quire::ops {

// What a step on a GPU keeps for results of parts of a context, in bytes, whatever it needs of it:
// so that no step takes more memory than another. Contexts that find no room there are not split.
inline constexpr int64_t kAttentionCudaScratch = int64_t{64} << 20;

}  // namespace quire::ops
