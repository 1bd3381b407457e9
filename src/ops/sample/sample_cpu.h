#pragma once
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quire::ops {

// The passes over a row of V logits, vectorised. A row is cut into blocks of kSampleBlock (the last
// one may be short); later passes skip blocks by their maxima. No fused multiply-adds and 16
// virtual lanes for every sum: all instruction sets give the same bits.
inline constexpr int64_t kSampleBlock = 128;
inline int64_t num_sample_blocks(int64_t size) { return (size + kSampleBlock - 1) / kSampleBlock; }

// What a logit counts as: NaN as -inf, +inf as the greatest finite number (several of them share
// the mass). Denormals equal 0, because threads of the pool take them for it.
inline float canonical_logit(float x) {
  if (std::isnan(x)) return -std::numeric_limits<float>::infinity();
  return x > FLT_MAX ? FLT_MAX : x;
}

// maxima[b] = the greatest canonical logit of block b; -inf if it has none.
void block_maxima(const float* x, int64_t size, float* maxima);

// masses[b] = sum over block b of exp((x - max) * scale), with `max` the row's maximum and scale
// 1 / temperature.
void block_masses(const float* x, int64_t size, float max, float scale, double* masses);

// weights[i] = exp((x[i] - max) * scale), the very terms of block_masses. Below e^-87 it is 0.
void softmax_weights(const float* x, int64_t size, float max, float scale, float* weights);

// Writes the ids and canonical values of all finite logits >= threshold, ids ascending, and returns
// how many. Both outputs must have room for size + 16.
int64_t collect_at_least(const float* x, int64_t size, const float* maxima, float threshold,
                         int32_t* ids, float* values);

// How many canonical logits are > threshold.
int64_t count_greater(const float* x, int64_t size, const float* maxima, float threshold);

}  // namespace quire::ops
