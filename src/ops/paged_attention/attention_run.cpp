#include "ops/paged_attention/attention_run.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/paged_attention/attention_plan.h"
#include "ops/paged_attention/paged_attention_amx.h"
#include "ops/paged_attention/paged_attention_avx512_bf16.h"
#include "ops/paged_attention/paged_attention_avx512_vnni.h"

namespace quire::ops {
namespace {

// Grows only, so that a steady state allocates nothing.
class Buffer {
 public:
  float* reserve(int64_t floats) {
    if (floats > size_) {
      data_ = hwy::AllocateAligned<float>(static_cast<size_t>(floats));
      QUIRE_CHECK(data_ != nullptr) << "no memory for " << floats << " floats of attention scratch";
      size_ = floats;
    }
    return data_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> data_;
  int64_t size_ = 0;
};

// Of the thread that calls. Functions, because a loop body that named a variable of the enclosing
// function would find it unconstructed on other threads.
Buffer& own_buffer() {
  thread_local Buffer buffer;
  return buffer;
}
Buffer& partials_buffer() {
  thread_local Buffer buffer;
  return buffer;
}

// Lays a thread's buffers out one after the other, each on its own cache lines.
AttentionScratch own_scratch(const AttentionKernelParams& params, int64_t rows, float* partials) {
  const int64_t parts = rows_per_query(params);
  const bool codes = is_quantised(params.kv_type);
  const int64_t sizes[] = {rows * parts * (params.key_dim + 31) / 32 * 32,
                           rows * parts * kAttentionChunk,
                           chunk_result_size(params, rows),
                           chunk_result_size(params, rows),
                           params.key_dim * kAttentionBlock,
                           padded_value_dim(params) * kAttentionBlock,
                           4 * kAttentionChunk,
                           codes ? 2 * params.kv_heads * kAttentionChunk : 0,
                           2 * rows,
                           parts > 1 ? rows * parts * padded_value_dim(params) : 0};
  int64_t offsets[std::size(sizes)], total = 0;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    offsets[i] = total;
    total += (sizes[i] + 15) / 16 * 16;
  }
  float* base = own_buffer().reserve(total);
  return {.queries = base + offsets[0],
          .scores = base + offsets[1],
          .chunk = base + offsets[2],
          .total = base + offsets[3],
          .keys = base + offsets[4],
          .values = base + offsets[5],
          .slots = reinterpret_cast<int64_t*>(base + offsets[6]),
          .scales = base + offsets[7],
          .factors = base + offsets[8],
          .sums = base + offsets[9],
          .partials = partials};
}

// Hands a plan's items to threads, the long ones first.
class ItemQueue {
 public:
  explicit ItemQueue(const std::vector<AttentionItem>& items) : items_(items) {}

  // Null when none is left.
  const AttentionItem* take() {
    const size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    return i < items_.size() ? &items_[i] : nullptr;
  }

 private:
  const std::vector<AttentionItem>& items_;
  std::atomic<size_t> next_{0};
};

// One thread's turns at a queue.
struct Turns {
  ItemQueue& queue;
  const AttentionItem* next = nullptr;
  bool taken = false;  // `next` is what the queue gave during the item

