#pragma once
#include <type_traits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/paged_attention/attention_softmax.cuh"

// Attention by tensor cores: a block of 8 warps has kRowTiles x 16 query rows of one kv head and
// walks keys in tiles of 64. For the scores a warp has 8 of the keys, for the sums of values every
// eighth 8 columns.
namespace quire::ops {

inline constexpr int kAttentionThreads = 256, kTileKeys = AttentionShapes::kTileKeys;
inline constexpr int kTilesPerChunk = static_cast<int>(kAttentionChunk) / kTileKeys;

static_assert(AttentionShapes::kRowBytes ==
              kAttentionThreads / 32 * 2 * sizeof(float) + sizeof(AttentionRow));

// Elements that are no finite numbers become zeros; whether there was none.
__device__ inline bool keep_finite(uint32_t& pair, uint32_t exponent) {
  const bool low = (pair & exponent) != exponent, high = (pair >> 16 & exponent) != exponent;
  pair &= (low ? 0xFFFFu : 0u) | (high ? 0xFFFF0000u : 0u);
  return low && high;
}
__device__ inline bool keep_finite(uint4& v, uint32_t exponent) {
  const bool x = keep_finite(v.x, exponent), y = keep_finite(v.y, exponent);
  const bool z = keep_finite(v.z, exponent), w = keep_finite(v.w, exponent);
  return x && y && z && w;
}
__device__ inline bool keep_finite(uint4& v, DeviceBf16) { return keep_finite(v, 0x7F80u); }

// T: dtype of queries and keys; Pool: of the pools, T or codes; V: of values and probabilities.
// kDim: both head sizes, known when it is compiled, with three buffers; 0: as params and shapes
// say.
template <class T, class Pool, int kRowTiles, int kColumnTiles, int kDim = 0>
struct AttentionTiles {
  using V = std::conditional_t<std::is_same_v<T, Pool>, T, DeviceBf16>;
  static constexpr bool kCodes = sizeof(Pool) == 1;
  static constexpr int kRows = kRowTiles * 16;
  static constexpr int kPitch = kDim + 8, kBuffers = 3;  // where kDim is known
  static_assert(kDim % 32 == 0 && (kDim == 0 || !kCodes));

  const AttentionKernelParams& p;
  const AttentionCudaBatch& batch;
  AttentionShapes shapes;
  char* shared;
  AttentionCudaItem item;
  int kv_head;

  __device__ int key_pitch() const { return kDim > 0 ? kPitch : shapes.key_pitch; }
  __device__ int value_pitch() const { return kDim > 0 ? kPitch : shapes.value_pitch; }
  __device__ int key_dim() const { return kDim > 0 ? kDim : static_cast<int>(p.key_dim); }
  __device__ int value_dim() const { return kDim > 0 ? kDim : static_cast<int>(p.value_dim); }
  __device__ int buffers() const { return kDim > 0 ? kBuffers : shapes.buffers; }
  __device__ int tile_bytes() const {
    return kDim > 0 ? kTileKeys * 2 * kPitch * 2 : shapes.tile_bytes() + shapes.scale_bytes;
  }

  __device__ T* queries() const { return reinterpret_cast<T*>(shared); }
  __device__ V* probabilities() const {
    return reinterpret_cast<V*>(shared + kRows * key_pitch() * 2);
  }
  __device__ float* maxima() const {  // [rows][8 warps]
    return reinterpret_cast<float*>(probabilities() + kRows * AttentionShapes::kProbabilityPitch);
  }
  __device__ float* sums() const { return maxima() + kRows * 8; }
  __device__ AttentionRow* rows() const {
    return reinterpret_cast<AttentionRow*>(sums() + kRows * 8);
  }
  __device__ int32_t* slots(int chunk) const {  // of the chunk's keys
    return reinterpret_cast<int32_t*>(rows() + kRows) + chunk % 2 * kAttentionChunk;
  }
  __device__ char* tile(int index) const {
    return reinterpret_cast<char*>(rows() + kRows) + AttentionShapes::kSlotBytes +
           index % buffers() * tile_bytes();
  }
  __device__ T* keys(int index) const { return reinterpret_cast<T*>(tile(index)); }
  __device__ V* values(int index) const {
    return reinterpret_cast<V*>(keys(index) + kTileKeys * key_pitch());
  }
  __device__ float* scales(int index) const {  // [2][64]: of keys, of values
    return reinterpret_cast<float*>(values(index) + kTileKeys * value_pitch());
  }

