#include <algorithm>
#include <climits>

#include "ops/cuda/hopper.cuh"
#include "ops/paged_attention/attention_kernel.cuh"
#include "ops/paged_attention/attention_launch.cuh"

// Attention of few rows on Hopper in steps of few sequences. If there are no more chunks of keys
// than clusters of four blocks, a cluster shares a chunk: each block has the scores of one of its
// tiles of 64 keys, which it gives to all four, and the sums of a quarter of the values' columns.
// So tiles do not take turns but for the sums, which are those of attention_kernel.cuh, operation
// by operation: the bits are the same. Longer contexts are that kernel's. Which one a step has is
// known when it is launched or recorded: one that found nothing to do would cost 1 us a layer, and
// clusters that walk long contexts, too, take a third longer.
namespace quire::ops {
namespace {

using T = DeviceBf16;

constexpr int kShares = kAttentionShares;
static_assert(kShares == kTilesPerChunk);
constexpr int kChunkKeys = static_cast<int>(kAttentionChunk);

template <int kDim>
struct SharedWalk : AttentionTiles<T, T, 1, 2, kDim> {
  using Base = AttentionTiles<T, T, 1, 2, kDim>;
  using Base::p, Base::batch, Base::item, Base::kv_head, Base::kRows, Base::kPitch;

  static constexpr AttentionShapes kRest = {
      .rows = kRows, .key_pitch = kPitch, .value_pitch = 0, .scale_bytes = 0, .buffers = 0};
  static constexpr int kColumns = kDim / kShares, kColumnWarps = kColumns / 8;
  static constexpr int kValuePitch = kColumns + 8, kChunkPitch = kChunkKeys + 8;
  static constexpr int kKeyBytes = kTileKeys * kPitch * 2;
  static constexpr int kValueBytes = kChunkKeys * kValuePitch * 2;
  // Of each tile, row and warp, then the same of sums.
  static constexpr int kMaximaBytes = kTilesPerChunk * kRows * 8 * 4;
  static constexpr int kSharedBytes =
      kRest.bytes() + kKeyBytes + kValueBytes + kRows * kChunkPitch * 6 + 2 * kMaximaBytes;
  static_assert(kRest.bytes() % 16 == 0 && kSharedBytes <= kHalfShared);

  int share;
  Barrier* scores_are_there;
  int see_first, see_end;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int row_of(int h) { return lane() / 4 + 8 * h; }
  // The thread's first key of two, in a tile.
  __device__ static int key_of() { return warp() * 8 + lane() % 4 * 2; }
  __device__ int column() const { return share * kColumns + warp() * 8 + lane() % 4 * 2; }
  // Which rows there are is the same for a row's threads, and h = 1 for most items none.
  __device__ bool has_row(int h) const { return row_of(h) < item.rows; }

  __device__ char* own() const { return this->shared + kRest.bytes(); }
  __device__ T* chunk_keys() const { return reinterpret_cast<T*>(own()); }
  __device__ T* chunk_values() const { return reinterpret_cast<T*>(own() + kKeyBytes); }
  __device__ float* scores() const {  // [rows][kChunkPitch]
    return reinterpret_cast<float*>(own() + kKeyBytes + kValueBytes);
  }
  __device__ float* tile_maxima(int tile, int r) const {  // of the 8 warps
    return scores() + kRows * kChunkPitch + (tile * kRows + r) * 8;
  }
  __device__ float* tile_sums(int tile, int r) const {
    return tile_maxima(tile, r) + kMaximaBytes / 4;
  }
  __device__ T* chunk_probabilities() const {  // [rows][kChunkPitch]
    return reinterpret_cast<T*>(tile_sums(kTilesPerChunk, 0));
  }

  __device__ bool has_one_chunk() const {
    return item.chunks == 1 && item.context > this->first_key();
  }

