#pragma once
#include <cfloat>

#include "ops/cuda/cluster.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/sample/sample_cuda.h"

// What a block does with a row of logits: maxima, exact sums, cuts by rank, walks in id order.
namespace quire::ops {

inline constexpr int kSampleThreads = 1024, kSampleWarps = kSampleThreads / 32;
inline constexpr int kWalkTile = 1024;   // ids whose masses are summed together
inline constexpr int kMostTiles = 1024;  // a vocabulary of 2^20
inline constexpr int kMostRowBlocks = 8;

// What a logit counts as: NaN is the least, infinity the greatest finite number; denormals are 0.
__device__ inline float canonical(float x) {
  if (isnan(x)) return -INFINITY;
  if (fabsf(x) < FLT_MIN) return 0.0f;
  return fminf(x, FLT_MAX);
}
// An order of unsigned integers, and back.
__device__ inline uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}
inline constexpr uint32_t kLowestFinite = 0x00800000u;  // the key of -FLT_MAX

// Tokens that rank up to here, by value and then by id, are kept.
struct RankCut {
  uint32_t key = kLowestFinite;
  int32_t id = 0x7FFFFFFF;
  __device__ bool keeps(uint32_t k, int64_t i) const { return k > key || (k == key && i <= id); }
};

// Tokens that hold all that a cut can be among, if they are few.
inline constexpr int kMostCandidates = 2048;

struct SampleShared {
  uint64_t of_warps[kSampleWarps];
  uint64_t tiles[kMostTiles];
  uint64_t shares[kMostRowBlocks];  // of a row's blocks, the best of each
  int32_t chosen;
  uint32_t count;
  uint32_t keys[kMostCandidates];  // in no order
  int32_t ids[kMostCandidates];
};

template <class Combine>
__device__ inline uint64_t block_combine(uint64_t x, SampleShared& s, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(kWholeWarp, x, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) s.of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = s.of_warps[threadIdx.x % 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(kWholeWarp, x, mask));
  return x;
}
__device__ inline uint64_t block_sum(uint64_t x, SampleShared& s) {
  return block_combine(x, s, [](uint64_t a, uint64_t b) { return a + b; });
}

// A row as the block reads it.
struct LogitRow {
  const float* x;
  int64_t size;
  float max = -INFINITY;
  int32_t argmax = -1;

  __device__ float at(int64_t i) const { return canonical(x[i]); }
  __device__ bool is_empty() const { return max < -FLT_MAX; }

