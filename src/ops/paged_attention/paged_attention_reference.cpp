#include "ops/paged_attention/paged_attention_reference.h"

#include <cmath>
#include <limits>

namespace quire::ops {

mx::array as_floats(const mx::array& rows) {
  if (rows.dtype() != mx::uint8) return mx::astype(rows, mx::float32);
  std::vector<float> values;  // what each FP8 code stands for
  for (int code = 0; code < 256; ++code) values.push_back(to_float(F8{static_cast<uint8_t>(code)}));
  return mx::take(mx::array(values.begin(), {256}), rows);
}

namespace {

// The keys or values of one sequence, [K, C, D] float32, C its context length; zeros where it has
// no block.
mx::array gather(const mx::array& pool, const std::optional<mx::array>& scale,
                 const BatchLayout& layout, int64_t sequence) {
  const int context = layout.seq_lens[sequence];
  std::vector<int32_t> block(context), offset(context);
  std::vector<uint8_t> exists(context);
  for (int t = 0; t < context; ++t) {
    const int32_t own = layout.block_table(sequence)[t / layout.block_size];
    exists[t] = own != kNoBlock;
    block[t] = exists[t] != 0 ? own : 0;
    offset[t] = static_cast<int32_t>(t % layout.block_size);
  }
  const auto rows_of = [&](const mx::array& from) {  // [K, C, D] of [N, P, K, D]
    const mx::array rows = mx::gather(
        from, {mx::array(block.begin(), {context}), mx::array(offset.begin(), {context})}, {0, 1},
        {1, 1, from.shape(2), from.shape(3)});  // [C, 1, 1, K, D]
    return mx::transpose(mx::squeeze(rows, {1, 2}), {1, 0, 2});
  };
  mx::array rows = rows_of(pool);
  rows = as_floats(rows);
  if (scale) rows = rows * rows_of(mx::expand_dims(*scale, -1));
  const mx::array mask(exists.begin(), {1, context, 1}, mx::bool_);
  return mx::where(mask, rows, mx::array(0.0f));
}

// [K, G, Tq, C] of ALiBi: -slope * |distance|.
mx::array bias(const BatchLayout& layout, int64_t sequence, const mx::array& slopes, int kv_heads) {
  const int first = layout.cu_seqlens[sequence], last = layout.cu_seqlens[sequence + 1];
  const mx::array query(layout.positions.begin() + first, {last - first, 1});
  const mx::array key = mx::reshape(mx::arange(layout.seq_lens[sequence], mx::int32), {1, -1});
  const int row = static_cast<int>(sequence), heads = slopes.shape(-1);
  const mx::array own = slopes.ndim() == 2 ? mx::slice(slopes, {row, 0}, {row + 1, heads}) : slopes;
  return mx::negative(mx::reshape(own, {kv_heads, heads / kv_heads, 1, 1}) *
                      mx::astype(mx::abs(query - key), mx::float32));
}

// Softmax over the keys, with the head's sink as one more key of value zero; a row that sees
// nothing is 0. And the logarithm of its denominator, [K, G, Tq, 1].
std::pair<mx::array, mx::array> softmax(const mx::array& scores, const AttentionParams& params) {
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
  const mx::array nothing = sum == mx::array(0.0f);
  const mx::array lse =
      mx::where(nothing, mx::array(-std::numeric_limits<float>::infinity()), mx::log(sum) + peak);
  return {p / mx::where(nothing, mx::array(1.0f), sum), lse};
}

AttentionWithLse attend(const mx::array& q, const PagedKv& kv, const BatchLayout& layout,
                        int64_t sequence, const AttentionParams& params) {
  const mx::array keys = gather(kv.k, kv.k_scale, layout, sequence);
  const mx::array values =
      kv.values_in_keys > 0
          ? mx::slice(keys, {0, 0, 0},
                      {keys.shape(0), keys.shape(1), static_cast<int>(kv.value_dim())})
          : gather(kv.v, kv.v_scale, layout, sequence);
  return attention_reference(q, keys, values, layout, sequence, params);
}

}  // namespace

mx::array visible_keys(const BatchLayout& layout, int64_t sequence, const AttentionParams& params) {
  const int first = layout.cu_seqlens[sequence], last = layout.cu_seqlens[sequence + 1];
  const int context = layout.seq_lens[sequence];
  const mx::array query(layout.positions.begin() + first, {last - first, 1});
  const mx::array key = mx::reshape(mx::arange(context, mx::int32), {1, context});
  mx::array mask = mx::full({last - first, context}, true);
  // A longer window than any distance is none; int32 holds the others.
  const auto limited = [](int64_t window) { return window >= 0 && window < (int64_t{1} << 30); };
  const int64_t right = params.causal ? 0 : params.window_right;
  if (limited(right)) mask = key <= query + mx::array(static_cast<int>(right));
  if (limited(params.window_left))
    mask = mx::logical_and(mask, key >= query - mx::array(static_cast<int>(params.window_left)));
  if (params.window_step > 0 && params.window_step < context) {
    const mx::array step(static_cast<int>(params.window_step));
    mask = mx::logical_and(mask, key >= mx::floor_divide(query, step) * step);
  }
  return mask;
}

AttentionWithLse attention_reference(const mx::array& q, const mx::array& k, const mx::array& v,
                                     const BatchLayout& layout, int64_t sequence,
                                     const AttentionParams& params) {
  const int rows = q.shape(0), heads = q.shape(1), dim = q.shape(2), kv_heads = k.shape(0);
  const int group = heads / kv_heads;
  const mx::array queries = mx::transpose(
      mx::reshape(mx::astype(q, mx::float32), {rows, kv_heads, group, dim}), {1, 2, 0, 3});
  const mx::array keys = mx::expand_dims(k, 1), values = mx::expand_dims(v, 1);  // [K, 1, C, D]
  mx::array scores =
      mx::matmul(queries, mx::swapaxes(keys, -1, -2)) * mx::array(params.scale);  // [K, G, Tq, C]
  if (params.softcap > 0) {
    const mx::array cap(params.softcap);
    scores = mx::tanh(scores / cap) * cap;
  }
  if (params.alibi_slopes) scores = scores + bias(layout, sequence, *params.alibi_slopes, kv_heads);
  scores = mx::where(visible_keys(layout, sequence, params), scores,
                     mx::array(-std::numeric_limits<float>::infinity()));
  const auto [p, lse] = softmax(scores, params);
  const mx::array out = mx::matmul(p, values);  // [K, G, Tq, Dv]
  return {.out = mx::reshape(mx::transpose(out, {2, 0, 1, 3}), {rows, heads, v.shape(2)}),
          .lse = mx::reshape(lse, {heads, rows})};
}

AttentionWithLse paged_attention_reference(const mx::array& q, const PagedKv& kv,
                                           const BatchLayout& layout,
                                           const AttentionParams& params) {
  const int heads = q.shape(1), value_dim = static_cast<int>(kv.value_dim());
  std::vector<mx::array> out = {mx::zeros({0, heads, value_dim})};
  std::vector<mx::array> lse = {mx::zeros({heads, 0})};
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int first = layout.cu_seqlens[s], last = layout.cu_seqlens[s + 1];
    if (first == last) continue;
    const mx::array rows = mx::slice(q, {first, 0, 0}, {last, heads, q.shape(2)});
    if (layout.seq_lens[s] > 0) {
      const AttentionWithLse part = attend(rows, kv, layout, s, params);
      out.push_back(part.out);
      lse.push_back(part.lse);
      continue;
    }
    out.push_back(mx::zeros({last - first, heads, value_dim}));
    const mx::array none = mx::full({heads}, -std::numeric_limits<float>::infinity());
    lse.push_back(mx::broadcast_to(mx::reshape(params.sinks.value_or(none), {heads, 1}),
                                   {heads, last - first}));
  }
  return {.out = mx::astype(mx::concatenate(out, 0), q.dtype()), .lse = mx::concatenate(lse, 1)};
}

}  // namespace quire::ops