  // Where a key's row lies in the pools; of one beyond the context, the last one's.
  __device__ int64_t pool_row(int key) const {
    const int there = min(key, item.context - 1), size = static_cast<int>(p.block_size);
    const int64_t slot = int64_t{batch.blocks[item.blocks + there / size]} * size + there % size;
    return (slot * p.kv_heads + kv_head) * kDim;
  }
  // The block's share of the chunk, of the keys at [begin, end); zeros beyond the context. Four
  // threads a key.
  __device__ void load(int begin, int end) const {
    const int in_tile = static_cast<int>(threadIdx.x) / 4, part = static_cast<int>(threadIdx.x) % 4;
    const int first = this->first_key() + in_tile;
    const int own = first + share * kTileKeys;
    const int64_t own_row = pool_row(own);
    int64_t rows[kTilesPerChunk];
#pragma unroll
    for (int tile = 0; tile < kTilesPerChunk; ++tile)
      rows[tile] = pool_row(first + tile * kTileKeys);
    if (own >= begin && own < end) {
      const T* k = static_cast<const T*>(p.k) + own_row;
      T* to = chunk_keys() + in_tile * kPitch;
#pragma unroll
      for (int i = part; i < kDim / 8; i += 4)
        copy_async(to + i * 8, k + i * 8, own < item.context ? 16 : 0);
    }
    T* to = chunk_values() + in_tile * kValuePitch + part * 8;
#pragma unroll
    for (int tile = 0; tile < kTilesPerChunk; ++tile) {
      const int key = first + tile * kTileKeys;
      const T* v = static_cast<const T*>(p.v) + rows[tile] + share * kColumns + part * 8;
      if (key >= begin && key < end && part < kColumnWarps)
        copy_async(to + tile * kTileKeys * kValuePitch, v, key < item.context ? 16 : 0);
    }
  }

  // Scores of the warp's keys of the block's tile, -infinity where a row does not see the key, for
  // all four blocks.
  __device__ void give_scores() const {
    float s[4] = {};
    const T* key = chunk_keys() + (warp() * 8 + lane() % 8) * kPitch + lane() / 8 * 8;
    const T* query = this->queries() + (lane() % 16) * kPitch + lane() / 16 * 8;
#pragma unroll
    for (int step = 0; step < kDim / 16; step += 2) {
      const uint4 b = load_matrices(key + step * 16);
      mma(s, load_matrices(query + step * 16), b.x, b.y, T());
      mma(s, load_matrices(query + step * 16 + 16), b.z, b.w, T());
    }
    const int first = this->first_key() + share * kTileKeys + key_of();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!has_row(h)) continue;
      const AttentionRow row = this->rows()[row_of(h)];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const bool sees = first + j >= row.first && first + j < row.end;
        s[2 * h + j] = sees ? attention_score(p, row, first + j, s[2 * h + j]) : -INFINITY;
      }
      const uint32_t at =
          shared_address(scores() + row_of(h) * kChunkPitch + share * kTileKeys + key_of());
      const uint32_t barrier = scores_are_there->address();
#pragma unroll
      for (int i = 0; i < kShares; ++i)
        send_in_cluster(address_in_cluster(at, i), s[2 * h], s[2 * h + 1],
                        address_in_cluster(barrier, i));
    }
  }

  // The thread's scores of all tiles, and their maxima.
  __device__ void take_scores(int tiles, float2 (&s)[kTilesPerChunk][2]) const {
#pragma unroll
    for (int tile = 0; tile < kTilesPerChunk; ++tile)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        s[tile][h] = make_float2(-INFINITY, -INFINITY);
        if (has_row(h) && tile < tiles)
          s[tile][h] = *reinterpret_cast<const float2*>(scores() + row_of(h) * kChunkPitch +
                                                        tile * kTileKeys + key_of());
        float peak = fmaxf(s[tile][h].x, s[tile][h].y);
        peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 2));
        if (lane() % 4 == 0) tile_maxima(tile, row_of(h))[warp()] = peak;
      }
  }

  // Probabilities of the thread's scores, and their sums over the warp's 8 keys; the chunk's
  // maximum as it has grown, and what shrinks sums before each tile.
  __device__ void raise(int tiles, const float2 (&s)[kTilesPerChunk][2], float (&m)[2],
                        float (&shrink)[kTilesPerChunk][2]) const {
    m[0] = m[1] = -INFINITY;
#pragma unroll
    for (int tile = 0; tile < kTilesPerChunk; ++tile) {
      if (tile >= tiles) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float peak = m[h];
#pragma unroll
        for (int w = 0; w < 8; ++w) peak = fmaxf(peak, tile_maxima(tile, row_of(h))[w]);
        shrink[tile][h] = attention_shrink(m[h], peak, p.exponent_scale);
        m[h] = peak;
        const float offset = probability_offset(m[h], p.exponent_scale);
        const float a = fast_probability(s[tile][h].x, p.exponent_scale, offset);
        const float b = fast_probability(s[tile][h].y, p.exponent_scale, offset);
        float sum = a + b;
        sum += __shfl_xor_sync(kWholeWarp, sum, 1);
        sum += __shfl_xor_sync(kWholeWarp, sum, 2);
        if (lane() % 4 == 0) tile_sums(tile, row_of(h))[warp()] = sum;
        *reinterpret_cast<uint32_t*>(chunk_probabilities() + row_of(h) * kChunkPitch +
                                     tile * kTileKeys + key_of()) = pack2(a, b, T());
      }
    }
  }

  // Values that are no finite numbers, in a tile with keys that not all rows see: their products
  // are added to `c`, and zeros take their place. Of the warp's columns, which it alone reads.
  __device__ void drop_not_finite(int tile, float (&c)[4]) const {
    T* values = chunk_values() + tile * kTileKeys * kValuePitch + warp() * 8;
    uint4* low = reinterpret_cast<uint4*>(values + lane() * kValuePitch);
    uint4* high = reinterpret_cast<uint4*>(values + (lane() + 32) * kValuePitch);
    uint4 kept_low = *low, kept_high = *high;
    const bool low_is_finite = keep_finite(kept_low, T());
    const bool high_is_finite = keep_finite(kept_high, T());
    if (__all_sync(kWholeWarp, low_is_finite && high_is_finite)) return;
    const auto probability_of = [&](int r) {
      return chunk_probabilities() + r * kChunkPitch + tile * kTileKeys;
    };
    const auto values_at = [&](int key) { return values + key * kValuePitch + lane() % 4 * 2; };
    this->add_not_finite(tile, 0, probability_of, values_at, c);
    __syncwarp();
    *low = kept_low;
    *high = kept_high;
    __syncwarp();
  }

  // The chunk's sums of the warp's columns, and of probabilities.
  __device__ void add_values(int tiles, const float (&shrink)[kTilesPerChunk][2], float (&c)[4],
                             float (&l)[2]) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) c[j] = 0;
    l[0] = l[1] = 0;
    const T* probability = chunk_probabilities() + (lane() % 16) * kChunkPitch + lane() / 16 * 8;
    const T* value = chunk_values() + lane() * kValuePitch + warp() * 8;
