#pragma once
#include "ops/paged_attention/attention_tiles.cuh"

// Attention of many rows whose keys and values have up to 128 columns of 16 bits: a warp has 16
// rows and all keys of a tile, so that scores and probabilities stay in its registers. The
// arithmetic of a row is that of attention_kernel.cuh, operation by operation.
namespace quire::ops {

inline constexpr int kPrefillRows = 128;

template <class T, int kValueTiles>
struct PrefillWalk : AttentionTiles<T, T, kPrefillRows / 16, kValueTiles> {
  using Tiles = AttentionTiles<T, T, kPrefillRows / 16, kValueTiles>;
  using Tiles::p, Tiles::batch, Tiles::item, Tiles::kv_head, Tiles::shapes;
  static constexpr int kKeyTiles = kTileKeys / 8;

  float m[2], l[2];         // of the chunk; rows lane / 4 and lane / 4 + 8 of the warp's
  float c[kValueTiles][4];  // of the chunk
  AttentionTotal total[2];
  float totals[kValueTiles][4];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int row_of(int h) { return warp() * 16 + lane() / 4 + 8 * h; }

  __device__ void begin_chunk() {
#pragma unroll
    for (int h = 0; h < 2; ++h) m[h] = -INFINITY, l[h] = 0;
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) c[n][j] = 0;
  }

