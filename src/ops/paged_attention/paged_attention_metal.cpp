#include "ops/paged_attention/paged_attention_metal.h"

#include <algorithm>
#include <stdexcept>

#include "ops/metal/metal_types.h"

namespace quire::ops {
namespace {

constexpr int64_t kFewRows = 8, kFewSequenceRows = 16;

// As good as no limit: more than any position, and half of what 32 bits hold.
constexpr int64_t kWidestWindow = int64_t{1} << 30;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("paged_attention: no Metal kernel for " + what);
}

void check(const AttentionKernelParams& p) {
  if (!is_quantised(p.kv_type) && kv_type_of(p.q_type) != p.kv_type)
    refuse("queries and pools of different types");
  if (p.key_dim > kMaxHeadDim || p.value_dim > kMaxHeadDim)
    refuse("heads of more than " + std::to_string(kMaxHeadDim) + " elements");
  if (p.key_dim % 8 != 0 || p.value_dim % 8 != 0) refuse("heads that are no multiple of 8");
}

// The keys that any of some neighbouring tokens sees.
struct Sight {
  int64_t first, end;
};
Sight sight_of(const AttentionKernelParams& p, int64_t position, int64_t last, int64_t context) {
  const int64_t end =
      p.window_right < 0 ? context : std::clamp<int64_t>(last + p.window_right + 1, 0, context);
  return {std::min(p.first_key(position), end), end};
}

// One sequence's rows, shared out.
class SequencePlanner {
 public:
  SequencePlanner(const AttentionKernelParams& p, const BatchLayout& layout, int64_t sequence,
                  AttentionMetalPlan& plan)
      : p_(p), plan_(plan), group_(p.heads / p.kv_heads), context_(layout.seq_lens[sequence]) {
    const int32_t token = layout.cu_seqlens[sequence];
    tokens_ = layout.cu_seqlens[sequence + 1] - token;
    rows_ = tokens_ * group_;
    if (rows_ == 0) return;
    base_.blocks = layout.block_offsets[sequence];
    base_.sequence = static_cast<int32_t>(sequence);
    base_.token = token;
    base_.position = layout.positions[token];
    base_.partial = -1;
  }

  void plan() {
    const bool few = tokens_ == 1 || rows_ <= kFewSequenceRows;
    const int64_t step = few ? kFewRows : attention_metal_rows(p_);
    for (int64_t row = 0; row < rows_; row += step) {
      AttentionMetalItem item = base_;
      item.row = static_cast<int32_t>(row);
      item.rows = static_cast<int32_t>(std::min(step, rows_ - row));
      const Sight sight = sight_of(p_, base_.position + row / group_,
                                   base_.position + (row + item.rows - 1) / group_, context_);
      item.first = static_cast<int32_t>(sight.first);
      item.end = static_cast<int32_t>(sight.end);
      few ? split(item) : plan_.many.push_back(item);
    }
  }

 private:
  // By chunks, if it has several.
  void split(AttentionMetalItem item) {
    const int64_t first = item.first, end = item.end, begin = first / kAttentionChunk;
    const int64_t chunks = (end + kAttentionChunk - 1) / kAttentionChunk - begin;
    if (first >= end || chunks == 1) return plan_.few.push_back(item);
    for (int32_t r = 0; r < item.rows; ++r)
      plan_.merges.push_back({static_cast<int32_t>(base_.token + (item.row + r) / group_),
                              static_cast<int32_t>((item.row + r) % group_),
                              static_cast<int32_t>(plan_.partials + r), item.rows,
                              static_cast<int32_t>(chunks)});
    for (int64_t c = begin; c < begin + chunks; ++c) {
      item.first = static_cast<int32_t>(std::max(first, c * kAttentionChunk));
      item.end = static_cast<int32_t>(std::min(end, (c + 1) * kAttentionChunk));
      item.partial = static_cast<int32_t>(plan_.partials);
      plan_.partials += item.rows;
      plan_.few.push_back(item);
    }
  }

  const AttentionKernelParams& p_;
  AttentionMetalPlan& plan_;
  int64_t group_, context_, tokens_ = 0, rows_ = 0;
  AttentionMetalItem base_ = {};
};

int32_t window(int64_t keys) { return static_cast<int32_t>(std::min(keys, kWidestWindow)); }

int64_t width_of(const AttentionKernelParams& p) {
  const int64_t widest = std::max(p.key_dim, p.value_dim);
  for (const int64_t width : {64, 128, 256})
    if (widest <= width) return width;
  return kMaxHeadDim;
}

}  // namespace

// The queries lie in threadgroup memory.
int64_t attention_metal_rows(const AttentionKernelParams& p) {
  const int64_t width = width_of(p), most = p.q_type == FloatType::kF32 ? 16 : 32;
  return width < 256 ? 32 : (width == 256 ? most : most / 2);
}

AttentionMetalPlan plan_attention_metal(const AttentionKernelParams& p, const BatchLayout& layout) {
  AttentionMetalPlan plan;
  for (int64_t s = 0; s < layout.num_sequences; ++s) SequencePlanner(p, layout, s, plan).plan();
  return plan;
}

AttentionMetal attention_metal(const AttentionKernelParams& p, const BatchLayout& layout,
                               const AttentionMetalPlan& plan) {
  check(p);
  AttentionMetal launch = {
      .params = {.tokens = layout.num_tokens,
                 .alibi_stride = p.alibi_stride,
                 .heads = static_cast<int32_t>(p.heads),
                 .kv_heads = static_cast<int32_t>(p.kv_heads),
                 .value_row = static_cast<int32_t>(p.values_in_keys ? p.key_dim : p.value_dim),
                 .window_left = window(p.window_left),
                 .window_right = window(p.window_right),
                 .window_step = window(p.window_step),
                 .exponent_scale = p.exponent_scale,
                 .softcap = p.softcap,
                 .softcap_scale = p.softcap_scale,
                 .score_scale = p.score_scale},
      .few = {},
      .many = {},
      .merge = {}};
  const std::string type = metal_type_name(p.q_type);
  const std::string name = "paged_attention_" + type + "_" + std::to_string(width_of(p)) + "_";
  launch.few.kernel = name + "1";
  launch.many.kernel = name + std::to_string(attention_metal_rows(p) / 8);
  launch.merge.kernel = "paged_attention_merge_" + type;
  launch.few.constants = launch.many.constants = launch.merge.constants = {
      metal_constant(kAttentionKeyDim, static_cast<int32_t>(p.key_dim)),
      metal_constant(kAttentionValueDim, static_cast<int32_t>(p.value_dim)),
      metal_constant(kAttentionBlockSize, static_cast<int32_t>(p.block_size)),
      metal_constant(kAttentionHasSinks, p.sinks != nullptr),
      metal_constant(kAttentionHasAlibi, p.alibi != nullptr),
      metal_constant(kAttentionHasLse, p.lse != nullptr),
      metal_constant(kAttentionHasCodes, is_quantised(p.kv_type)),
      metal_constant(kAttentionIsFp8, p.kv_type == KvType::kFp8)};
  const auto grid = [&](const auto& list) {
    return MetalSize{static_cast<uint32_t>(list.size()), static_cast<uint32_t>(p.kv_heads), 1};
  };
  launch.few.groups = grid(plan.few);
  launch.many.groups = grid(plan.many);
  launch.merge.groups = grid(plan.merges);
  launch.few.threads = launch.many.threads = {256, 1, 1};
  launch.merge.threads = {static_cast<uint32_t>((p.value_dim + 31) / 32 * 32), 1, 1};
  return launch;
}

}  // namespace quire::ops