#pragma unroll
    for (int tile = 0; tile < kTilesPerChunk; ++tile) {
      if (tile >= tiles) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        c[2 * h] *= shrink[tile][h];
        c[2 * h + 1] *= shrink[tile][h];
        float sum = 0;
#pragma unroll
        for (int w = 0; w < 8; ++w) sum += tile_sums(tile, row_of(h))[w];
        l[h] = l[h] * shrink[tile][h] + sum;
      }
      if (this->is_mixed(tile, see_first, see_end)) drop_not_finite(tile, c);
#pragma unroll
      for (int step = tile * kTileKeys; step < (tile + 1) * kTileKeys; step += 32) {
        const uint4 b = load_matrices_transposed(value + step * kValuePitch);
        mma(c, load_matrices(probability + step), b.x, b.y, T());
        mma(c, load_matrices(probability + step + 16), b.z, b.w, T());
      }
    }
  }

  // The chunk's result for the merge: [slot][kv head][D + 2], m and l last; those each block
  // writes, as its columns' merge reads them, and all write the same.
  __device__ void leave(const float (&c)[4], const float (&m)[2], const float (&l)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!has_row(h)) continue;
      const int64_t slot = item.partial + row_of(h);
      float* to = batch.partials + (slot * p.kv_heads + kv_head) * (kDim + 2);
      *reinterpret_cast<float2*>(to + column()) = make_float2(c[2 * h], c[2 * h + 1]);
      if (warp() == 0 && lane() % 4 == 0)
        *reinterpret_cast<float2*>(to + kDim) =
            make_float2(log2_maximum(m[h], p.exponent_scale), l[h]);
    }
  }

  // The item's, whose only chunk it is.
  __device__ void write(const float (&c)[4], const float (&m)[2], const float (&l)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!has_row(h)) continue;
      const int64_t token = this->token(row_of(h)), head = this->head(row_of(h));
      AttentionTotal total = attention_begin(p, head);
      const JoinFactors f = attention_join(total, log2_maximum(m[h], p.exponent_scale), l[h]);
      const float a = join_value(f, 0.0f, c[2 * h]), b = join_value(f, 0.0f, c[2 * h + 1]);
      T* out = static_cast<T*>(p.out) + (token * p.heads + head) * kDim + column();
      *reinterpret_cast<uint32_t*>(out) =
          pack2(attention_divide(a, total.l), attention_divide(b, total.l), T());
      if (p.lse != nullptr && share == 0 && warp() == 0 && lane() % 4 == 0)
        p.lse[head * p.lse_stride + token] = attention_log_sum(total);
    }
  }

  // What is there before the kernels before this one end: with `has_old_keys` the older keys, too.
  __device__ void prepare() const {
    this->set_rows();
    if (threadIdx.x == 0)
      scores_are_there->expect_bytes(item.rows * kChunkKeys * static_cast<int>(sizeof(float)));
    if (batch.has_old_keys) load(0, item.position);
  }

  __device__ void run() {
    this->load_queries();
    load(batch.has_old_keys ? item.position : 0, INT_MAX);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    this->seen_by_all(see_first, see_end);
    wait_for_cluster();
    give_scores();
    scores_are_there->wait_for_cluster_data(0);
    const int tiles = this->tile_count();
    float2 s[kTilesPerChunk][2];
    take_scores(tiles, s);
    __syncthreads();
    float m[2], shrink[kTilesPerChunk][2];
    raise(tiles, s, m, shrink);
    __syncthreads();
    if (warp() < kColumnWarps) {
      float c[4], l[2];
      add_values(tiles, shrink, c, l);
      item.partial < 0 ? write(c, m, l) : leave(c, m, l);
    }
    if (item.partial >= 0) merge_if_last<T>(p, batch, item, kv_head, {share, kShares});
  }
};

