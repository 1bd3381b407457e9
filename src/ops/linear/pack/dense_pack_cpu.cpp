#include "ops/linear/pack/dense_pack_cpu.h"

#include <algorithm>
#include <cstring>

#include "ops/linear/pack/convert_cpu.h"
#include "ops/linear/pack/interleave_rows-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = 16, kChunk = 32;

// Two neighbouring k of a row stay together: of 2 bytes each they are a word of 32 bits, of 4 bytes
// one of 64.
template <int64_t kBytes>
void pack_panel(const DenseRow (&rows)[kPanel], int64_t k, FloatType type, std::byte* to) {
  constexpr int64_t kRowBytes = kChunk * kBytes;
  uint8_t chunk[kPanel][kRowBytes];
  for (int64_t begin = 0; begin < k; begin += kChunk, to += sizeof(chunk)) {
    ask_for(to, sizeof(chunk));
    const int64_t count = std::min(kChunk, k - begin);
    for (int64_t i = 0; i < kPanel; ++i) {
      if (!rows[i].data || count < kChunk) std::memset(chunk[i], 0, kRowBytes);
      if (!rows[i].data) continue;
      const std::byte* from = rows[i].data + begin * float_type_bytes(rows[i].type);
      if (rows[i].type == type && count == kChunk) {
        std::memcpy(chunk[i], from, kRowBytes);
      } else {
        convert_cpu(from, rows[i].type, chunk[i], type, count);
      }
    }
    interleave_rows<2 * kBytes>(chunk, reinterpret_cast<uint8_t*>(to));
  }
}

}  // namespace

void dense_pack_panel_cpu(const DenseRow (&rows)[kPanel], int64_t k, FloatType type,
                          std::byte* to) {
  type == FloatType::kF32 ? pack_panel<4>(rows, k, type, to) : pack_panel<2>(rows, k, type, to);
}

}  // namespace quire::ops