  static const AttentionItem* take(void* self) {
    auto& turns = *static_cast<Turns*>(self);
    turns.taken = true;
    return turns.next = turns.queue.take();
  }
};

#if defined(__x86_64__)
// Whether a token's values of a head, the row'th in the pool, are finite. Codes of int8 are.
bool finite_values(const AttentionKernelParams& params, int64_t row) {
  const int64_t at = row * params.value_pitch();
  unsigned infinite = 0;
  if (params.kv_type == KvType::kBf16) {
    const auto* v = static_cast<const uint16_t*>(params.v) + at;
    for (int64_t d = 0; d < params.value_dim; ++d) infinite |= (v[d] & 0x7F80u) == 0x7F80u;
  } else if (params.kv_type == KvType::kFp8) {
    const auto* v = static_cast<const uint8_t*>(params.v) + at;
    for (int64_t d = 0; d < params.value_dim; ++d) infinite |= (v[d] & 0x7Fu) == 0x7Fu;
  }
  return infinite == 0;
}

// Whether values that only some of the item's tokens see are infinite or NaN. The kernels for few
// rows multiply what a row does not see by 0, and must not get these.
bool has_infinite_edges(const AttentionKernelParams& params, const AttentionItem& item) {
  // Positions that some see and some do not: between the first keys of the first and the last
  // token, and between the ends of what these see.
  const int64_t last = item.position + item.tokens - 1;
  const int64_t ends =
      params.window_right < 0 ? item.context : item.position + params.window_right + 1;
  const std::pair<int64_t, int64_t> edges[] = {
      {params.first_key(item.position), params.first_key(last)},
      {ends, params.window_right < 0 ? ends : last + params.window_right + 1}};
  const int64_t begin = item.chunk * kAttentionChunk,
                end = std::min(item.context, begin + item.chunks * kAttentionChunk);
  for (const auto& [from, to] : edges)
    for (int64_t t = std::max(from, begin); t < std::min(to, end); ++t) {
      const int64_t slot =
          item.block_table[t / params.block_size] * params.block_size + t % params.block_size;
      for (int64_t h = item.kv_head; h < item.kv_head + item.kv_heads; ++h)
        if (!finite_values(params, slot * params.kv_heads + h)) return true;
    }
  return false;
}

bool has_few_rows(const AttentionKernelParams& params, const AttentionItem& item) {
  if (item.rows(params) > item.kv_heads * max_few_rows(params)) return false;
  return item.tokens == 1 || !has_infinite_edges(params, item);
}

void attend_amx(const AttentionKernelParams& params, const AttentionItem& item, float* partials,
                FollowingItem& following) {
  const bool few = has_few_rows(params, item);
  const int64_t rows = item.rows(params);
  const int64_t bytes = few ? attention_decode_amx_scratch(params, rows)
                            : attention_amx_scratch(params, rows / item.kv_heads, item.kv_heads);
  float* scratch = own_buffer().reserve(bytes / 4);
  if (few) return paged_attention_decode_amx(params, item, scratch, partials, following);
  paged_attention_amx(params, item, scratch, partials);
}

void attend_avx512_bf16(const AttentionKernelParams& params, const AttentionItem& item,
                        float* partials, FollowingItem& following) {
  const bool few = has_few_rows(params, item);
  const int64_t rows = item.rows(params);
  const int64_t bytes = few ? attention_decode_avx512_bf16_scratch(params, rows)
                            : attention_avx512_bf16_scratch(params, rows);
  float* scratch = own_buffer().reserve(bytes / 4);
  if (few) return paged_attention_decode_avx512_bf16(params, item, scratch, partials, following);
  paged_attention_avx512_bf16(params, item, scratch, partials);
}

void attend_avx512_vnni(const AttentionKernelParams& params, const AttentionItem& item,
                        float* partials, FollowingItem& following) {
  const bool few = has_few_rows(params, item);
  const int64_t rows = item.rows(params);
  const int64_t bytes = few ? attention_decode_int8_avx512_vnni_scratch(params, rows)
                            : attention_int8_avx512_vnni_scratch(params, rows);
  float* scratch = own_buffer().reserve(bytes / 4);
  if (few)
    return paged_attention_decode_int8_avx512_vnni(params, item, scratch, partials, following);
  paged_attention_int8_avx512_vnni(params, item, scratch, partials);
}

void attend_on_unit(const AttentionKernelParams& params, const AttentionItem& item, float* partials,
                    FollowingItem& following) {
  switch (params.unit) {
    case AttentionUnit::kVectors:
      break;
    case AttentionUnit::kAvx512Vnni:
      return attend_avx512_vnni(params, item, partials, following);
    case AttentionUnit::kAvx512Bf16:
      return attend_avx512_bf16(params, item, partials, following);
    case AttentionUnit::kAmx:
      return attend_amx(params, item, partials, following);
  }
  QUIRE_CHECK(false) << "no unit";
}
#else
void attend_on_unit(const AttentionKernelParams&, const AttentionItem&, float*, FollowingItem&) {
  QUIRE_CHECK(false) << "a unit of x86 on another CPU";
}
#endif

// What a plan depends on beside the layout.
struct PlanKey {
  int64_t heads, kv_heads, key_dim, value_dim, window_left, window_right, window_step, parts;
  AttentionUnit unit;
  int threads;
  bool operator==(const PlanKey&) const = default;
};

// The layers of a step share their plans: one for each kind of layer and block table.
class StepPlans {
 public:
  const AttentionPlan& get(const AttentionKernelParams& p, const BatchLayoutPtr& layout,
                           int threads) {
    const PlanKey key{.heads = p.heads,
                      .kv_heads = p.kv_heads,
                      .key_dim = p.key_dim,
                      .value_dim = p.value_dim,
                      .window_left = p.window_left,
                      .window_right = p.window_right,
                      .window_step = p.window_step,
                      .parts = rows_per_query(p),
                      .unit = p.unit,
                      .threads = threads};
    for (const Known& known : plans_)
      if (known.key == key && known.layout.lock() == layout) return known.plan;
    std::erase_if(plans_, [](const Known& known) { return known.layout.expired(); });
    return plans_.emplace_back(layout, key, plan_attention(p, *layout, threads)).plan;
  }

