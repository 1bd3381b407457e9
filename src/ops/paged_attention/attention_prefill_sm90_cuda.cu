#include "ops/cuda/hopper.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/paged_attention/attention_launch.cuh"
#include "ops/paged_attention/attention_prefill.cuh"

// Attention of many rows by Hopper's warpgroup products: two warpgroups have 64 rows each of an
// item, a warp asks for tiles of 64 keys, page by page. Softmax and order of sums are
// attention_prefill.cuh's, and so are the bits.
namespace quire::ops {
namespace {

using T = DeviceBf16;

constexpr int kWalkers = 256, kThreads = kWalkers + 128;
constexpr int kFewRegisters = 24, kManyRegisters = 240;  // of a thread; it is launched with 168
constexpr int kHalf = 64;                                // columns of a swizzled row
constexpr int kHalfBytes = kTileKeys * 128;

template <int kDim>
struct Shapes {
  static constexpr int kHalves = kDim / kHalf;
  static constexpr int kStages = kDim == 128 ? 4 : 6;
  static constexpr int kStageBytes = 2 * kHalves * kHalfBytes;  // keys, then values
  static constexpr AttentionShapes kRest = {.rows = kPrefillRows,
                                            .key_pitch = kDim + 8,
                                            .value_pitch = 0,
                                            .scale_bytes = 0,
                                            .buffers = 0};
};

struct PoolSources {
  CUtensorMap keys, values;  // [slots][kv heads * D], tiles of a page's rows and 64 columns
  int page;                  // rows of a tile
};

// A tile in shared memory, and the barriers of its place.
template <int kDim>
struct Stages {
  char* shared;
  Barrier* arrived;
  Barrier* used;

  __device__ int place(int count) const { return count % Shapes<kDim>::kStages; }
  __device__ static uint32_t round_of(int count) {
    return static_cast<uint32_t>(count / Shapes<kDim>::kStages);
  }
  __device__ char* keys(int count) const {
    return shared + place(count) * Shapes<kDim>::kStageBytes;
  }
  __device__ char* values(int count) const {
    return keys(count) + Shapes<kDim>::kHalves * kHalfBytes;
  }
};

// Where the walkers meet within an item. A warpgroup comes there from its own loop, so by its own
// instruction, and bar.sync wants one instruction of all threads (PTX ISA, barrier .aligned).
struct Meeting {
  Barrier barrier;
  int not_finite[2];  // of the tile that is looked at, and of the next one: zeros in between
};

// The rows of a warpgroup. Tile `index` of the item is tile `before + index` of the block.
template <int kDim, bool kPlain>
struct GroupWalk : PrefillWalk<T, kDim / 8> {
  using Base = PrefillWalk<T, kDim / 8>;
  using Base::c, Base::item, Base::kKeyTiles, Base::lane, Base::warp;
  static constexpr int kHalves = Shapes<kDim>::kHalves;

  static constexpr int kSteps = kDim / 16;

  Stages<kDim> stages;
  Meeting& meeting;
  int before;
  uint32_t met;  // so many times in this block

  __device__ uint4 query_fragment(int step) const {
    return load_matrices(this->queries() + (warp() * 16 + lane() % 16) * (kDim + 8) +
                         lane() / 16 * 8 + step * 16);
  }
  // Beyond the last key that a row of the warpgroup sees.
  __device__ int last_key_of_group() const {
    const AttentionRow* rows = this->rows() + warp() / 4 * 64 + lane();
    return __reduce_max_sync(kWholeWarp, max(rows[0].end, rows[32].end));
  }

  __device__ void multiply_all_keys(int index, float (&s)[kKeyTiles][4]) {
    float(&sums)[kKeyTiles * 4] = reinterpret_cast<float(&)[kKeyTiles * 4]>(s);
#pragma unroll
    for (float& sum : sums) sum = 0;
    uint4 query[kSteps];  // read anew for each tile: registers are few
#pragma unroll
    for (int step = 0; step < kSteps; ++step) query[step] = query_fragment(step);
    begin_group_products(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      group_product(
          sums, query[step],
          swizzled_matrix(stages.keys(before + index) + step / 4 * kHalfBytes) + step % 4 * 2,
          step > 0, T());
    commit_group_products();
    wait_group_products<0>(sums);
  }
  __device__ void multiply_all_values(int index, const float (&s)[kKeyTiles][4]) {
    float(&sums)[kDim / 2] = reinterpret_cast<float(&)[kDim / 2]>(c);
    const uint64_t values = swizzled_columns<kHalfBytes>(stages.values(before + index));
    uint4 a[kKeyTiles / 2];
    pack(s, a);
    begin_group_products(sums);
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step)
      group_product_columns(sums, a[step], values + step * 128, true, T());
    commit_group_products();
    wait_group_products<0>(sums);
  }
  __device__ static void pack(const float (&s)[kKeyTiles][4], uint4 (&a)[kKeyTiles / 2]) {
#pragma unroll
    for (int step = 0; step < kKeyTiles / 2; ++step) {
      const float(&low)[4] = s[2 * step];
      const float(&high)[4] = s[2 * step + 1];
      a[step] = make_uint4(pack2(low[0], low[1], T()), pack2(low[2], low[3], T()),
                           pack2(high[0], high[1], T()), pack2(high[2], high[3], T()));
    }
  }

