#pragma once
#include <string>
#include <vector>

#include "ops/paged_attention/attention_cuda_choice.h"

// Which kernels take which step on Hopper and on other GPUs: tests of the choice read it on the
// host, and tests/cuda runs the kernels.
namespace quire::ops::testing {

struct AttentionChoiceCase {
  std::string name;
  AttentionKernelParams params;
  std::vector<int64_t> rows;  // new tokens of each sequence
  int64_t context = 512;      // tokens of each sequence, with the new ones
  AttentionCudaChoice hopper, plain;
};

inline AttentionKernelParams heads_of(int64_t dim, KvType kv_type = KvType::kBf16) {
  return {.q_type = FloatType::kBf16,
          .kv_type = kv_type,
          .heads = 8,
          .kv_heads = 2,
          .key_dim = dim,
          .value_dim = dim,
          .block_size = 16};
}

inline std::vector<AttentionChoiceCase> attention_choices() {
  using enum AttentionCudaKernel;
  AttentionKernelParams odd_pages = heads_of(128), many_heads = heads_of(128),
                        latent = heads_of(576), one_pool = heads_of(128),
                        floats = heads_of(128, KvType::kF32), halves = heads_of(128, KvType::kF16);
  odd_pages.block_size = 24;
  many_heads.heads = many_heads.kv_heads = 32;
  latent.kv_heads = 1;
  latent.value_dim = 512;
  latent.values_in_keys = one_pool.values_in_keys = true;
  floats.q_type = FloatType::kF32;
  halves.q_type = FloatType::kF16;
  const std::vector<int64_t> row = {1}, five = {1, 1, 1, 1, 1}, prompt = {300}, both = {1, 300},
                             more = {1, 1, 1, 1, 300};
  const AttentionCudaChoice few = {kTiles, kNone}, many = {kNone, kTiles}, tiles = {kTiles, kTiles},
                            plain = {kPlain, kPlain};
  std::vector<AttentionChoiceCase> cases = {
      {"a row", heads_of(128), row, 512, {kShared, kNone}, few},
      {"a row, heads of 64", heads_of(64), row, 512, {kShared, kNone}, few},
      {"a row, heads of 96", heads_of(96), row, 512, few, few},
      {"a row of more clusters than run at once", many_heads, row, 1024, {kTilesOf128, kNone}, few},
      {"five rows", heads_of(128), five, 512, {kTilesOf128, kNone}, few},
      {"five rows, heads of 64", heads_of(64), five, 512, few, few},
      {"a prompt", heads_of(128), prompt, 512, {kNone, kWgmmaPrefill}, many},
      {"a prompt, heads of 64", heads_of(64), prompt, 512, {kNone, kWgmmaPrefill}, many},
      {"a prompt, heads of 96", heads_of(96), prompt, 512, {kNone, kPrefill}, many},
      {"a prompt, heads of 32", heads_of(32), prompt, 512, {kNone, kPrefill}, {kNone, kPrefill}},
      {"a prompt, odd pages", odd_pages, prompt, 512, {kNone, kPrefill}, many},
      {"both", heads_of(128), both, 512, {kShared, kWgmmaPrefill}, tiles},
      {"both, heads of 64", heads_of(64), both, 512, {kShared, kWgmmaPrefill}, tiles},
      {"both, more sequences", heads_of(128), more, 512, {kTilesOf128, kWgmmaPrefill}, tiles},
      {"both, odd pages", odd_pages, both, 512, {kShared, kPrefill}, tiles},
      {"wide heads, both", heads_of(256), both, 512, tiles, tiles},
      {"wider heads, a row", heads_of(512), row, 512, few, plain},
      {"wider heads, both", heads_of(512), both, 512, tiles, plain},
      {"widest heads", heads_of(576), row, 512, plain, plain},
      {"latent, a row", latent, row, 512, few, plain},
      {"latent, both", latent, both, 512, tiles, plain},
      {"values in keys", one_pool, both, 512, {kTilesOf128, kPrefill}, tiles},
      {"f32", floats, both, 512, plain, plain},
      {"f16", halves, both, 512, plain, plain},
      {"nothing", heads_of(128), {}, 512, {}, {}}};
  for (const KvType codes : {KvType::kInt8, KvType::kFp8}) {
    const std::string name = codes == KvType::kInt8 ? "int8" : "fp8";
    cases.push_back({name + ", a row", heads_of(128, codes), row, 512, few, few});
    cases.push_back({name + ", a prompt", heads_of(64, codes), prompt, 512, many, many});
    cases.push_back({name + ", both", heads_of(128, codes), both, 512, tiles, tiles});
  }
  return cases;
}

// The case's step, with the pages of its sequences one after another.
inline BatchLayout layout_of(const AttentionChoiceCase& c) {
  BatchLayout layout;
  layout.block_size = c.params.block_size;
  layout.num_sequences = static_cast<int64_t>(c.rows.size());
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  const int64_t pages = (c.context + layout.block_size - 1) / layout.block_size;
  for (const int64_t rows : c.rows) {
    for (int64_t i = 0; i < rows; ++i)
      layout.positions.push_back(static_cast<int32_t>(c.context - rows + i));
    layout.num_tokens += rows;
    layout.cu_seqlens.push_back(static_cast<int32_t>(layout.num_tokens));
    layout.seq_lens.push_back(static_cast<int32_t>(c.context));
    for (int64_t b = 0; b < pages; ++b)
      layout.blocks.push_back(static_cast<int32_t>(layout.blocks.size()));
    layout.block_offsets.push_back(static_cast<int64_t>(layout.blocks.size()));
  }
  return layout;
}

}  // namespace quire::ops::testing