  __device__ int group() const { return static_cast<int>(p.heads) / static_cast<int>(p.kv_heads); }
  // Tiles of the item that have keys.
  __device__ int tile_count() const {
    return max(0, min(item.chunks * kTilesPerChunk,
                      (item.context - first_key() + kTileKeys - 1) / kTileKeys));
  }
  __device__ int first_key() const { return item.chunk * static_cast<int>(kAttentionChunk); }
  // Row r of the item: its token, and its head.
  __device__ int64_t token(int r) const {
    return item.token + (item.row + min(r, item.rows - 1)) / group();
  }
  __device__ int64_t head(int r) const {
    return kv_head * group() + (item.row + min(r, item.rows - 1)) % group();
  }

  // What the rows see: known before the kernels before this one end.
  __device__ void set_rows() const {
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kAttentionThreads) {
      rows()[r] = attention_row(p, item.sequence, head(r), item.position + token(r) - item.token,
                                item.context);
      if (r >= item.rows) rows()[r].end = 0;
    }
  }
  __device__ void load_queries() const {
    const int pieces = key_pitch() / 8 - 1, dim = key_dim();
    for (int i = static_cast<int>(threadIdx.x); i < kRows * pieces; i += kAttentionThreads) {
      const int r = i / pieces, d = i % pieces * 8;
      const T* from = static_cast<const T*>(p.q) + (token(r) * p.heads + head(r)) * dim;
      const bool exists = r < item.rows && d < dim;
      copy_async(queries() + r * key_pitch() + d, exists ? from + d : from, exists ? 16 : 0);
    }
  }

  // Eight elements of a pool's row into shared memory; zeros if they do not exist. Around the first
  // cache, which might keep what was there before a kernel wrote the step's own keys.
  template <class To>
  __device__ static void load_piece(const Pool* from, bool exists, To* to) {
    if constexpr (!kCodes) {
      copy_async(to, from, exists ? 16 : 0);
    } else {
      union {
        uint2 bits;
        Pool codes[8];
      };
      bits = exists ? __ldcg(reinterpret_cast<const uint2*>(from)) : make_uint2(0, 0);
      float v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = exists ? widen(codes[i]) : 0.0f;
      store8(to, v);
    }
  }

  // The slot of the thread's key of a chunk, counted from the item's first one; -1: none.
  __device__ int32_t find_slot(int chunk) const {
    const int key =
        first_key() + chunk * static_cast<int>(kAttentionChunk) + static_cast<int>(threadIdx.x);
    const int size = static_cast<int>(p.block_size);
    return key < item.context ? batch.blocks[item.blocks + key / size] * size + key % size : -1;
  }

  // Tile `index` of the item, counted from its first chunk; keys beyond the context are zeros.
  __device__ void load_tile(int index) const {
    const int key_pieces = key_pitch() / 8 - 1;
    const int value_pieces = value_dim() / 8;
    // Four threads a key.
    const int key = static_cast<int>(threadIdx.x) / 4, part = static_cast<int>(threadIdx.x) % 4;
    const int32_t found = slots(index / kTilesPerChunk)[index % kTilesPerChunk * kTileKeys + key];
    const bool exists = found >= 0;
    const int64_t slot = int64_t{max(found, 0)} * p.kv_heads + kv_head;
    const Pool* k = static_cast<const Pool*>(p.k) + slot * key_dim();
    const Pool* v = static_cast<const Pool*>(p.v) + slot * (kDim > 0 ? kDim : value_pitch_of(p));
    T* to_k = keys(index) + key * key_pitch();
    V* to_v = values(index) + key * value_pitch();
#pragma unroll 4
    for (int i = part; i < key_pieces; i += 4) {
      const bool inside = exists && i * 8 < key_dim();
      load_piece(inside ? k + i * 8 : static_cast<const Pool*>(p.k), inside, to_k + i * 8);
    }
#pragma unroll 4
    for (int i = part; i < value_pieces; i += 4) load_piece(v + i * 8, exists, to_v + i * 8);
    if (kCodes && part == 0) {
      scales(index)[key] = exists ? __ldcg(p.k_scale + slot) : 0.0f;
      scales(index)[kTileKeys + key] = exists ? __ldcg(p.v_scale + slot) : 0.0f;
    }
  }

