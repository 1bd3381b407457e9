#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// What a block that attends by tensor cores on a GPU has in shared memory (attention_tiles.cuh):
// `rows` query rows, and `buffers` tiles of keys and values, of codes with their scales. A pitch:
// elements from row to row.
struct AttentionShapes {
  int rows, key_pitch, value_pitch, scale_bytes, buffers;

  static constexpr int kTileKeys = 64, kProbabilityPitch = kTileKeys + 8;
  static constexpr int kSlotBytes = 2 * static_cast<int>(kAttentionChunk) * 4;
  static constexpr int kRowBytes = 64 + 16;  // maxima of the warps, and an AttentionRow

  static constexpr int pitch(int64_t dim) { return static_cast<int>((dim + 15) / 16 * 16 + 8); }
  constexpr int tile_bytes() const { return kTileKeys * (key_pitch + value_pitch) * 2; }
  constexpr int bytes() const {
    return rows * (key_pitch + kProbabilityPitch) * 2 + buffers * (tile_bytes() + scale_bytes) +
           rows * kRowBytes + kSlotBytes;
  }
};
inline AttentionShapes attention_shapes(const AttentionKernelParams& p, int rows, int buffers) {
  return {.rows = rows,
          .key_pitch = AttentionShapes::pitch(p.key_dim),
          .value_pitch = AttentionShapes::pitch(p.value_dim),
          .scale_bytes = is_quantised(p.kv_type) ? AttentionShapes::kTileKeys * 8 : 0,
          .buffers = buffers};
}
inline bool has_room_for(const AttentionShapes& shapes, size_t block_memory) {
  return static_cast<size_t>(shapes.bytes()) <= block_memory;
}

}  // namespace quire::ops
