#pragma once
#include "ops/paged_attention/attention_launch.cuh"
#include "ops/paged_attention/attention_merge.cuh"
#include "ops/paged_attention/attention_prefill.cuh"

namespace quire::ops {

// A block's walk over the chunks of one item. A thread's rows are r = 16 m + lane / 4 + 8 h; what
// it keeps of a row, all threads of the row keep alike.
template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim>
struct AttentionWalk : AttentionTiles<T, Pool, kRowTiles, kColumnTiles, kDim> {
  using Tiles = AttentionTiles<T, Pool, kRowTiles, kColumnTiles, kDim>;
  using V = typename Tiles::V;
  using Tiles::p, Tiles::batch, Tiles::item, Tiles::kv_head;

  float m[kRowTiles][2], l[kRowTiles][2];  // of the chunk
  float c[kRowTiles][kColumnTiles][4];     // of the chunk
  AttentionTotal total[kRowTiles][2];
  float totals[kRowTiles][kColumnTiles][4];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int row_of(int i, int h) { return 16 * i + lane() / 4 + 8 * h; }

  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) total[i][h] = attention_begin(p, this->head(row_of(i, h)));
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) totals[i][n][j] = 0;
    }
  }
  __device__ void begin_chunk() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      m[i][0] = m[i][1] = -INFINITY;
      l[i][0] = l[i][1] = 0;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) c[i][n][j] = 0;
    }
  }

  // Scores of the warp's keys, -infinity where a row does not see the key; and their maxima.
  __device__ void score(int index, float (&s)[kRowTiles][4]) {
    this->multiply_keys(index, s);
    const int in_tile = warp() * 8 + lane() % 4 * 2;
    const int key = this->first_key() + index * kTileKeys + in_tile;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row_of(i, h);
        const AttentionRow row = this->rows()[r];
        float peak = -INFINITY;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = s[i][2 * h + j];
          if constexpr (Tiles::kCodes) score *= this->scales(index)[in_tile + j];
          const bool sees = key + j >= row.first && key + j < row.end;
          score = sees ? attention_score(p, row, key + j, score) : -INFINITY;
          peak = fmaxf(peak, score);
        }
        peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 1));
        peak = fmaxf(peak, __shfl_xor_sync(kWholeWarp, peak, 2));
        if (lane() % 4 == 0) this->maxima()[r * 8 + warp()] = peak;
      }
  }

  // The chunk's maximum grows to that of the tile, and its sums shrink.
  __device__ void grow() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* of_warps = this->maxima() + row_of(i, h) * 8;
        float peak = m[i][h];