  // q.k of the warp's 8 keys and all rows.
  __device__ void multiply_keys(int index, float (&s)[kRowTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int steps = (key_pitch() - 8) / 16;
    const T* key = keys(index) + (warp * 8 + lane % 8) * key_pitch() + lane / 8 * 8;
    const T* query = queries() + (lane % 16) * key_pitch() + lane / 16 * 8;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][i] = 0;
#pragma unroll(kDim > 0 ? kDim / 32 : 1)
    for (int step = 0; step < steps; step += 2) {
      // The last of an odd number of steps reads beyond its keys; that half is not used.
      const uint4 b = load_matrices(key + step * 16);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const T* from = query + m * 16 * key_pitch() + step * 16;
        mma(s[m], load_matrices(from), b.x, b.y, T());
        if (step + 1 < steps) mma(s[m], load_matrices(from + 16), b.z, b.w, T());
      }
    }
  }

  // Keys that all rows see. In another tile a row may have p = 0 where v is no finite number, and 0
  // times that is NaN: there, such values are added by add_not_finite to the rows that see them,
  // and the tensor cores get zeros for them.
  __device__ void seen_by_all(int& first, int& end) const {
    first = 0;
    end = item.context;
#pragma unroll
    for (int r = 0; r < kRows; r += 32) {
      const AttentionRow row = rows()[min(r + static_cast<int>(threadIdx.x) % 32, item.rows - 1)];
      first = max(first, row.first);
      end = min(end, row.end);
    }
    first = __reduce_max_sync(kWholeWarp, first);
    end = __reduce_min_sync(kWholeWarp, end);
  }
  __device__ bool is_mixed(int index, int first, int end) const {
    const int tile = first_key() + index * kTileKeys;
    return tile < first || min(tile + kTileKeys, item.context) > end;
  }
  // The sum of p v of 16 rows from `row` on and the lane's two columns, over the keys which a row
  // sees and whose v is no finite number. probability_of(r): the row's, of the tile's keys;
  // values_at(key): the two values.
  template <class ProbabilityOf, class ValuesAt>
  __device__ void add_not_finite(int index, int row, ProbabilityOf probability_of,
                                 ValuesAt values_at, float (&c)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, tile = first_key() + index * kTileKeys;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row + lane / 4 + 8 * h;
      const V* probability = probability_of(r);
      const int end = min(rows()[r].end - tile, kTileKeys);
#pragma unroll 1
      for (int key = max(rows()[r].first - tile, 0); key < end; ++key)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (const float v = widen(values_at(key)[j]); !isfinite(v))
            c[2 * h + j] = fmaf(widen(probability[key]), v, c[2 * h + j]);
    }
  }
  template <class ValuesAt>
  __device__ void add_not_finite(int index, int row, ValuesAt values_at, float (&c)[4]) const {
    const auto probability_of = [&](int r) {
      return probabilities() + r * AttentionShapes::kProbabilityPitch;
    };
    add_not_finite(index, row, probability_of, values_at, c);
  }
  // The same of eight columns from `column` on.
  __device__ void add_not_finite(int index, int row, int column, float (&c)[4]) const {
    const V* value = values(index) + column + threadIdx.x % 4 * 2;
    add_not_finite(index, row, [&](int key) { return value + key * value_pitch(); }, c);
  }

  // Whether all values of tile `index` are finite numbers; all threads of the block ask.
  __device__ bool all_finite(int index) const {
    bool finite = true;
    for_values(index, [&](uint4& v) {
      uint4 copy = v;
      finite = keep_finite(copy, V()) && finite;
    });
    return __syncthreads_and(finite) != 0;
  }
  __device__ void drop_not_finite(int index) const {
    __syncthreads();
    for_values(index, [](uint4& v) { keep_finite(v, V()); });
    __syncthreads();
  }
  // f(eight neighbouring values), of the thread's share of a tile.
  template <class F>
  __device__ void for_values(int index, F f) const {
    V* row = values(index) + threadIdx.x / 4 * value_pitch();
    const int pieces = value_dim() / 8;
    for (int i = static_cast<int>(threadIdx.x) % 4; i < pieces; i += 4)
      f(*reinterpret_cast<uint4*>(row + i * 8));
  }

  // The warp's p V; `c` continues.
  __device__ void multiply_values(int index, float (&c)[kRowTiles][kColumnTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const V* probability =
        probabilities() + (lane % 16) * AttentionShapes::kProbabilityPitch + lane / 16 * 8;
    const V* value = values(index) + lane * value_pitch();
    const int tiles = value_dim() / 8;
#pragma unroll
    for (int two = 0; two < kTileKeys / 32; ++two) {
      uint4 a[kRowTiles][2];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          a[m][i] = load_matrices(probability + m * 16 * AttentionShapes::kProbabilityPitch +
                                  two * 32 + i * 16);
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        const int column = warp + n * 8;
        if (column >= tiles) continue;
        const uint4 b = load_matrices_transposed(value + two * 32 * value_pitch() + column * 8);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma(c[m][n], a[m][0], b.x, b.y, V());
          mma(c[m][n], a[m][1], b.z, b.w, V());
        }
      }
    }
  }
};

}  // namespace quire::ops