  __device__ void multiply_all_keys(int index, float (&s)[kKeyTiles][4]) const {
    const int steps = (shapes.key_pitch - 8) / 16;
    const T* query =
        this->queries() + (warp() * 16 + lane() % 16) * shapes.key_pitch + lane() / 16 * 8;
    // Two tiles of 8 keys a load: rows lane % 8 and 8 further, columns 0 and 8 of the step.
    const T* key =
        this->keys(index) + (lane() / 16 * 8 + lane() % 8) * shapes.key_pitch + lane() / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[n][j] = 0;
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
      const uint4 a = load_matrices(query + step * 16);
#pragma unroll
      for (int n = 0; n < kKeyTiles; n += 2) {
        const uint4 b = load_matrices(key + n * 8 * shapes.key_pitch + step * 16);
        mma(s[n], a, b.x, b.y, T());
        mma(s[n + 1], a, b.z, b.w, T());
      }
    }
  }

  // Scores where the row sees the key, else -infinity; the maximum grows and sums shrink. kPlain:
  // there is neither a soft cap nor a slope.
  template <bool kPlain>
  __device__ void grow(int index, float (&s)[kKeyTiles][4]) {
    const int tile = this->first_key() + index * kTileKeys, first = tile + lane() % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const AttentionRow row = this->rows()[row_of(h)];
      if constexpr (!kPlain) {
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            s[n][2 * h + j] = attention_score(p, row, first + n * 8 + j, s[n][2 * h + j]);
      }
      const bool sees_all = row.first <= tile && row.end >= tile + kTileKeys;
      if (__any_sync(kWholeWarp, !sees_all) != 0) {
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int key = first + n * 8 + j;
            if (key < row.first || key >= row.end) s[n][2 * h + j] = -INFINITY;
          }
      }
      float peak = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) peak = fmaxf(peak, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 2));
      peak = fmaxf(peak, m[h]);
      const float shrink = attention_shrink(m[h], peak, p.exponent_scale);
      m[h] = peak;
      l[h] *= shrink;
      if (__all_sync(kWholeWarp, shrink == 1.0f)) continue;
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n) {
        c[n][2 * h] *= shrink;
        c[n][2 * h + 1] *= shrink;
      }
    }
  }

  // Probabilities in place of scores, and their sum: per 8 keys by a tree, those in ascending
  // order.
  __device__ void raise(float (&s)[kKeyTiles][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float offset = probability_offset(m[h], p.exponent_scale);
      float all = 0;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = s[n][2 * h + j];
          score = fast_probability(score, p.exponent_scale, offset);
        }
        float sum = s[n][2 * h] + s[n][2 * h + 1];
        sum += __shfl_xor_sync(kWholeWarp, sum, 1);
        sum += __shfl_xor_sync(kWholeWarp, sum, 2);
        all += sum;
      }
      l[h] += all;
    }
  }

  __device__ void multiply_all_values(int index, const float (&s)[kKeyTiles][4]) {
    const T* value = this->values(index) + (lane() % 16) * shapes.value_pitch + lane() / 16 * 8;
    const int tiles = static_cast<int>(p.value_dim) / 8;
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
      const float(&low)[4] = s[2 * step];
      const float(&high)[4] = s[2 * step + 1];
      const uint4 a = make_uint4(pack2(low[0], low[1], T()), pack2(low[2], low[3], T()),
                                 pack2(high[0], high[1], T()), pack2(high[2], high[3], T()));
#pragma unroll
      for (int n = 0; n < kValueTiles; n += 2) {
        if (n >= tiles) continue;  // of two, the second may not exist; nothing reads its sums
        const uint4 b = load_matrices_transposed(value + step * 16 * shapes.value_pitch + n * 8);
        mma(c[n], a, b.x, b.y, T());
        mma(c[n + 1], a, b.z, b.w, T());
      }
    }
  }

  // Probabilities into shared memory, where a thread finds those of all keys.
  __device__ void leave_probabilities(const float (&s)[kKeyTiles][4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      T* probability =
          this->probabilities() + row_of(h) * AttentionShapes::kProbabilityPitch + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n)
        *reinterpret_cast<uint32_t*>(probability + n * 8) =
            pack2(s[n][2 * h], s[n][2 * h + 1], T());
    }
    __syncwarp();
  }
  __device__ void add_all_not_finite(int index, const float (&s)[kKeyTiles][4]) {
    const int tiles = static_cast<int>(p.value_dim) / 8;
    leave_probabilities(s);
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
      if (n < tiles) this->add_not_finite(index, warp() * 16, n * 8, c[n]);
  }

  __device__ void join_chunk() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const JoinFactors f = attention_join(total[h], log2_maximum(m[h], p.exponent_scale), l[h]);
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; ++j) totals[n][j] = join_value(f, totals[n][j], c[n][j]);
    }
  }

  __device__ void write() const {
    const int tiles = static_cast<int>(p.value_dim) / 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row_of(h);
      if (r >= item.rows) continue;
      const int64_t token = this->token(r), head = this->head(r);
      T* out = static_cast<T*>(p.out) + (token * p.heads + head) * p.value_dim + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kValueTiles; ++n)
        if (n < tiles)
          *reinterpret_cast<uint32_t*>(out + n * 8) =
              pack2(attention_divide(totals[n][2 * h], total[h].l),
                    attention_divide(totals[n][2 * h + 1], total[h].l), T());
      if (p.lse != nullptr && lane() % 4 == 0)
        p.lse[head * p.lse_stride + token] = attention_log_sum(total[h]);
    }
  }

  // A tile that some row of the warp sees; or, if not all of its values are finite, of the block.
  __device__ void walk_tile(int index, bool all_finite) {
    float s[kKeyTiles][4];
    multiply_all_keys(index, s);
    p.softcap <= 0 && p.alibi == nullptr ? grow<true>(index, s) : grow<false>(index, s);
    raise(s);
    if (!all_finite) {
      add_all_not_finite(index, s);
      this->drop_not_finite(index);
    }
    multiply_all_values(index, s);
  }

  // Beyond the last key that a row of the warp sees.
  __device__ int last_key() const {
    return __reduce_max_sync(kWholeWarp,
                             max(this->rows()[row_of(0)].end, this->rows()[row_of(1)].end));
  }

  __device__ void begin() {
#pragma unroll
    for (int h = 0; h < 2; ++h) total[h] = attention_begin(p, this->head(row_of(h)));
#pragma unroll
    for (int n = 0; n < kValueTiles; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) totals[n][j] = 0;
  }

  // Three tiles wait in shared memory; the slots of a chunk's keys are there a chunk ahead.
  __device__ void run() {
    const int count = this->tile_count();
    __syncthreads();
    this->slots(0)[threadIdx.x] = count > 0 ? this->find_slot(0) : -1;
    this->set_rows();
    this->load_queries();
    __syncthreads();
    for (int index = 0; index < 2; ++index) {
      if (index < count) this->load_tile(index);
      commit_copies();
    }
    begin();
    const int end = last_key();
    int see_first, see_end;
    this->seen_by_all(see_first, see_end);
#pragma unroll 1
    for (int index = 0; index < count; ++index) {
      const int chunk = index / kTilesPerChunk, in_chunk = index % kTilesPerChunk;
      const bool starts = in_chunk == 0 && chunk + 1 < item.chunks;
      const int32_t slot = starts ? this->find_slot(chunk + 1) : -1;
      wait_copies<1>();
      __syncthreads();
      if (starts) this->slots(chunk + 1)[threadIdx.x] = slot;
      if (index + 2 < count) this->load_tile(index + 2);
      commit_copies();
      if (in_chunk == 0) begin_chunk();
      const bool all_finite = !this->is_mixed(index, see_first, see_end) || this->all_finite(index);
      if (!all_finite || this->first_key() + index * kTileKeys < end) walk_tile(index, all_finite);
      if (in_chunk == kTilesPerChunk - 1 || index + 1 == count) join_chunk();
    }
    wait_copies<0>();
    write();
  }
};

// Not marked hot: Hopper's kernel takes these rows (attention_prefill_sm90_cuda.cu), and heads of
// 128 keep some registers in memory here.
template <class T, int kValueTiles>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attend_many(const AttentionKernelParams p, const AttentionCudaBatch batch,
                const AttentionCudaItems items, const AttentionShapes shapes) {
  extern __shared__ __align__(128) char shared[];
  begin_dependent();
  const int64_t count = *items.count * p.kv_heads;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    PrefillWalk<T, kValueTiles> walk{
        {p, batch, shapes, shared, items.items[i / p.kv_heads], static_cast<int>(i % p.kv_heads)}};
    walk.run();
  }
}

template <class T, int kValueTiles>
void launch_prefill(CudaStream stream, const AttentionKernelParams& p,
                    const AttentionCudaBatch& batch) {
  const AttentionShapes shapes = attention_shapes(p, kPrefillRows, /*buffers=*/3);
  constexpr int64_t kMostBlocks = 132;
  const int64_t blocks = batch.many.max_count * p.kv_heads;
  launch("paged_attention", stream, attend_many<T, kValueTiles>,
         dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
         kAttentionThreads, static_cast<size_t>(shapes.bytes()), p, batch, batch.many, shapes);
}

}  // namespace quire::ops
