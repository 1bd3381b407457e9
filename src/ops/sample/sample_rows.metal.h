#pragma once
#include "ops/metal/kernel.metal.h"
// first
#include "ops/sample/sample_metal.h"

// What a threadgroup does with a row of logits: maxima, exact sums, cuts by rank, walks in id
// order. Nothing here is a float sum, so no order of threads changes a bit.
namespace quire {

constant constexpr int kThreads = 1024, kSimdgroups = kThreads / kLanes;
constant constexpr uint kLowestFinite = 0x00800000u;  // the key of -FLT_MAX
constant constexpr int kAnyId = 0x7FFFFFFF;

// What a logit counts as: NaN is the least, infinity the greatest finite number; denormals are 0.
inline float canonical(float x) {
  if (metal::isnan(x)) return -INFINITY;
  if (metal::abs(x) < FLT_MIN) return 0.0f;
  return metal::min(x, FLT_MAX);
}
// An order of unsigned integers, and back.
inline uint key_of(float x) {
  const uint bits = as_type<uint>(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float value_of(uint key) {
  return as_type<float>((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}
// Of a token: by value, then by lower id.
inline ulong rank_of(uint key, int id) { return ulong(key) << 32 | uint(~id); }

// Simd operations take 32 bits.
inline ulong shuffled_xor(ulong x, ushort mask) {
  return as_type<ulong>(metal::simd_shuffle_xor(as_type<uint2>(x), mask));
}
inline ulong lanes_sum(ulong x) {
  for (ushort mask = 16; mask > 0; mask /= 2) x += shuffled_xor(x, mask);
  return x;
}
inline ulong lanes_max(ulong x) {
  for (ushort mask = 16; mask > 0; mask /= 2) x = metal::max(x, shuffled_xor(x, mask));
  return x;
}
inline ulong group_sum(ulong x, threadgroup ulong* parts, int thread_index) {
  x = lanes_sum(x);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (thread_index % kLanes == 0) parts[thread_index / kLanes] = x;
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return lanes_sum(parts[thread_index % kLanes]);
}
inline ulong group_max(ulong x, threadgroup ulong* parts, int thread_index) {
  x = lanes_max(x);
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  if (thread_index % kLanes == 0) parts[thread_index / kLanes] = x;
  threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return lanes_max(parts[thread_index % kLanes]);
}

// floor(a b / 2^53), and whether it is exact; a < 2^53, b < 2^60.
struct Product {
  ulong floor;
  bool is_exact;
};
inline Product part_of(ulong a, ulong b) {
  const ulong a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const ulong low = a0 * b0, middle = a1 * b0 + (low >> 32);
  const ulong middle2 = a0 * b1 + (middle & 0xFFFFFFFFu);
  const ulong high = a1 * b1 + (middle >> 32) + (middle2 >> 32);
  const ulong bottom = middle2 << 32 | (low & 0xFFFFFFFFu);
  return {high << 11 | bottom >> 53, (bottom & 0x1FFFFFFFFFFFFFul) == 0};
}

// A row as the threadgroup reads it, with its best token.
struct Logits {
  const device float* x;
  int size;
  float peak;
  int argmax;
};
inline bool is_empty(thread const Logits& logits) { return logits.peak < -FLT_MAX; }

// Which tokens count, and how much: those that rank up to (key, id).
struct Weights {
  uint key;
  int id;
  bool by_mass;         // else 1
  uint only;            // 0: any; else of this key alone
  float scale, lowest;  // 1 / temperature; of (value - peak) * scale
};
inline Weights count_all() { return {kLowestFinite, kAnyId, false, 0, 1.0f, -INFINITY}; }

inline ulong mass_of(float value, float peak, float scale) {
  const float z = metal::min((value - peak) * scale, 0.0f);
  return z < -30.0f || metal::isnan(z)
             ? 0
             : ulong(metal::rint(metal::precise::exp(z) * 1099511627776.0f));
}
// Of token i, if its key is at least `least`.
inline ulong weight_of(thread const Logits& logits, thread const Weights& w, int i, uint least) {
  const float value = canonical(logits.x[i]);
  const uint key = key_of(value);
  if (key < least || key < w.key || (key == w.key && i > w.id)) return 0;
  if (w.only != 0 && key != w.only) return 0;
  if (!w.by_mass) return 1;
  if ((value - logits.peak) * w.scale < w.lowest) return 0;
  return mass_of(value, logits.peak, w.scale);
}
inline ulong sum_of(thread const Logits& logits, thread const Weights& w, uint least,
                    threadgroup ulong* parts, int thread_index) {
  ulong sum = 0;
  for (int i = thread_index; i < logits.size; i += kThreads) sum += weight_of(logits, w, i, least);
  return group_sum(sum, parts, thread_index);
}

// The best token that ranks after `before`; 0: none.
inline ulong best_after(thread const Logits& logits, ulong before, threadgroup ulong* parts,
                        int thread_index) {
  ulong best = 0;
  for (int i = thread_index; i < logits.size; i += kThreads) {
    const ulong rank = rank_of(key_of(canonical(logits.x[i])), i);
    if (rank < before) best = metal::max(best, rank);
  }
  return group_max(best, parts, thread_index);
}
inline Logits scanned(const device float* x, int size, threadgroup ulong* parts, int thread_index) {
  Logits logits = {x, size, -INFINITY, -1};
  const ulong best = best_after(logits, ~0ul, parts, thread_index);
  logits.peak = value_of(uint(best >> 32));
  logits.argmax = int(~uint(best));
  return logits;
}

// The first id, in order, at which the running sum of weights passes `target`, which is less than
// all of it: a range is shared among the simdgroups until the lanes of one hold it.
inline int walk(thread const Logits& logits, thread const Weights& w, ulong target,
                threadgroup ulong* parts, int thread_index) {
  int begin = 0, size = logits.size;
  ulong before = 0;
  const int lane = thread_index % kLanes, simdgroup = thread_index / kLanes;
  while (size > kLanes) {
    const int part = (size + kSimdgroups - 1) / kSimdgroups, end = begin + size;
    const int own_end = metal::min(end, begin + (simdgroup + 1) * part);
    ulong sum = 0;
    for (int i = begin + simdgroup * part + lane; i < own_end; i += kLanes)
      sum += weight_of(logits, w, i, 0);
    sum = lanes_sum(sum);
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (lane == 0) parts[simdgroup] = sum;
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    int chosen = 0;
    while (chosen + 1 < kSimdgroups && before + parts[chosen] <= target) before += parts[chosen++];
    begin += chosen * part;
    size = metal::min(part, end - begin);
  }
  const ulong own = lane < size ? weight_of(logits, w, begin + lane, 0) : 0;
  int passed = 0;  // how many lanes end at or before the target
  for (int i = 0; i < size; ++i) {
    before += as_type<ulong>(metal::simd_shuffle(as_type<uint2>(own), ushort(i)));
    if (before <= target) ++passed;
  }
  return begin + metal::min(passed, size - 1);
}

// Narrows the weights to the shortest list of best tokens whose weights reach `need`, which is at
// most all of them.
inline void cut_at(thread const Logits& logits, thread Weights& w, ulong need,
                   threadgroup ulong* parts, int thread_index) {
  uint key = 0;  // the greatest from which on there is enough, two bits at a time
  for (int shift = 30; shift >= 0; shift -= 2)
    for (uint digit = 3; digit > 0; --digit) {
      if (sum_of(logits, w, key | digit << shift, parts, thread_index) < need) continue;
      key |= digit << shift;
      break;
    }
  const ulong above = key == 0xFFFFFFFFu ? 0 : sum_of(logits, w, key + 1, parts, thread_index);
  const ulong one = w.by_mass ? mass_of(value_of(key), logits.peak, w.scale) : 1;
  Weights ties = w;
  ties.by_mass = false;
  ties.only = key;
  const ulong count = sum_of(logits, ties, 0, parts, thread_index);
  const ulong kept = one == 0 ? count : (need - above + one - 1) / one;
  const int last = kept < count ? walk(logits, ties, kept - 1, parts, thread_index) : kAnyId;
  w.id = key == w.key ? metal::min(w.id, last) : last;
  w.key = key;
}

}  // namespace quire
