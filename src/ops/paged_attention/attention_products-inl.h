#pragma once
// Long rows of tile products, taken in steps. Included by attention_prefill-inl.h only; everything
// is in an anonymous namespace, because it is built for one instruction set.
#include "ops/cpu/amx-inl.h"

namespace quire::ops {
namespace {

// Rows of a tile: what the eight registers can multiply at once. With 64, which share the loads of
// keys and values from L2, it was no faster: more of their scores then leave L1.
constexpr int64_t kTileRows = 32;

// What the elements of tiles are: bfloat16, or bytes (both operands signed, or the left one not),
// of which a row has 64 and whose sums are integers.
enum class TileKind { kBf16, kSigned, kUnsigned };

// Products of tiles for the matrix unit: 32 rows by 32 columns at a time, each a chain of `depth`
// steps of four products that share operands. Results are stored as tiles of 1 KB: with their rows
// apart a step beside vector work took a tenth longer. Offsets are in 16-bit words.
template <TileKind kKind>
struct Products {
  const uint16_t *a = nullptr, *b = nullptr;    // operands of a chain's first step
  const uint16_t *x = a, *y = b;                // of the next step
  int64_t a_lower = 0, a_step = 0;              // to the lower 16 rows, between steps
  int64_t b_right = 0, b_step = 0, b_next = 0;  // to the right 16 columns, steps, 32 columns
  float* out = nullptr;                         // the right 16 columns are 256 floats on
  int64_t out_lower = 0, out_next = 0;          // in floats: to the lower 16 rows, 32 columns
  int64_t depth = 0, steps = 0;                 // of a chain, all that are left
  int64_t groups_done = 0, at = 0;              // columns in 32s, the next step of a chain

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
    // The right operands stream by, and would only push scores and probabilities out of L1.
    _tile_loadd(4, x, 64);
    _tile_stream_loadd(6, y, 64);
    QUIRE_MULTIPLY(0, 4, 6);
    work(0);
    _tile_stream_loadd(7, y + b_right, 64);
    QUIRE_MULTIPLY(1, 4, 7);
    work(1);
    _tile_loadd(5, x + a_lower, 64);
    QUIRE_MULTIPLY(2, 5, 6);
    work(2);
    QUIRE_MULTIPLY(3, 5, 7);
    work(3);
    --steps;
    x += a_step;
    y += b_step;
    if (++at < depth) return;
    _tile_stored(0, out, 64);
    _tile_stored(1, out + 256, 64);
    _tile_stored(2, out + out_lower, 64);
    _tile_stored(3, out + out_lower + 256, 64);
    out += out_next;
    b += b_next;
    x = a;
    y = b;
    at = 0;
    ++groups_done;
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
