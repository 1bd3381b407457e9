#include "engine/kv_pool.h"

#include <algorithm>

#include "ops/copy_slots/copy_slots.h"
#include "ops/runtime/array_memory.h"

namespace quire::engine {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

// A pool, and its memory as layers with other heads see it.
struct Pool {
  ops::PagedKv kv;
  std::vector<ops::PagedKv> narrow = {};
};

Pool make_pool(const models::KvCacheSpec& kv, const CacheGroups& groups, const CacheSize& size,
               mx::Dtype dtype, ops::Device& device) {
  if (kv.values_in_keys > 0)
    return {ops::make_latent_kv(size.num_blocks, size.block_size, kv.head_dim, kv.values_in_keys,
                                dtype, size.kv_storage, &device)};
  Pool pool = {ops::make_paged_kv(size.num_blocks, size.block_size, kv.kv_heads, kv.head_dim, dtype,
                                  size.kv_storage, /*value_dim=*/0, &device)};
  for (const CacheGroups::Narrow& narrow : groups.narrow)
    pool.narrow.push_back(ops::narrow_kv(pool.kv, narrow.kv.kv_heads, narrow.kv.head_dim));
  return pool;
}

// What a layer sees of its pool.
const ops::PagedKv& handle(const Pool& pool, const models::KvCacheSpec* layer) {
  for (const ops::PagedKv& view : pool.narrow)
    if (layer && view.k.shape(2) == layer->kv_heads && view.k.shape(3) == layer->head_dim)
      return view;
  return pool.kv;
}

int64_t token_bytes(const models::KvCacheSpec& kv, mx::Dtype dtype, ops::KvStorage storage) {
  if (kv.values_in_keys > 0) return ops::latent_kv_token_bytes(kv.head_dim, dtype, storage);
  return ops::paged_kv_token_bytes(kv.kv_heads, kv.head_dim, dtype, storage);
}

}  // namespace

KvPool::KvPool(const std::vector<models::CacheSpec>& layers, const CacheGroups& groups,
               const CacheSize& size, mx::Dtype dtype, ops::Device& device)
    : num_blocks_(size.num_blocks), is_lazy_(device.host_memory() != nullptr) {
  std::vector<Pool> pools;
  for (const models::KvCacheSpec& kv : groups.pools)
    pools.push_back(make_pool(kv, groups, size, dtype, device));
  caches_.reserve(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    is_used_.push_back(!std::holds_alternative<models::SharedKvSpec>(layers[i]));
    if (const auto* state = std::get_if<models::StateCacheSpec>(&layers[i])) {
      caches_.emplace_back(ops::make_recurrent_state(size.num_state_slots, *state, dtype, &device));
    } else {
      const Pool& pool = pools.at(static_cast<size_t>(groups.pool_of_layer.at(i)));
      caches_.emplace_back(handle(pool, std::get_if<models::KvCacheSpec>(&layers[i])));
    }
  }
  first_ = caches_;
  views_ = {.views = groups.views, .of_layer = nullptr};
  if (groups.views.size() > 1)
    views_.of_layer = std::make_shared<const std::vector<int32_t>>(groups.view_of_layer);
  for (const Pool& pool : pools) {
    for (const mx::array& array : pool.kv.arrays()) kv_arrays_.push_back(array);
    for (const ops::PagedKv& view : pool.narrow)
      if (view.k_scale) kv_arrays_.insert(kv_arrays_.end(), {*view.k_scale, *view.v_scale});
  }
  for (const mx::array& pool : kv_arrays_)
    bytes_per_block_ += static_cast<int64_t>(pool.nbytes()) / num_blocks_;
}

bool KvPool::commit_some(int64_t num_blocks) {
  if (!is_lazy_ || kv_arrays_.empty() || committed_blocks_ >= std::min(num_blocks, num_blocks_))
    return false;
  const auto per_array = [this](const mx::array& pool) {
    return static_cast<int64_t>(pool.nbytes()) / num_blocks_;
  };
  // As many blocks as make a huge page of the widest array.
  int64_t widest = 1;
  for (const mx::array& pool : kv_arrays_) widest = std::max(widest, per_array(pool));
  const int64_t end =
      std::min(num_blocks_, committed_blocks_ + std::max<int64_t>(1, kHugePage / widest));
  const mx::array& pool = kv_arrays_[next_to_commit_];
  ops::commit_memory(pool, static_cast<size_t>(committed_blocks_ * per_array(pool)),
                     static_cast<size_t>(end * per_array(pool)));
  if (++next_to_commit_ == kv_arrays_.size()) {
    next_to_commit_ = 0;
    committed_blocks_ = end;
  }
  return true;
}

std::vector<mx::array> KvPool::arrays() const {
  std::vector<mx::array> arrays;
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (!is_used_[i]) continue;
    const ops::LayerCache& cache = caches_[i];
    if (const auto* kv = std::get_if<ops::PagedKv>(&cache)) {
      for (const mx::array& pool : kv->arrays()) arrays.push_back(pool);
    } else {
      const auto& state = std::get<ops::RecurrentState>(cache);
      arrays.insert(arrays.end(), {state.recurrent, state.conv});
    }
  }
  return arrays;
}

void KvPool::copy_states(const ops::Context& context, const std::vector<StateCopy>& copies) {
  if (copies.empty()) return;
  auto slots = std::make_shared<std::vector<ops::SlotCopy>>();
  for (const StateCopy& copy : copies) slots->push_back({.from = copy.from, .to = copy.to});
  for (auto& cache : caches_)
    if (auto* state = std::get_if<ops::RecurrentState>(&cache))
      *state = ops::copy_slots(context, *state, slots);
}

int64_t KvPool::block_bytes(const CacheGroups& groups, int64_t block_size, mx::Dtype dtype,
                            ops::KvStorage storage) {
  int64_t bytes = 0;
  for (const models::KvCacheSpec& kv : groups.pools) {
    bytes += token_bytes(kv, dtype, storage);
    for (const CacheGroups::Narrow& narrow : groups.narrow)
      bytes += narrow.parts * ops::kv_scale_bytes(narrow.kv.kv_heads, storage);
  }
  return block_size * bytes;
}

int64_t KvPool::state_bytes(const std::vector<models::CacheSpec>& layers, mx::Dtype dtype) {
  int64_t bytes = 0;
  for (const auto& layer : layers)
    if (const auto* state = std::get_if<models::StateCacheSpec>(&layer))
      bytes += state->recurrent_bytes() + state->conv_bytes(dtype);
  return bytes;
}

}  // namespace quire::engine
