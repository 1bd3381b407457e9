#pragma once
// What the kernels for few rows over int8 keys and values share, beside
// attention_decode-inl.h: scales, probabilities in two parts, and what integer sums stand for.
// Included by their *_cpu.cpp files only.
#include "ops/paged_attention/attention_decode-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kProbabilityStride = kChunk + 64;  // bytes
constexpr int64_t kQuads = 64;                       // tokens of a step of values: 16 times 4

// Buffers have, beside those of DecodeItem, probabilities as bytes, [heads][2
// span][kProbabilityStride]: high parts, then low ones; counts as int32, [heads][2 span][width],
// columns as interleave_bytes leaves them; factors [rows]; key_scales and value_scales
// [heads][kChunk].
template <class Buffers>
class DecodeInt8Item : protected DecodeItem<Buffers> {
 protected:
  using Base = DecodeItem<Buffers>;
  using Base::Base;
  using Base::begin, Base::buffers, Base::end, Base::item, Base::p, Base::partials, Base::rows;
  using Base::seen, Base::span, Base::token_of, Base::width;

  // Tokens up to multiples of 64 that are not visible have a neighbour's slots.
  void fill_slots() {
    first = begin / kQuads * kQuads;
    last = round_up(end, kQuads);
    for (int64_t t = first; t < begin; ++t) buffers.slots[t] = buffers.slots[begin];
    for (int64_t t = end; t < last; ++t) buffers.slots[t] = buffers.slots[end - 1];
    for (int64_t t = first; t < last; ++t) {
      const int64_t scale = buffers.slots[t] * p.kv_heads + item.kv_head;
      for (int64_t h = 0; h < item.kv_heads; ++h) {
        buffers.key_scales[h * kChunk + t] = p.k_scale[scale + h];
        buffers.value_scales[h * kChunk + t] = p.v_scale[scale + h];
      }
    }
  }

  // The row's scores become probabilities in two parts.
  void softmax_row(int64_t r) {
    float* scores = buffers.scores + r * kScoreStride;
    const int64_t token = token_of(r);
    WeightRow row{.scores = scores,
                  .weights = buffers.value_scales + r / span * kChunk,
                  .begin = seen[token].begin,
                  .end = seen[token].end,
                  .peak = _mm512_set1_ps(buffers.m[r]),
                  .scale = _mm512_set1_ps(p.exponent_scale),
                  .sum = _mm512_setzero_ps(),
                  .largest = _mm512_setzero_si512()};
    for (int64_t t = first; t < last; t += kBlock) row.columns(t);
    buffers.l[r] = fold(row.sum);
    buffers.m[r] *= p.exponent_scale;
    const CodeScale scale = scale_of(largest(row.largest), kMaxProbability16);
    buffers.factors[r] = scale.scale;
    uint8_t* high = buffers.probabilities + (r / span * 2 * span + r % span) * kProbabilityStride;
    uint8_t* low = high + span * kProbabilityStride;
    for (int64_t t = first; t < last; t += kBlock)
      split_weights(scores + t, scale, high + t, low + t);
  }

  // The row's sums in float, columns in order.
  void join_sums(int64_t r) {
    const int32_t* high = buffers.counts + (r / span * 2 * span + r % span) * width;
    const int32_t* low = high + span * width;
    const __m512 factor = _mm512_set1_ps(buffers.factors[r]);
    float* to = buffers.sums + r * width;
    for (int64_t d = 0; d < width; d += 64) {
      for (int64_t j = d; j < d + 64; j += 16) {
        const __m512i sum =
            _mm512_add_epi32(_mm512_slli_epi32(load_bits(high + j), 8), load_bits(low + j));
        _mm512_store_ps(to + j, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), factor));
      }
      in_byte_order(to + d);
    }
  }

  // Writes a row's result of the item's chunk `c` where paged_attention_merge_cpu looks for it.
  void keep_partial(int64_t r, int64_t c) {
    const int64_t stride = round_up(p.value_dim, 16);
    float* acc = partials + item.partials + c * rows * (stride + 2);
    acc[rows * stride + r] = buffers.m[r];
    acc[rows * stride + rows + r] = buffers.l[r];
    for (int64_t d = 0; d < stride; d += 16)
      _mm512_storeu_ps(acc + r * stride + d, _mm512_load_ps(buffers.sums + r * width + d));
  }

  void finish() const {
    for (int64_t r = 0; r < rows; ++r) finish_one(r);
  }

 private:
  void finish_one(int64_t r) const {
    const float l = buffers.total_l[r];
    if (p.lse != nullptr)
      p.lse[this->query_head(r) * p.lse_stride + item.token + token_of(r)] =
          attention_lse(buffers.total_m[r], l);
    auto* out = static_cast<uint16_t*>(p.out) + this->head_of_row(r) * p.value_dim;
    finish_ordered_row(buffers.total + r * width, l, out, p.value_dim);
  }

 protected:
  int64_t first = 0, last = 0;  // the visible columns in multiples of 64
};

}  // namespace
}  // namespace quire::ops