  // f(eight neighbouring values), of the thread's share of a tile.
  template <class F>
  __device__ void for_values(int index, F f) const {
    uint4* pieces = reinterpret_cast<uint4*>(stages.values(before + index));
    for (int i = static_cast<int>(threadIdx.x); i < kHalves * kHalfBytes / 16; i += kWalkers)
      f(pieces[i]);
  }
  __device__ void meet() {
    __syncwarp();
    if (lane() == 0) meeting.barrier.arrive();
    meeting.barrier.wait(met++);
  }
  // All walkers ask, of a tile that has arrived. Keys beyond the context count: what lies there is
  // anything.
  __device__ bool all_finite(int index) {
    bool finite = true;
    for_values(index, [&](uint4& v) {
      uint4 copy = v;
      finite = keep_finite(copy, T()) && finite;
    });
    int& not_finite = meeting.not_finite[met % 2];
    if (!__all_sync(kWholeWarp, finite) && lane() == 0) atomicExch(&not_finite, 1);
    meet();
    return *static_cast<volatile int*>(&not_finite) == 0;
  }
  __device__ void add_all_not_finite(int index, const float (&s)[kKeyTiles][4]) {
    this->leave_probabilities(s);
    const char* values = stages.values(before + index);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const auto values_at = [&](int key) {
        return reinterpret_cast<const T*>(values + n / 8 * kHalfBytes + key * 128 +
                                          (n % 8 ^ key % 8) * 16) +
               lane() % 4 * 2;
      };
      Base::Tiles::add_not_finite(index, warp() * 16, values_at, c[n]);
    }
  }
  // After all_finite().
  __device__ void drop_not_finite(int index) {
    int& not_finite = meeting.not_finite[(met - 1) % 2];
    meet();
    if (threadIdx.x == 0) not_finite = 0;
    for_values(index, [](uint4& v) { keep_finite(v, T()); });
    publish_to_tensor_cores();
    meet();
  }

  __device__ void release(int index) const {
    if (lane() == 0) stages.used[stages.place(before + index)].arrive();
  }

  // A tile with keys that some row of the item does not see, or beyond the context.
  __device__ bool is_partly_seen(int index, int see_first, int see_end) const {
    return this->is_mixed(index, see_first, see_end) ||
           this->first_key() + (index + 1) * kTileKeys > item.context;
  }
  __device__ void wait_for(int index) const {
    const int count = before + index;
    stages.arrived[stages.place(count)].wait(stages.round_of(count));
  }

  // A tile that the warpgroup sees.
  __device__ void walk_tile(int index, int see_first, int see_end) {
    float s[kKeyTiles][4];
    multiply_all_keys(index, s);
    this->template grow<kPlain>(index, s);
    this->raise(s);
    if (is_partly_seen(index, see_first, see_end) && !all_finite(index)) {
      add_all_not_finite(index, s);
      drop_not_finite(index);
    }
    multiply_all_values(index, s);
  }

  __device__ void run() {
    const int count = this->tile_count();
    sync_threads<1>(kWalkers);  // the item before is done
    this->set_rows();
    this->load_queries();
    commit_copies();
    wait_copies<0>();
    sync_threads<1>(kWalkers);
    this->begin();
    const int tiles = (last_key_of_group() - this->first_key() + kTileKeys - 1) / kTileKeys;
    const int mine = __shfl_sync(kWholeWarp, max(0, min(count, tiles)), 0);
    int see_first, see_end;
    this->seen_by_all(see_first, see_end);
#pragma unroll 1
    for (int index = 0; index < mine; ++index) {
      wait_for(index);
      if (index % kTilesPerChunk == 0) this->begin_chunk();
      walk_tile(index, see_first, see_end);
      release(index);
      if (index % kTilesPerChunk == kTilesPerChunk - 1 || index + 1 == mine) this->join_chunk();
    }
    // Of tiles that the other warpgroup alone sees, this one drops its share.
#pragma unroll 1
    for (int index = mine; index < count; ++index) {
      wait_for(index);
      if (is_partly_seen(index, see_first, see_end) && !all_finite(index)) drop_not_finite(index);
      release(index);
    }
    this->write();
    before += count;
  }
};

// One warp copies the tiles of all items; pages that are beyond the context stay as they are.
template <int kDim>
__device__ void copy_tiles(const AttentionKernelParams& p, const AttentionCudaBatch& batch,
                           const PoolSources& from, const Stages<kDim>& stages,
                           AttentionTiles<T, T, kPrefillRows / 16, kDim / 8>& tiles, int& before) {
  constexpr int kHalves = Shapes<kDim>::kHalves;
  const int lane = static_cast<int>(threadIdx.x) % 32, count = tiles.tile_count();
  const int size = static_cast<int>(p.block_size);
#pragma unroll 1
  for (int index = 0; index < count; ++index, ++before) {
    const int place = stages.place(before), first = tiles.first_key() + index * kTileKeys;
    const int pages = (min(kTileKeys, tiles.item.context - first) + from.page - 1) / from.page;
    if (before >= Shapes<kDim>::kStages) stages.used[place].wait(stages.round_of(before) - 1);
    if (lane == 0) stages.arrived[place].expect_bytes(pages * from.page * 128 * 2 * kHalves);
    __syncwarp();
    if (lane >= pages) continue;
    const int key = first + lane * from.page;
    const int slot = batch.blocks[tiles.item.blocks + key / size] * size + key % size;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int column = tiles.kv_head * kDim + half * kHalf;
      const int to = half * kHalfBytes + lane * from.page * 128;
      copy_tile(stages.keys(before) + to, from.keys, column, slot, stages.arrived[place]);
      copy_tile(stages.values(before) + to, from.values, column, slot, stages.arrived[place]);
    }
  }
}