template <int kDim>
__global__ void __launch_bounds__(kAttentionThreads, 2)
    hot_attend_shared(const __grid_constant__ AttentionKernelParams p,
                      const __grid_constant__ AttentionCudaBatch batch,
                      const __grid_constant__ AttentionShapes shapes) {
  extern __shared__ __align__(128) char shared[];
  __shared__ Barrier scores_are_there;
  allow_dependent();
  if (threadIdx.x == 0) {
    scores_are_there.init(1);
    publish_barriers();
  }
  __syncthreads();
  arrive_in_cluster();
  const int kv_heads = static_cast<int>(p.kv_heads), count = *batch.few.count * kv_heads;
  const int clusters = static_cast<int>(gridDim.x) / kShares;
  const int cluster = static_cast<int>(blockIdx.x) / kShares, share = rank_in_cluster();
  if (cluster < count) {
    SharedWalk<kDim> walk{{p, batch, SharedWalk<kDim>::kRest, shared,
                           batch.few.items[cluster / kv_heads], cluster % kv_heads},
                          share,
                          &scores_are_there};
    if (walk.has_one_chunk()) {
      walk.prepare();
      wait_for_kernels_before();
      return walk.run();
    }
  }
  wait_for_cluster();
  // An item of several chunks, or none, is one block's.
  const int first = share == 0 ? cluster : count;
  attend_items<T, T, 1, 2, kDim>(p, batch, batch.few, shapes, first, clusters);
}

template <int kDim>
void launch_shared(CudaStream stream, const AttentionKernelParams& p,
                   const AttentionCudaBatch& batch) {
  const AttentionShapes shapes = {
      .rows = 16, .key_pitch = kDim + 8, .value_pitch = kDim + 8, .scale_bytes = 0, .buffers = 3};
  static_assert(AttentionTiles<T, T, 1, 2, kDim>::kBuffers == 3);
  const int64_t clusters = batch.few.max_count * p.kv_heads;
  launch_clusters("paged_attention", stream, hot_attend_shared<kDim>,
                  dim3(static_cast<unsigned>(clusters * kShares)), kShares, kAttentionThreads,
                  static_cast<size_t>(std::max(SharedWalk<kDim>::kSharedBytes, shapes.bytes())), p,
                  batch, shapes);
}

}  // namespace

void run_shared_chunks(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch) {
  p.key_dim == 64 ? launch_shared<64>(stream, p, batch) : launch_shared<128>(stream, p, batch);
}

}  // namespace quire::ops
