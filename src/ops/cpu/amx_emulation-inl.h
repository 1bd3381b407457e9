#pragma once
// The tile unit in software, for builds with QUIRE_EMULATE_AMX: kernels for AMX run, bit for bit
// and some twenty times slower, on any CPU that has the AVX-512 which they need beside it. For
// tests. cmake/kernels.cmake puts it in front of these kernels' files.
//
// After Intel's Software Developer's Manual, volume 2: TILELOADD, TILESTORED, TDPBF16PS, TDPBSSD,
// TDPBSUD and TDPBUSD. Where the CPU raises #UD (tiles that are not configured, or of sizes that do
// not go together), this traps.
#include <immintrin.h>

#include <cstdint>

namespace quire::ops {
namespace {

class EmulatedTiles {
 public:
  void configure(const void* from) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    check(bytes[0] == 1);  // palette
    for (int i = 0; i < kTiles; ++i) {
      uint16_t row_bytes;
      __builtin_memcpy(&row_bytes, bytes + 16 + 2 * i, 2);
      tiles_[i] = {};
      tiles_[i].row_bytes = row_bytes;
      tiles_[i].rows = bytes[48 + i];
      check(row_bytes <= 64 && tiles_[i].rows <= 16);
    }
  }
  void release() {
    for (Tile& tile : tiles_) tile = {};
  }
  void zero(int i) { clear(configured(i)); }
  void load(int i, const void* from, int64_t stride) {
    Tile& tile = configured(i);
    clear(tile);
    for (int r = 0; r < tile.rows; ++r)
      __builtin_memcpy(tile.data[r], static_cast<const char*>(from) + r * stride,
                       static_cast<size_t>(tile.row_bytes));
  }
  void store(int i, void* to, int64_t stride) {
    const Tile& tile = configured(i);
    for (int r = 0; r < tile.rows; ++r)
      __builtin_memcpy(static_cast<char*>(to) + r * stride, tile.data[r],
                       static_cast<size_t>(tile.row_bytes));
  }

  // Denormal operands count as 0, denormal results become 0, ties go to even, whatever the
  // thread's own mode is.
  void multiply_bf16(int to, int left, int right) {
    constexpr unsigned kFlushed = 0x8000 | 0x1F80 | 0x0040;
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(kFlushed);
    add_bf16(destination(to, left, right), tiles_[left], tiles_[right]);
    _mm_setcsr(mode);
  }
  template <class Left, class Right>
  void multiply_bytes(int to, int left, int right) {
    Tile& sums = destination(to, left, right);
    for (int m = 0; m < sums.rows; ++m)
      for (int k = 0; k < tiles_[left].row_bytes / 4; ++k)
        for (int n = 0; n < sums.row_bytes / 4; ++n) {
          int32_t sum;
          __builtin_memcpy(&sum, sums.data[m] + 4 * n, 4);
          for (int i = 0; i < 4; ++i)
            sum += static_cast<Left>(tiles_[left].data[m][4 * k + i]) *
                   static_cast<Right>(tiles_[right].data[k][4 * n + i]);
          __builtin_memcpy(sums.data[m] + 4 * n, &sum, 4);
        }
  }

 private:
  static constexpr int kTiles = 8;
  struct Tile {
    alignas(64) uint8_t data[16][64];
    int rows, row_bytes;  // 0: not configured
  };

  static void check(bool holds) {
    if (!holds) __builtin_trap();
  }
  static void clear(Tile& tile) { __builtin_memset(tile.data, 0, sizeof tile.data); }
  Tile& configured(int i) {
    check(tiles_[i].rows > 0 && tiles_[i].row_bytes > 0);
    return tiles_[i];
  }
  Tile& destination(int to, int left, int right) {
    const Tile &sums = configured(to), &a = configured(left), &b = configured(right);
    check(to != left && to != right && left != right);
    check(sums.rows == a.rows && a.row_bytes == 4 * b.rows && sums.row_bytes == b.row_bytes);
    return tiles_[to];
  }

  // The products of a row's even elements are one chain of fused multiply-adds from 0, those of its
  // odd ones another; both are added to each other, and then to what was there. Its own function,
  // so that no arithmetic moves past the change of mode.
  __attribute__((noinline)) static void add_bf16(Tile& sums, const Tile& a, const Tile& b) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    for (int m = 0; m < sums.rows; ++m) {
      __m512 even = _mm512_setzero_ps(), odd = even;
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        int32_t pair;
        __builtin_memcpy(&pair, a.data[m] + 4 * k, 4);
        const __m512i x = _mm512_set1_epi32(pair), y = _mm512_load_si512(b.data[k]);
        even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                               _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), even);
        odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                              _mm512_castsi512_ps(_mm512_and_si512(y, upper)), odd);
      }
      const __m512 sum = _mm512_add_ps(_mm512_load_ps(sums.data[m]), _mm512_add_ps(even, odd));
      const auto columns = static_cast<__mmask16>((1u << (sums.row_bytes / 4)) - 1);
      _mm512_mask_store_ps(sums.data[m], columns, sum);
    }
  }

  Tile tiles_[kTiles] = {};
};

// A file's own, as each of its tasks configures tiles before it uses them.
thread_local EmulatedTiles g_tiles;

}  // namespace
}  // namespace quire::ops

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#define _tile_loadconfig(config) g_tiles.configure(config)
#define _tile_release() g_tiles.release()
#define _tile_zero(tile) g_tiles.zero(tile)
#define _tile_loadd(tile, from, stride) g_tiles.load(tile, from, stride)
#define _tile_stream_loadd(tile, from, stride) g_tiles.load(tile, from, stride)
#define _tile_stored(tile, to, stride) g_tiles.store(tile, to, stride)
#define _tile_dpbf16ps(to, left, right) g_tiles.multiply_bf16(to, left, right)
#define _tile_dpbssd(to, left, right) g_tiles.multiply_bytes<int8_t, int8_t>(to, left, right)
#define _tile_dpbsud(to, left, right) g_tiles.multiply_bytes<int8_t, uint8_t>(to, left, right)
#define _tile_dpbusd(to, left, right) g_tiles.multiply_bytes<uint8_t, int8_t>(to, left, right)
