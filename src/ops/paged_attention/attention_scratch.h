#pragma once
#include <cstdint>
#include <span>

namespace quire::ops {

// What a step on a GPU keeps for results of parts of a context, in bytes, whatever it needs of it:
// so that no step takes more memory than another. Contexts that find no room there are not split.
inline constexpr int64_t kAttentionCudaScratch = int64_t{64} << 20;

// Layers of a model that attend alike: they share a step's lists.
struct AttentionKind {
  int64_t heads = 0, kv_heads = 0;
};

// The most bytes that attention takes of a GPU's memory in a step of up to so many tokens and
// sequences, on any GPU: the lists of each kind (attention_lists.h), and the scratch.
int64_t most_attention_bytes(std::span<const AttentionKind> kinds, int64_t tokens,
                             int64_t sequences);

}  // namespace quire::ops