 private:
  struct Known {
    std::weak_ptr<const BatchLayout> layout;  // not a pointer, which a later one may have, too
    PlanKey key;
    AttentionPlan plan;
  };
  std::vector<Known> plans_;
};

const AttentionPlan& plan_of_step(const AttentionKernelParams& params, const BatchLayoutPtr& layout,
                                  int threads) {
  thread_local StepPlans plans;
  return plans.get(params, layout, threads);
}

void run_plan(ThreadPool& pool, const AttentionKernelParams& params, const AttentionPlan& plan) {
  float* partials = plan.partials > 0 ? partials_buffer().reserve(plan.partials) : nullptr;
  ItemQueue queue(plan.items);
  const auto items = static_cast<int64_t>(plan.items.size());
  pool.parallel_for(std::min<int64_t>(pool.num_threads(), items), [&](int64_t) {
    Turns turns{.queue = queue};
    FollowingItem following{.take = &Turns::take, .from = &turns};
    for (const AttentionItem* item = queue.take(); item != nullptr;) {
      turns.taken = false;
      if (item->on_unit) {
        attend_on_unit(params, *item, partials, following);
      } else {
        paged_attention_cpu(params, *item, own_scratch(params, plan.max_rows, partials));
      }
      item = turns.taken ? turns.next : queue.take();
    }
  });
  pool.parallel_for(static_cast<int64_t>(plan.merges.size()), [&](int64_t i) {
    const auto& [item, row, rows] = plan.merges[static_cast<size_t>(i)];
    paged_attention_merge_cpu(params, item, row, rows,
                              own_scratch(params, plan.max_rows, partials));
  });
}

}  // namespace

void set_attention_scale(AttentionKernelParams& params, double scale, double softcap) {
  const bool capped = softcap > 0, biased = params.alibi != nullptr;
  params.softcap = static_cast<float>(softcap);
  params.softcap_scale = capped ? static_cast<float>(scale / softcap) : 0.0f;
  params.score_scale = capped ? 1.0f : static_cast<float>(scale);
  // A bias is in units of the softmax's exponent, so that scores are scaled before it is added.
  params.exponent_scale =
      static_cast<float>((capped || biased ? 1.0 : scale) * std::numbers::log2e);
}

float attention_lse(float m, float l) {
  if (l == 0) return -std::numeric_limits<float>::infinity();
  return m * std::numbers::ln2_v<float> + std::log(l);
}

void run_attention(ThreadPool& pool, const AttentionKernelParams& params,
                   const BatchLayoutPtr& layout) {
  run_plan(pool, params, plan_of_step(params, layout, pool.num_threads()));
}

void run_attention(ThreadPool& pool, const AttentionKernelParams& params,
                   const BatchLayout& layout) {
  run_plan(pool, params, plan_attention(params, layout, pool.num_threads()));
}

}  // namespace quire::ops