template <int kDim, bool kPlain>
__global__ void __launch_bounds__(kThreads, 1)
    hot_attend_prefill(const __grid_constant__ AttentionKernelParams p,
                       const __grid_constant__ AttentionCudaBatch batch,
                       const __grid_constant__ PoolSources from) {
  constexpr int kStages = Shapes<kDim>::kStages;
  extern __shared__ char unaligned[];
  __shared__ Barrier arrived[kStages], used[kStages];
  __shared__ Meeting meeting;
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const Stages<kDim> stages = {shared, arrived, used};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      arrived[i].init(1);
      used[i].init(kWalkers / 32);
    }
    meeting.barrier.init(kWalkers / 32);
    meeting.not_finite[0] = meeting.not_finite[1] = 0;
    publish_barriers();
  }
  __syncthreads();
  begin_dependent();
  const AttentionCudaItem* items = batch.many.items;
  const int kv_heads = static_cast<int>(p.kv_heads), count = *batch.many.count * kv_heads;
  char* rest = shared + kStages * Shapes<kDim>::kStageBytes;
  int before = 0;  // tiles of the items before
  uint32_t met = 0;
  if (threadIdx.x >= kWalkers) {
    give_registers<kFewRegisters>();
    if (threadIdx.x >= kWalkers + 32) return;
    for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
      AttentionTiles<T, T, kPrefillRows / 16, kDim / 8> tiles{
          p, batch, Shapes<kDim>::kRest, rest, items[i / kv_heads], i % kv_heads};
      copy_tiles<kDim>(p, batch, from, stages, tiles, before);
    }
    return;
  }
  take_registers<kManyRegisters>();
  for (int i = static_cast<int>(blockIdx.x); i < count; i += static_cast<int>(gridDim.x)) {
    GroupWalk<kDim, kPlain> walk{
        {{p, batch, Shapes<kDim>::kRest, rest, items[i / kv_heads], i % kv_heads}},
        stages,
        meeting,
        before,
        met};
    walk.run();
    before = walk.before;
    met = walk.met;
  }
}

template <int kDim>
void launch_prefill_of(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch) {
  if (batch.many.max_count == 0) return;  // pools need no description then
  PoolSources from;
  from.page = static_cast<int>(p.block_size < kTileKeys ? p.block_size : kTileKeys);
  const auto pool = [&](const void* data) {
    return tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                       .data = data,
                       .rows = INT32_MAX,  // tables name none beyond the pool
                       .columns = p.kv_heads * kDim,
                       .pitch = p.kv_heads * kDim * 2,
                       .tile_rows = from.page,
                       .tile_columns = kHalf,
                       .swizzled = true});
  };
  from.keys = pool(p.k);
  from.values = pool(p.v);
  constexpr int kMostBlocks = 132;
  constexpr int kShared =
      1024 + Shapes<kDim>::kStages * Shapes<kDim>::kStageBytes + Shapes<kDim>::kRest.bytes();
  static_assert(kShared <= 227 * 1024);
  const int64_t blocks = batch.many.max_count * p.kv_heads;
  const bool plain = p.softcap <= 0 && p.alibi == nullptr;
  launch("paged_attention", stream,
         plain ? hot_attend_prefill<kDim, true> : hot_attend_prefill<kDim, false>,
         dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), kThreads,
         size_t{kShared}, p, batch, from);
}

}  // namespace

void run_wgmma_prefill(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch) {
  p.key_dim == 64 ? launch_prefill_of<64>(stream, p, batch)
                  : launch_prefill_of<128>(stream, p, batch);
}

}  // namespace quire::ops