#pragma unroll
        for (int w = 0; w < 8; ++w) peak = fmaxf(peak, of_warps[w]);
        const float shrink = attention_shrink(m[i][h], peak, p.exponent_scale);
        m[i][h] = peak;
        l[i][h] *= shrink;
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          c[i][n][2 * h] *= shrink;
          c[i][n][2 * h + 1] *= shrink;
        }
      }
  }

  // Probabilities of the warp's scores, and their sums over its 8 keys.
  __device__ void raise(int index, const float (&s)[kRowTiles][4]) {
    const int in_tile = warp() * 8 + lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row_of(i, h);
        const float offset = probability_offset(m[i][h], p.exponent_scale);
        float probability[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float score = s[i][2 * h + j];
          probability[j] = fast_probability(score, p.exponent_scale, offset);
        }
        float sum = probability[0] + probability[1];
        sum += __shfl_xor_sync(kWholeWarp, sum, 1);
        sum += __shfl_xor_sync(kWholeWarp, sum, 2);
        if (lane() % 4 == 0) this->sums()[r * 8 + warp()] = sum;
        if constexpr (Tiles::kCodes) {
          // The scale of a key that the row does not see may be no finite number.
          const float* scale = this->scales(index) + kTileKeys + in_tile;
          probability[0] *= s[i][2 * h] == -INFINITY ? 1.0f : scale[0];
          probability[1] *= s[i][2 * h + 1] == -INFINITY ? 1.0f : scale[1];
        }
        *reinterpret_cast<uint32_t*>(this->probabilities() +
                                     r * AttentionShapes::kProbabilityPitch + in_tile) =
            pack2(probability[0], probability[1], V());
      }
  }

  __device__ void add_sums() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* of_warps = this->sums() + row_of(i, h) * 8;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < 8; ++w) sum += of_warps[w];
        l[i][h] += sum;
      }
  }

  __device__ void add_all_not_finite(int index) {
    const int tiles = this->value_dim() / 8;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
        if (const int tile = warp() + n * 8; tile < tiles)
          this->add_not_finite(index, i * 16, tile * 8, c[i][n]);
  }

  // f(row tile, half, column, first of two neighbours).
  template <class F>
  __device__ void for_columns(F f) {
    const int tiles = this->value_dim() / 8;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
          if (warp() + n * 8 < tiles && row_of(i, h) < item.rows)
            f(i, h, n, (warp() + n * 8) * 8 + lane() % 4 * 2);
  }

  __device__ void join_chunk() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const JoinFactors f =
            attention_join(total[i][h], log2_maximum(m[i][h], p.exponent_scale), l[i][h]);
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
          for (int j = 2 * h; j < 2 * h + 2; ++j)
            totals[i][n][j] = join_value(f, totals[i][n][j], c[i][n][j]);
      }
  }

  // The chunk's result for the merge: [slot][kv head][Dv + 2], m and l last.
  __device__ void leave_chunk(int64_t slot) {
    const int64_t size = this->value_dim() + 2;
    const auto at = [&](int r) {
      return batch.partials + ((slot + r) * p.kv_heads + kv_head) * size;
    };
    for_columns([&](int i, int h, int n, int column) {
      float* to = at(row_of(i, h)) + column;
      to[0] = c[i][n][2 * h];
      to[1] = c[i][n][2 * h + 1];
    });
    if (warp() != 0 || lane() % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(i, h) >= item.rows) continue;
        float* to = at(row_of(i, h)) + this->value_dim();
        to[0] = log2_maximum(m[i][h], p.exponent_scale);
        to[1] = l[i][h];
      }
  }

  __device__ void write() {
    for_columns([&](int i, int h, int n, int column) {
      const int r = row_of(i, h);
      T* out =
          static_cast<T*>(p.out) + (this->token(r) * p.heads + this->head(r)) * this->value_dim();
      const float sum = total[i][h].l;
      *reinterpret_cast<uint32_t*>(out + column) =
          pack2(attention_divide(totals[i][n][2 * h], sum),
                attention_divide(totals[i][n][2 * h + 1], sum), T());
    });
    if (p.lse == nullptr || warp() != 0 || lane() % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (const int r = row_of(i, h); r < item.rows)
          p.lse[this->head(r) * p.lse_stride + this->token(r)] = attention_log_sum(total[i][h]);
  }

  // Tiles wait in `buffers` places; the slots of a chunk's keys are there a chunk ahead. Asks for
  // the first tiles whose keys are older than the item's rows, if it may: their number.
  __device__ int prepare(bool may_load) {
    const int count = this->tile_count();
    __syncthreads();  // the item before is done
    this->set_rows();
    this->slots(0)[threadIdx.x] = count > 0 ? this->find_slot(0) : -1;
    __syncthreads();
    const int most = may_load ? min(min(count, kTilesPerChunk), this->buffers() - 1) : 0;
    int loaded = 0;
    for (; loaded < most; ++loaded) {
      if (this->first_key() + (loaded + 1) * kTileKeys > item.position) break;
      this->load_tile(loaded);
    }
    return loaded;
  }

  // With the first tiles `loaded`.
  __device__ void run(int loaded) {
    const int buffers = this->buffers(), count = this->tile_count();
    this->load_queries();
    for (int index = 0; index + 1 < buffers; ++index) {
      if (index >= loaded && index < min(count, kTilesPerChunk)) this->load_tile(index);
      commit_copies();
    }
    __syncthreads();
    begin();
    int see_first, see_end;
    this->seen_by_all(see_first, see_end);
#pragma unroll 1
    for (int index = 0; index < count; ++index) {
      const int chunk = index / kTilesPerChunk, in_chunk = index % kTilesPerChunk;
      const bool starts = in_chunk == 0 && chunk + 1 < item.chunks;
      const int32_t slot = starts ? this->find_slot(chunk + 1) : -1;
      if (buffers == 4) wait_copies<2>();
      if (buffers == 3) wait_copies<1>();
      if (buffers == 2) wait_copies<0>();
      __syncthreads();
      if (in_chunk == 0) begin_chunk();
      if (starts) this->slots(chunk + 1)[threadIdx.x] = slot;
      // The tile after `buffers` - 1 others takes the place of the one before this.
      const int ahead = index + buffers - 1;
      if (ahead < count) this->load_tile(ahead);
      commit_copies();
      if (buffers == 1) {
        wait_copies<0>();
        __syncthreads();
      }
      float s[kRowTiles][4];
      score(index, s);
      __syncthreads();
      grow();
      raise(index, s);
      __syncthreads();
      add_sums();
      if (this->is_mixed(index, see_first, see_end) && !this->all_finite(index)) {
        add_all_not_finite(index);
        this->drop_not_finite(index);
      }
      this->multiply_values(index, c);
      if (in_chunk != kTilesPerChunk - 1 && index + 1 != count) continue;
      if (item.partial < 0)
        join_chunk();
      else
        leave_chunk(item.partial + chunk * item.rows);
    }
    wait_copies<0>();
    item.partial < 0 ? write() : merge_if_last<T>(p, batch, item, kv_head, {});
  }
};

