#pragma once
// Long rows of tile products, taken in steps. Included by paged_attention_amx_cpu.cpp only;
// everything is in an anonymous namespace, because that file is built for one instruction set.
#include "ops/amx-inl.h"

namespace quire::ops {
namespace {

// Rows of a tile, in parts of 32: what the eight registers can multiply at once. The parts share
// the loads of keys and values from L2, which are what limits the products.
constexpr int64_t kPartRows = 32, kParts = 2, kTileRows = kParts * kPartRows;

// What the elements of tiles are: bfloat16, or bytes (both operands signed, or the left one not),
// of which a row has 64 and whose sums are integers.
enum class TileKind { kBf16, kSigned, kUnsigned };

// Products of tiles for the matrix unit: 32 rows by 32 columns at a time, each a chain of `depth`
// steps of four products that share operands; all parts of the rows, then the next columns. Offsets
// are in 16-bit words.
template <TileKind kKind>
struct Products {
  const uint16_t *a = nullptr, *b = nullptr;      // first operands of the first step
  int64_t a_stride = 0, a_lower = 0, a_step = 0;  // between rows, to the lower 16 rows, steps
  int64_t a_part = 0;                             // 32 rows
  int64_t b_right = 0, b_step = 0, b_next = 0;    // to the right 16 columns, steps, 32 columns
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t depth[kParts] = {}, groups[kParts] = {};  // of 32 columns, which a part has
  int64_t steps = 0;                                // left
  int64_t part = 0, group = 0, at = 0;              // of the chain, its next step

  // To be called when all of the above is set.
  void begin() {
    for (int64_t i = 0; i < kParts; ++i) {
      if (depth[i] == 0) groups[i] = 0;
      steps += depth[i] * groups[i];
    }
    if (groups[0] == 0) next_chain();
  }
  void next_chain() {
    do {
      if (++part < kParts) continue;
      part = 0;
      ++group;
      b += b_next;
      out += 32;
    } while (steps > 0 && group >= groups[part]);
  }

  // Tile to += left * right.
#define QUIRE_MULTIPLY(to, left, right)          \
  if constexpr (kKind == TileKind::kBf16)        \
    _tile_dpbf16ps(to, left, right);             \
  else if constexpr (kKind == TileKind::kSigned) \
    _tile_dpbssd(to, left, right);               \
  else                                           \
    _tile_dpbusd(to, left, right)

  // One step; calls work(0) to work(3) between the products, so that the vector units have
  // instructions at hand while the matrix unit is busy.
  template <class Work>
  __attribute__((always_inline)) void step(const Work& work) {
    if (at == 0) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const uint16_t *x = a + part * a_part + at * a_step, *y = b + at * b_step;
    _tile_loadd(4, x, a_stride * 2);
    _tile_loadd(6, y, 64);
    QUIRE_MULTIPLY(0, 4, 6);
    work(0);
    _tile_loadd(7, y + b_right, 64);
    QUIRE_MULTIPLY(1, 4, 7);
    work(1);
    _tile_loadd(5, x + a_lower, a_stride * 2);
    QUIRE_MULTIPLY(2, 5, 6);
    work(2);
    QUIRE_MULTIPLY(3, 5, 7);
    work(3);
    --steps;
    if (++at < depth[part]) return;
    float* to = out + part * kPartRows * out_stride;
    _tile_stored(0, to, out_stride * 4);
    _tile_stored(1, to + 16, out_stride * 4);
    _tile_stored(2, to + 16 * out_stride, out_stride * 4);
    _tile_stored(3, to + 16 * out_stride + 16, out_stride * 4);
    at = 0;
    next_chain();
  }
#undef QUIRE_MULTIPLY
  void run() {
    while (steps > 0) step([](int) {});
  }
};

// Spreads the products of two tiles over the vector work of a third.
template <bool kBytes>
struct Feed {
  Products<kBytes ? TileKind::kUnsigned : TileKind::kBf16> values;  // first
  Products<kBytes ? TileKind::kSigned : TileKind::kBf16> scores;
  int64_t slots = 0;  // in which the steps are to be done
  int64_t steps = 0, credit = 0;

  template <class Work>
  __attribute__((always_inline)) void slot(const Work& work) {
    credit += steps;
    if (credit < slots) {
      work(0);
      work(1);
      work(2);
      work(3);
      return;
    }
    credit -= slots;
    step(work);
    for (; credit >= slots; credit -= slots) step([](int) {});
  }

 private:
  template <class Work>
  __attribute__((always_inline)) void step(const Work& work) {
    if constexpr (kBytes)
      values.steps > 0 ? values.step(work) : scores.step(work);
    else
      (values.steps > 0 ? values : scores).step(work);
  }
};

}  // namespace
}  // namespace quire::ops