  // f(key, id) for the thread's share of the tokens with keys from `lowest` on; loads run ahead,
  // and most tokens are seen to be less by their bits as they are.
  template <class F>
  __device__ void for_tokens(uint32_t lowest, F f) const {
    constexpr int kAhead = 8;
    const float bound = lower_bound(lowest);
    for (int64_t first = threadIdx.x; first < size; first += kAhead * kSampleThreads) {
      float v[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) v[j] = x[min(first + j * kSampleThreads, size - 1)];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int64_t i = first + j * kSampleThreads;
        if (!(v[j] >= bound) || i >= size) continue;
        if (const uint32_t key = key_of(canonical(v[j])); key >= lowest) f(key, i);
      }
    }
  }
  // No logit below it has a key from `lowest` on; negative denormals count as 0.
  __device__ static float lower_bound(uint32_t lowest) {
    const float value = value_of(lowest);
    return fabsf(value) < FLT_MIN ? -FLT_MIN : value;
  }

  // Finds the maximum, the lowest id of several.
  __device__ void scan(SampleShared& s) { set_best(best_of(0, size, s)); }
  // The same for the first block of a cluster: each of its blocks looks at a share of the row. All
  // of them run.
  __device__ void scan_in_cluster(int blocks, SampleShared& s) {
    const int rank = rank_in_cluster();
    const uint64_t share = best_of(size * rank / blocks, size * (rank + 1) / blocks, s);
    if (threadIdx.x == 0) write_in_cluster(&s.shares[rank], 0, share);
    sync_cluster();
    if (rank > 0) return;
    uint64_t best = share;
    for (int i = 1; i < blocks; ++i) best = better(best, s.shares[i]);
    set_best(best);
  }

  // The key and, inverted, the id of the greatest of the tokens [begin, end), the lowest id of
  // several.
  __device__ uint64_t best_of(int64_t begin, int64_t end, SampleShared& s) const {
    constexpr int kAhead = 16;
    float most = -INFINITY;
    int64_t where = -1;
    for (int64_t first = begin + threadIdx.x; first < end; first += kAhead * kSampleThreads) {
      float v[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) v[j] = x[min(first + j * kSampleThreads, end - 1)];
      float peak = v[0];
#pragma unroll
      for (int j = 1; j < kAhead; ++j) peak = fmaxf(peak, v[j]);
      if (!(peak > most)) continue;  // mostly
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int64_t i = first + j * kSampleThreads;
        if (!(v[j] > most) || i >= end || !(canonical(v[j]) > most)) continue;
        most = canonical(v[j]);
        where = i;
      }
    }
    const uint64_t best = static_cast<uint64_t>(key_of(most)) << 32 | ~static_cast<uint32_t>(where);
    return block_combine(best, s, better);
  }
  __device__ static uint64_t better(uint64_t a, uint64_t b) { return a > b ? a : b; }
  __device__ void set_best(uint64_t best) {
    max = value_of(static_cast<uint32_t>(best >> 32));
    argmax = static_cast<int32_t>(~static_cast<uint32_t>(best));
  }

  // Of a token with logit v, where `scale` is 1 / temperature.
  __device__ uint64_t mass(float v, float scale) const {
    const float z = fminf((v - max) * scale, 0.0f);
    return z < -30.0f || isnan(z) ? 0 : __float2ull_rn(expf(z) * 0x1p40f);
  }

  // The key below which masses are 0.
  __device__ uint32_t lightest(float scale) const {
    return key_of(canonical(fmaxf(max - 31.0f / scale, -FLT_MAX)));
  }

  // The sum of weigh(key, id) over the tokens with keys from `lowest` on.
  template <class Weigh>
  __device__ uint64_t sum(SampleShared& s, uint32_t lowest, Weigh weigh) const {
    uint64_t total = 0;
    for_tokens(lowest, [&](uint32_t key, int64_t i) { total += weigh(key, i); });
    return block_sum(total, s);
  }

  // Collects the tokens of `within` from `lowest` on; false if there is no room for all.
  __device__ bool collect(SampleShared& s, uint32_t lowest, const RankCut& within) const {
    __syncthreads();
    if (threadIdx.x == 0) s.count = 0;
    __syncthreads();
    for_tokens(lowest, [&](uint32_t key, int64_t i) {
      if (!within.keeps(key, i)) return;
      const uint32_t place = atomicAdd(&s.count, 1u);
      if (place >= kMostCandidates) return;
      s.keys[place] = key;
      s.ids[place] = static_cast<int32_t>(i);
    });
    __syncthreads();
    return s.count <= kMostCandidates;
  }

  // The first id, in order, at which the running sum of weigh(key, id) passes `target`; tokens with
  // keys below `lowest` have none.
  template <class Weigh>
  __device__ int32_t walk(SampleShared& s, uint32_t lowest, uint64_t target, Weigh weigh) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int tiles = static_cast<int>((size + kWalkTile - 1) / kWalkTile);
    const float bound = lower_bound(lowest);
    const auto weight_of = [&](float v, int64_t i) -> uint64_t {
      if (!(v >= bound) || i >= size) return 0;
      const uint32_t key = key_of(canonical(v));
      return key >= lowest ? weigh(key, i) : 0;
    };
    const auto weight = [&](int64_t i) { return weight_of(x[min(i, size - 1)], i); };
    constexpr int kAhead = 8;
    for (int tile = warp; tile < tiles; tile += kSampleWarps) {
      uint64_t sum = 0;
      for (int first = lane; first < kWalkTile; first += 32 * kAhead) {
        const int64_t at = int64_t{tile} * kWalkTile + first;
        float v[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) v[j] = x[min(at + 32 * j, size - 1)];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) sum += weight_of(v[j], at + 32 * j);
      }
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, mask);
      if (lane == 0) s.tiles[tile] = sum;
    }
    __syncthreads();
    if (warp == 0) {
      int tile = 0;
      uint64_t before = 0;
      while (tile + 1 < tiles && before + s.tiles[tile] <= target) before += s.tiles[tile++];
      int32_t found = -1;
      for (int first = 0; first < kWalkTile && found < 0; first += 32) {
        const int64_t id = int64_t{tile} * kWalkTile + first + lane;
        uint64_t sum = weight(id);
#pragma unroll
        for (int shift = 1; shift < 32; shift *= 2) {
          const uint64_t below = __shfl_up_sync(kWholeWarp, sum, shift);
          if (lane >= shift) sum += below;
        }
        const unsigned passed = __ballot_sync(kWholeWarp, before + sum > target);
        if (passed != 0) found = tile * kWalkTile + first + __ffs(static_cast<int>(passed)) - 1;
        before += __shfl_sync(kWholeWarp, sum, 31);
      }
      if (lane == 0) s.chosen = found;
    }
    __syncthreads();
    const int32_t chosen = s.chosen;
    __syncthreads();
    return chosen;
  }

  // How many tokens have keys from `lowest` on, and their weight.
  struct Part {
    uint64_t count = 0, weight = 0;
  };

  // Narrows the range of keys [low, high] that the cut is in until its tokens and those above fit
  // a list, and collects them; false if they never do. The first tries are some units below the
  // maximum: language models put nearly all mass there.
  template <class Weigh>
  __device__ bool narrow(SampleShared& s, uint64_t need, const RankCut& within, Weigh weigh,
                         uint32_t& low, uint32_t& high) const {
    constexpr int kTries = 4;
    constexpr float kBelow[kTries] = {2, 5, 10, 20};
    Part parts[kTries];
    uint32_t keys[kTries];
#pragma unroll
    for (int j = 0; j < kTries; ++j)
      keys[j] = ::max(within.key, key_of(canonical(max - kBelow[j])));
    for_tokens(keys[kTries - 1], [&](uint32_t key, int64_t i) {
      if (!within.keeps(key, i)) return;
      const uint64_t weight = weigh(key);
#pragma unroll
      for (int j = 0; j < kTries; ++j)
        if (key >= keys[j]) {
          ++parts[j].count;
          parts[j].weight += weight;
        }
    });
    uint64_t count = ~uint64_t{0};  // from `low` on
#pragma unroll
    for (int j = kTries - 1; j >= 0; --j) {
      if (block_sum(parts[j].weight, s) < need) {
        high = keys[j] - 1;
        break;
      }
      low = keys[j];
      count = block_sum(parts[j].count, s);
    }
    while (count > kMostCandidates && low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      Part part;
      for_tokens(middle, [&](uint32_t key, int64_t i) {
        if (!within.keeps(key, i)) return;
        ++part.count;
        part.weight += weigh(key);
      });
      if (block_sum(part.weight, s) < need) {
        high = middle - 1;
      } else {
        low = middle;
        count = block_sum(part.count, s);
      }
    }
    return collect(s, low, within);
  }

  // The cut after the shortest list of best tokens whose weights reach `need`; weights depend on
  // the value alone, where `within` keeps the token.
  template <class Weigh>
  __device__ RankCut cut(SampleShared& s, uint64_t need, const RankCut& within, Weigh weigh) const {
    bool listed = false;
    const auto from = [&](uint32_t lowest) {
      if (!listed)
        return sum(s, lowest, [&](uint32_t key, int64_t i) -> uint64_t {
          return within.keeps(key, i) ? weigh(key) : 0;
        });
      uint64_t total = 0;
      for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(s.count);
           i += kSampleThreads)
        if (s.keys[i] >= lowest) total += weigh(s.keys[i]);
      return block_sum(total, s);
    };
    uint32_t low = within.key, high = key_of(max);
    listed = narrow(s, need, within, weigh, low, high);
    while (low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      if (from(middle) >= need)
        low = middle;
      else
        high = middle - 1;
    }
    // Of those with the last value, the first ones by id.
    const uint64_t above = low == 0xFFFFFFFFu ? 0 : from(low + 1), one = weigh(low);
    const auto tie = [&](uint32_t key, int64_t i) -> uint64_t {
      return key == low && within.keeps(key, i) ? 1 : 0;
    };
    const uint64_t ties = sum(s, low, tie);
    const uint64_t missing = need > above ? need - above : 1;
    const uint64_t kept = one == 0 ? ties : (missing + one - 1) / one;
    if (kept >= ties) return {low, low == within.key ? within.id : 0x7FFFFFFF};
    return {low, walk(s, low, kept - 1, tie)};
  }
};

}  // namespace quire::ops