// The items that a block has, each for a kv head: `first` and every `step`-th after it. The block
// has waited for no kernel yet.
template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim>
__device__ void attend_items(const AttentionKernelParams& p, const AttentionCudaBatch& batch,
                             const AttentionCudaItems& items, const AttentionShapes& shapes,
                             int64_t first, int64_t step) {
  extern __shared__ __align__(128) char shared[];
  allow_dependent();
  bool waits = true;
  const int64_t count = *items.count * p.kv_heads;
  for (int64_t i = first; i < count; i += step) {
    using Walk = AttentionWalk<T, Pool, kRowTiles, kColumnTiles, kDim>;
    Walk walk{
        {p, batch, shapes, shared, items.items[i / p.kv_heads], static_cast<int>(i % p.kv_heads)}};
    const int loaded = walk.prepare(!waits || batch.has_old_keys);
    if (waits) wait_for_kernels_before();
    waits = false;
    walk.run(loaded);
  }
  // One block is enough, and the others leave room for the next kernel's.
  if (waits && blockIdx.x == 0) wait_for_kernels_before();
}

template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kRowTiles == 1 && kColumnTiles <= 2 ? 2 : 1)
    hot_attend(const AttentionKernelParams p, const AttentionCudaBatch batch,
               const AttentionCudaItems items, const AttentionShapes shapes) {
  attend_items<T, Pool, kRowTiles, kColumnTiles, kDim>(p, batch, items, shapes, blockIdx.x,
                                                       gridDim.x);
}

// Not marked hot: many rows of values of more than 256 elements, and few rows of floats of 8 bits,
// keep a register or two in memory.
template <class Pool, int kRowTiles, int kColumnTiles>
constexpr bool kAttendSpills = (kRowTiles == 2 && kColumnTiles == 8) ||
                               (std::is_same_v<Pool, F8> && kRowTiles == 1 && kColumnTiles == 2);
