#include "ops/paged_attention/paged_attention_reference.h"

#include <cmath>
#include <limits>

namespace quire::ops {
namespace {

// The keys or values of one sequence, [K, C, D] float32, C its context length.
mx::array gather(const mx::array& pool, const BatchLayout& layout, int64_t sequence) {
  const int context = layout.seq_lens[sequence];
  std::vector<int32_t> block(context), offset(context);
  for (int t = 0; t < context; ++t) {
    block[t] = layout.block_table(sequence)[t / layout.block_size];
    offset[t] = static_cast<int32_t>(t % layout.block_size);
  }
  const mx::array rows =
      mx::gather(pool, {mx::array(block.begin(), {context}), mx::array(offset.begin(), {context})},
                 {0, 1}, {1, 1, pool.shape(2), pool.shape(3)});  // [C, 1, 1, K, D]
  return mx::astype(mx::transpose(mx::squeeze(rows, {1, 2}), {1, 0, 2}), mx::float32);
}

// [Tq, C]: which keys each query row of the sequence sees.
mx::array visible(const BatchLayout& layout, int64_t sequence, int64_t window_left) {
  const int first = layout.cu_seqlens[sequence], last = layout.cu_seqlens[sequence + 1];
  const int context = layout.seq_lens[sequence];
  const mx::array query(layout.positions.begin() + first, {last - first, 1});
  const mx::array key = mx::reshape(mx::arange(context, mx::int32), {1, context});
  mx::array mask = key <= query;
  if (window_left >= 0 && window_left < context)
    mask = mx::logical_and(mask, key >= query - mx::array(static_cast<int>(window_left)));
  return mask;
}

// Softmax over the keys, with the head's sink as one more key of value zero; a row that sees
// nothing is 0.
mx::array softmax(const mx::array& scores, const AttentionParams& params) {
  mx::array peak = mx::max(scores, -1, /*keepdims=*/true);
  std::optional<mx::array> sink;
  if (params.sinks) {
    sink = mx::reshape(*params.sinks, {scores.shape(0), scores.shape(1), 1, 1});
    peak = mx::maximum(peak, *sink);
  }
  const float lowest = std::numeric_limits<float>::lowest();
  peak = mx::maximum(peak, mx::array(lowest));
  const mx::array p = mx::exp(scores - peak);
  mx::array sum = mx::sum(p, -1, /*keepdims=*/true);
  if (sink) sum = sum + mx::exp(*sink - peak);
  return p / mx::where(sum == mx::array(0.0f), mx::array(1.0f), sum);
}

mx::array attend(const mx::array& q, const PagedKv& kv, const BatchLayout& layout, int64_t sequence,
                 const AttentionParams& params) {
  const int rows = q.shape(0), heads = q.shape(1), dim = q.shape(2), kv_heads = kv.k.shape(2);
  const int group = heads / kv_heads, value_dim = kv.v.shape(3);
  const mx::array queries = mx::transpose(
      mx::reshape(mx::astype(q, mx::float32), {rows, kv_heads, group, dim}), {1, 2, 0, 3});
  const mx::array keys = mx::expand_dims(gather(kv.k, layout, sequence), 1);  // [K, 1, C, D]
  const mx::array values = mx::expand_dims(gather(kv.v, layout, sequence), 1);
  mx::array scores =
      mx::matmul(queries, mx::swapaxes(keys, -1, -2)) * mx::array(params.scale);  // [K, G, Tq, C]
  if (params.softcap > 0) {
    const mx::array cap(params.softcap);
    scores = mx::tanh(scores / cap) * cap;
  }
  scores = mx::where(visible(layout, sequence, params.window_left), scores,
                     mx::array(-std::numeric_limits<float>::infinity()));
  const mx::array out = mx::matmul(softmax(scores, params), values);  // [K, G, Tq, Dv]
  return mx::reshape(mx::transpose(out, {2, 0, 1, 3}), {rows, heads, value_dim});
}

}  // namespace

mx::array paged_attention_reference(const mx::array& q, const PagedKv& kv,
                                    const BatchLayout& layout, const AttentionParams& params) {
  std::vector<mx::array> parts;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int first = layout.cu_seqlens[s], last = layout.cu_seqlens[s + 1];
    if (first == last) continue;
    const mx::array rows = mx::slice(q, {first, 0, 0}, {last, q.shape(1), q.shape(2)});
    if (layout.seq_lens[s] == 0) {
      parts.push_back(mx::zeros({last - first, q.shape(1), kv.v.shape(3)}));
    } else {
      parts.push_back(attend(rows, kv, layout, s, params));
    }
  }
  if (parts.empty()) return mx::zeros({q.shape(0), q.shape(1), kv.v.shape(3)}, q.dtype());
  return mx::astype(mx::concatenate(parts, 0), q.dtype());
}

}  // namespace quire::ops
