#include "ops/linear/pack/gguf_as_mlx_cpu.h"

#include "ops/linear/pack/interleave_rows-inl.h"

namespace quire::ops {
namespace {

// The nibbles of 16 bytes, which are one group or two. In a file a group's low nibbles are its
// first half; in MLX neighbours share a byte.
template <int64_t kGroupBytes>
void reorder_nibbles(const uint8_t* qs, uint8_t* out) {
  const auto two = load_vector<Shorts>(qs);
  const Shorts low = (two & 0xF) | (two >> 4 & 0xF0), high = (two >> 4 & 0xF) | (two >> 8 & 0xF0);
  const auto halves =
      __builtin_shufflevector(reinterpret_cast<Bytes>(low), reinterpret_cast<Bytes>(high), 0, 2, 4,
                              6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  if constexpr (kGroupBytes == 16) return store_vector(halves, out);
  const auto words = reinterpret_cast<Quad>(halves);
  store_vector(__builtin_shufflevector(words, words, 0, 2, 1, 3), out);
}

bool is_finite(const uint8_t* half) { return (half[1] & 0x7C) != 0x7C; }

bool convert_q4_1(const uint8_t* block, int64_t blocks, const MlxRow& to) {
  bool finite = true;
  for (int64_t i = 0; i < blocks; ++i, block += 20) {
    std::memcpy(to.scales + 2 * i, block, 2);
    std::memcpy(to.biases + 2 * i, block + 2, 2);
    finite &= is_finite(block) && is_finite(block + 2);
    reorder_nibbles<16>(block + 4, to.values + 16 * i);
  }
  return finite;
}

void convert_mxfp4(const uint8_t* block, int64_t blocks, const MlxRow& to) {
  for (int64_t i = 0; i < blocks; ++i, block += 17) {
    to.scales[i] = block[0];
    reorder_nibbles<16>(block + 1, to.values + 16 * i);
  }
}

void convert_nvfp4(const uint8_t* block, int64_t blocks, const MlxRow& to) {
  for (int64_t i = 0; i < blocks; ++i, block += 36) {
    for (int64_t group = 0; group < 4; ++group)
      to.scales[4 * i + group] = block[group] == 0x7F ? 0 : block[group];
    for (int64_t at = 0; at < 32; at += 16)
      reorder_nibbles<8>(block + 4 + at, to.values + 32 * i + at);
  }
}

}  // namespace

bool gguf_row_as_mlx_cpu(GgufFormat format, const uint8_t* blocks, int64_t k, const MlxRow& to) {
  if (format == GgufFormat::kQ4_1) return convert_q4_1(blocks, k / 32, to);
  format == GgufFormat::kMxfp4 ? convert_mxfp4(blocks, k / 32, to)
                               : convert_nvfp4(blocks, k / 64, to);
  return true;
}

}  // namespace quire::ops