template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, kRowTiles == 1 && kColumnTiles <= 2 ? 2 : 1)
    attend(const AttentionKernelParams p, const AttentionCudaBatch batch,
           const AttentionCudaItems items, const AttentionShapes shapes) {
  attend_items<T, Pool, kRowTiles, kColumnTiles, kDim>(p, batch, items, shapes, blockIdx.x,
                                                       gridDim.x);
}

template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim>
constexpr auto attend_kernel() {
  if constexpr (kAttendSpills<Pool, kRowTiles, kColumnTiles>)
    return attend<T, Pool, kRowTiles, kColumnTiles, kDim>;
  else
    return hot_attend<T, Pool, kRowTiles, kColumnTiles, kDim>;
}

inline constexpr int kHalfShared = 113 * 1024;

template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim = 0>
void launch_attention(CudaStream stream, const AttentionKernelParams& p,
                      const AttentionCudaBatch& batch, const AttentionCudaItems& items) {
  AttentionShapes shapes = attention_shapes(p, kRowTiles * 16, /*buffers=*/4);
  // Two blocks a multiprocessor if three tiles fit in that, else one block with what fits.
  if (kRowTiles == 1 && shapes.bytes() > kHalfShared) shapes.buffers = 3;
  while (shapes.buffers > 1 && !has_room_for(shapes, cuda_traits().block_memory)) --shapes.buffers;
  using Tiles = AttentionTiles<T, Pool, kRowTiles, kColumnTiles, kDim>;
  if (kDim > 0) shapes.buffers = Tiles::kBuffers;
  constexpr int64_t kMostBlocks = 132 * 2;
  const int64_t blocks = items.max_count * p.kv_heads;
  launch("paged_attention", stream, attend_kernel<T, Pool, kRowTiles, kColumnTiles, kDim>(),
         dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)),
         kAttentionThreads, static_cast<size_t>(shapes.bytes()), p, batch, items, shapes);
}

// Few rows of values of up to 128 elements.
template <class T, class Pool>
void run_few_narrow(CudaStream stream, const AttentionKernelParams& p, const AttentionCudaBatch& b,
                    AttentionCudaKernel kernel) {
  if constexpr (sizeof(Pool) > 1) {
    if (kernel == AttentionCudaKernel::kShared) return run_shared_chunks(stream, p, b);
    if (kernel == AttentionCudaKernel::kTilesOf128)
      return launch_attention<T, Pool, 1, 2, 128>(stream, p, b, b.few);
  }
  launch_attention<T, Pool, 1, 2>(stream, p, b, b.few);
}

// Many of them.
template <class T, class Pool>
void run_many_narrow(CudaStream stream, const AttentionKernelParams& p, const AttentionCudaBatch& b,
                     AttentionCudaKernel kernel) {
  if constexpr (sizeof(Pool) == 1) {
    launch_attention<T, Pool, 4, 2>(stream, p, b, b.many);
  } else {
    if (kernel == AttentionCudaKernel::kWgmmaPrefill) return run_wgmma_prefill(stream, p, b);
    if (kernel != AttentionCudaKernel::kPrefill)
      launch_attention<T, Pool, 2, 2>(stream, p, b, b.many);
    else if (p.value_dim <= 64)
      launch_prefill<T, 8>(stream, p, b);
    else
      launch_prefill<T, 16>(stream, p, b);
  }
}

// Both lists of items; a list without items launches nothing.
template <class T, class Pool>
void run_attention_tiles(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& b, const AttentionCudaChoice& choice) {
  if (p.value_dim <= 128) {
    run_few_narrow<T, Pool>(stream, p, b, choice.few);
    run_many_narrow<T, Pool>(stream, p, b, choice.many);
  } else if (p.value_dim <= 256) {
    launch_attention<T, Pool, 1, 4>(stream, p, b, b.few);
    launch_attention<T, Pool, 2, 4>(stream, p, b, b.many);
  } else {
    launch_attention<T, Pool, 1, 8>(stream, p, b, b.few);
    launch_attention<T, Pool, 2, 8>(stream, p, b, b.many);
  }
}

}  // namespace quire::ops
