#include "ops/paged_attention/paged_attention_metal.h"

#include <algorithm>
#include <stdexcept>

#include "ops/metal/metal_types.h"

namespace quire::ops {
namespace {

constexpr uint32_t kGroupHeads = 8;  // of one threadgroup

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("paged_attention: no Metal kernel for " + what);
}

void check(const AttentionKernelParams& p) {
  if (kv_type_of(p.q_type) != p.kv_type) refuse("queries and pools of different types");
  if (p.values_in_keys) refuse("values in keys");
  if (p.key_dim > 256 || p.value_dim > 256) refuse("heads of more than 256 elements");
  if (p.key_dim % 8 != 0 || p.value_dim % 8 != 0) refuse("heads that are no multiple of 8");
}

// The keys that a row sees.
struct Sight {
  int64_t first, end;
};
Sight sight_of(const AttentionKernelParams& p, int64_t position, int64_t context) {
  const int64_t end =
      p.window_right < 0 ? context : std::clamp<int64_t>(position + p.window_right + 1, 0, context);
  return {std::min(p.first_key(position), end), end};
}

}  // namespace

AttentionMetalPlan plan_decode_metal(const AttentionKernelParams& p, const BatchLayout& layout) {
  AttentionMetalPlan plan;
  for (int64_t s = 0; s < layout.num_sequences; ++s)
    for (int32_t t = layout.cu_seqlens[s]; t < layout.cu_seqlens[s + 1]; ++t) {
      const Sight sight = sight_of(p, layout.positions[t], layout.seq_lens[s]);
      AttentionMetalItem item = {.token = t,
                                 .sequence = static_cast<int32_t>(s),
                                 .position = layout.positions[t],
                                 .first = static_cast<int32_t>(sight.first),
                                 .end = static_cast<int32_t>(sight.end),
                                 .partial = -1,
                                 .blocks = layout.block_offsets[s]};
      const int64_t begin = sight.first / kAttentionChunk;
      const int64_t chunks = (sight.end + kAttentionChunk - 1) / kAttentionChunk - begin;
      if (sight.first >= sight.end || chunks == 1) {
        plan.items.push_back(item);
        continue;
      }
      plan.merges.push_back({t, static_cast<int32_t>(plan.partials), static_cast<int32_t>(chunks)});
      for (int64_t c = begin; c < begin + chunks; ++c) {
        item.first = static_cast<int32_t>(std::max(sight.first, c * kAttentionChunk));
        item.end = static_cast<int32_t>(std::min(sight.end, (c + 1) * kAttentionChunk));
        item.partial = static_cast<int32_t>(plan.partials++);
        plan.items.push_back(item);
      }
    }
  return plan;
}

AttentionMetal attention_metal(const AttentionKernelParams& p, const BatchLayout& layout,
                               const AttentionMetalPlan& plan) {
  check(p);
  AttentionMetal launch = {.params = {.tokens = layout.num_tokens,
                                      .heads = static_cast<int32_t>(p.heads),
                                      .kv_heads = static_cast<int32_t>(p.kv_heads),
                                      .alibi_stride = p.alibi_stride,
                                      .exponent_scale = p.exponent_scale,
                                      .softcap = p.softcap,
                                      .softcap_scale = p.softcap_scale,
                                      .score_scale = p.score_scale},
                           .decode = {},
                           .merge = {}};
  const std::string type = metal_type_name(p.q_type);
  const int64_t widest = std::max(p.key_dim, p.value_dim);
  launch.decode.kernel = "paged_attention_decode_" + type + "_" +
                         (widest <= 64 ? "64" : (widest <= 128 ? "128" : "256"));
  launch.merge.kernel = "paged_attention_merge_" + type;
  launch.decode.constants = {
      metal_constant(kAttentionKeyDim, static_cast<int32_t>(p.key_dim)),
      metal_constant(kAttentionValueDim, static_cast<int32_t>(p.value_dim)),
      metal_constant(kAttentionBlockSize, static_cast<int32_t>(p.block_size)),
      metal_constant(kAttentionHasSinks, p.sinks != nullptr),
      metal_constant(kAttentionHasAlibi, p.alibi != nullptr),
      metal_constant(kAttentionHasLse, p.lse != nullptr)};
  launch.merge.constants = launch.decode.constants;
  const auto group = static_cast<uint32_t>(p.heads / p.kv_heads);
  const uint32_t slices = (group + kGroupHeads - 1) / kGroupHeads;
  launch.decode.groups = {static_cast<uint32_t>(plan.items.size()),
                          static_cast<uint32_t>(p.kv_heads), slices};
  launch.decode.threads = {256, 1, 1};
  launch.merge.groups = {static_cast<uint32_t>(plan.merges.size()), static_cast<uint32_t>(p.heads),
                         1};
  launch.merge.threads = {static_cast<uint32_t>((p.value_dim + 31) / 32 * 32), 1, 1};
  return launch;
}

}  // namespace quire::ops
