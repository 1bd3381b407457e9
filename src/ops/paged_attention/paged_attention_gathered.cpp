#include "ops/paged_attention/paged_attention_gathered.h"

#include <utility>
#include <vector>

#include "ops/gather_pages/gather_pages.h"
#include "ops/paged_attention/paged_attention_reference.h"

namespace quire::ops {
namespace {

// Whether each row sees the keys up to its own, and there is nothing else about it.
bool is_plain_triangle(const BatchLayout& layout, int64_t sequence, const AttentionParams& params) {
  const int32_t last = layout.positions[layout.cu_seqlens[sequence + 1] - 1];
  return params.causal && params.window_left < 0 && params.window_step == 0 &&
         last == layout.seq_lens[sequence] - 1;
}

// One sequence: q [Tq, H, D], k and v [C, K, D].
mx::array attend(const mx::array& q, const mx::array& k, const mx::array& v,
                 const BatchLayout& layout, int64_t sequence, const AttentionParams& params) {
  const auto heads_first = [](const mx::array& x) { return mx::transpose(x, {1, 0, 2}); };
  if (params.softcap > 0 || params.alibi_slopes) {
    const auto wide = [&](const mx::array& x) { return mx::astype(heads_first(x), mx::float32); };
    return mx::astype(attention_reference(q, wide(k), wide(v), layout, sequence, params).out,
                      q.dtype());
  }
  const auto batch = [&](const mx::array& x) { return mx::expand_dims(heads_first(x), 0); };
  const bool plain = is_plain_triangle(layout, sequence, params);
  const std::optional<mx::array> mask =
      plain ? std::nullopt : std::optional(visible_keys(layout, sequence, params));
  std::optional<mx::array> sinks = params.sinks;
  if (sinks) sinks = mx::astype(*sinks, q.dtype());  // as MLX takes them
  const mx::array out = mx::fast::scaled_dot_product_attention(
      batch(q), batch(k), batch(v), params.scale, plain ? "causal" : "", mask, sinks);
  return mx::transpose(mx::squeeze(out, 0), {1, 0, 2});
}

// Keys or values of all contexts, [C, K, D] in `dtype`.
mx::array gather(const Context& context, const mx::array& pool,
                 const std::optional<mx::array>& scale, mx::Dtype dtype,
                 const BatchLayoutPtr& layout) {
  const mx::array rows = gather_pages(context, pool, layout);
  if (!scale) return rows;
  const mx::array scales = mx::expand_dims(gather_pages(context, *scale, layout), -1);
  return mx::astype(as_floats(rows) * scales, dtype);
}

mx::array rows_of(const mx::array& x, int64_t begin, int64_t end) {
  mx::Shape from(x.ndim(), 0), to = x.shape();
  from[0] = static_cast<int>(begin);
  to[0] = static_cast<int>(end);
  return mx::slice(x, std::move(from), std::move(to));
}

}  // namespace

mx::array attend_gathered(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params) {
  context.kernels->literal_counter("paged_attention", "mlx")
      .fetch_add(1, std::memory_order_relaxed);
  const mx::array k = gather(context, kv.k, kv.k_scale, q.dtype(), layout);
  const mx::array v =
      kv.values_in_keys > 0
          ? mx::slice(k, {0, 0, 0}, {k.shape(0), 1, static_cast<int>(kv.value_dim())})
          : gather(context, kv.v, kv.v_scale, q.dtype(), layout);
  std::vector<mx::array> out;
  int64_t begin = 0;
  for (int64_t s = 0; s < layout->num_sequences; ++s) {
    const int64_t end = begin + layout->seq_lens[s];
    const int32_t first = layout->cu_seqlens[s], last = layout->cu_seqlens[s + 1];
    // Nobody sees anything in a step that only asks what memory it takes.
    if (first < last && begin == end)
      out.push_back(
          mx::zeros({last - first, q.shape(1), static_cast<int>(kv.value_dim())}, q.dtype()));
    else if (first < last)
      out.push_back(attend(rows_of(q, first, last), rows_of(k, begin, end), rows_of(v, begin, end),
                           *layout, s, params));
    begin = end;
  }
  return mx::contiguous(mx::concatenate(std::move(out), 0));
}

}  // namespace quire::ops
