#pragma once
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ops/kv_cache.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/test_util.h"

// Sequences with random queries, keys and values at all their positions, and steps over them: some
// positions of some sequences, in paged memory of any layout. The same position gets the same data
// whatever step it is in, so that results can be compared.
namespace quire::ops::testing {

struct Heads {
  int heads = 4, kv_heads = 2, dim = 64, value_dim = 64;
};

// Query positions [first, first + count) of a sequence.
struct Segment {
  int sequence, first, count;
};

struct Paging {
  int block_size = 16;
  uint32_t order = 0;    // 0: ascending blocks; else the seed of a permutation of them
  int spare_blocks = 3;  // never written
  float unwritten = std::numeric_limits<float>::quiet_NaN();
  bool later_tokens = false;   // also write the tokens after each segment's last
  bool whole_context = false;  // and let them be keys: a segment is any part of its sequence
  int shift = 0;               // added to all positions: < 0 and some rows are before the first key

  bool writes_all() const { return later_tokens || whole_context; }
};

struct Step {
  mx::array q;
  PagedKv kv;
  BatchLayoutPtr layout;
};

class Sequences {
 public:
  Sequences(Heads heads, mx::Dtype dtype, std::vector<int> lengths, uint32_t seed = 7)
      : heads_(heads), dtype_(dtype), lengths_(std::move(lengths)) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t size) {
      std::vector<float> values(size);
      for (float& value : values) value = normal(generator);
      return values;
    };
    for (const int length : lengths_) {
      q_.push_back(fill(int64_t{length} * heads.heads * heads.dim));
      k_.push_back(fill(int64_t{length} * heads.kv_heads * heads.dim));
      v_.push_back(fill(int64_t{length} * heads.kv_heads * heads.value_dim));
    }
  }

  const Heads& heads() const { return heads_; }
  mx::Dtype dtype() const { return dtype_; }
  std::vector<float>& keys(int sequence) { return k_[sequence]; }
  std::vector<float>& values(int sequence) { return v_[sequence]; }

  // The whole of every sequence.
  std::vector<Segment> whole() const {
    std::vector<Segment> segments;
    for (int s = 0; s < static_cast<int>(lengths_.size()); ++s)
      segments.push_back({s, 0, lengths_[s]});
    return segments;
  }

  Step step(const std::vector<Segment>& segments, const Paging& paging = {}) const {
    auto layout = std::make_shared<BatchLayout>();
    layout->block_size = paging.block_size;
    layout->cu_seqlens = {0};
    layout->block_offsets = {0};
    int blocks = 0;
    for (const Segment& s : segments) {
      const int context = paging.whole_context ? lengths_[s.sequence] : s.first + s.count;
      for (int i = 0; i < s.count; ++i) layout->positions.push_back(s.first + i + paging.shift);
      layout->cu_seqlens.push_back(layout->cu_seqlens.back() + s.count);
      layout->seq_lens.push_back(context);
      blocks += ((paging.writes_all() ? lengths_[s.sequence] : context) + paging.block_size - 1) /
                paging.block_size;
      layout->block_offsets.push_back(blocks);
    }
    layout->num_sequences = static_cast<int64_t>(segments.size());
    layout->num_tokens = layout->cu_seqlens.back();
    layout->blocks.resize(blocks + paging.spare_blocks);
    std::iota(layout->blocks.begin(), layout->blocks.end(), 0);
    if (paging.order != 0)
      std::shuffle(layout->blocks.begin(), layout->blocks.end(), std::mt19937(paging.order));
    layout->blocks.resize(blocks);
    const PagedKv kv = {
        pool(segments, *layout, paging, k_, heads_.dim, blocks + paging.spare_blocks),
        pool(segments, *layout, paging, v_, heads_.value_dim, blocks + paging.spare_blocks)};
    return {queries(segments), kv, layout};
  }

 private:
  mx::array queries(const std::vector<Segment>& segments) const {
    const int64_t row = int64_t{heads_.heads} * heads_.dim;
    std::vector<float> values;
    for (const Segment& s : segments)
      values.insert(values.end(), q_[s.sequence].begin() + s.first * row,
                    q_[s.sequence].begin() + (s.first + s.count) * row);
    return rounded(values, {static_cast<int>(values.size() / row), heads_.heads, heads_.dim});
  }

  mx::array pool(const std::vector<Segment>& segments, const BatchLayout& layout,
                 const Paging& paging, const std::vector<std::vector<float>>& data, int dim,
                 int blocks) const {
    const int64_t row = int64_t{heads_.kv_heads} * dim;
    std::vector<float> values(blocks * paging.block_size * row, paging.unwritten);
    for (size_t i = 0; i < segments.size(); ++i) {
      const Segment& s = segments[i];
      const int written = paging.writes_all() ? lengths_[s.sequence] : s.first + s.count;
      for (int64_t t = 0; t < written; ++t) {
        const int64_t block = layout.block_table(static_cast<int64_t>(i))[t / paging.block_size];
        const int64_t slot = block * paging.block_size + t % paging.block_size;
        std::copy_n(data[s.sequence].begin() + t * row, row, values.begin() + slot * row);
      }
    }
    return rounded(values, {blocks, paging.block_size, heads_.kv_heads, dim});
  }

  mx::array rounded(const std::vector<float>& values, mx::Shape shape) const {
    mx::array result = mx::astype(mx::array(values.data(), std::move(shape), mx::float32), dtype_);
    mx::eval(result);
    return result;
  }

  Heads heads_;
  mx::Dtype dtype_;
  std::vector<int> lengths_;
  std::vector<std::vector<float>> q_, k_, v_;
};

// Rows [begin, end) of an attention output.
inline mx::array rows_of(const mx::array& out, int begin, int end) {
  return mx::slice(out, {begin, 0, 0}, {end, out.shape(1), out.shape(2)});
}

inline mx::array attend(const Context& context, const Step& step, const AttentionParams& params) {
  mx::array out = paged_attention(context, step.q, step.kv, step.layout, params);
  mx::eval(out);
  return out;
}

inline AttentionWithLse attend_with_lse(const Context& context, const Step& step,
                                        const AttentionParams& params) {
  const AttentionWithLse result =
      paged_attention_with_lse(context, step.q, step.kv, step.layout, params);
  mx::eval(result.out, result.lse);
  return result;
}

// A slope for each head, some of them 0 or negative.
inline mx::array slopes_of(int heads) {
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) slopes.push_back(h % 5 == 3 ? -0.01f : 0.13f * (h % 5));
  return mx::array(slopes.begin(), {heads});
}

// The kernel that serves queries and pools of this dtype under the instruction set in force.
inline const char* attention_kernel(mx::Dtype dtype) {
  return dtype == mx::bfloat16 && use_amx() ? "cpu_amx" : cpu_kernel_name();
}

}  // namespace quire::ops::testing
