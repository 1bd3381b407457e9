#include "ops/gated_delta_rule/gated_delta_rule_reference.h"

#include <cmath>

#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"

namespace quire::ops {
namespace {

mx::array float_columns(const mx::array& x, int begin, int end, int first, int count) {
  return mx::astype(mx::slice(x, {begin, first}, {end, first + count}), mx::float32);
}

// x / sqrt(sum(x^2) + 1e-6) over the last axis.
mx::array unit(const mx::array& x) {
  return x * mx::rsqrt(mx::sum(mx::square(x), -1, /*keepdims=*/true) + mx::array(1e-6f));
}

// [tokens, K, Dk] -> [tokens, H, 1, Dk], each key head for its value heads.
mx::array spread(const mx::array& x, int v_heads, bool take_turns) {
  const int times = v_heads / x.shape(1);
  return mx::expand_dims(take_turns ? mx::tile(x, {1, times, 1}) : mx::repeat(x, times, 1), 2);
}

struct Sequence {
  mx::array q, k;         // [n, H, 1, Dk]
  mx::array v;            // [n, H, Dv, 1]
  mx::array decay, beta;  // [n, H, 1, 1]
};

Sequence inputs_of(const mx::array& qkv, const DeltaGates& gates, const mx::array& state, int begin,
                   int end) {
  const int n = end - begin, heads = state.shape(1), v_dim = state.shape(2), dim = state.shape(3);
  const int key_width = (qkv.shape(1) - heads * v_dim) / 2, k_heads = key_width / dim;
  const mx::Shape keys = {n, k_heads, dim}, gate = {n, heads, 1, 1};
  const mx::array q = unit(mx::reshape(float_columns(qkv, begin, end, 0, key_width), keys));
  const mx::array k = unit(mx::reshape(float_columns(qkv, begin, end, key_width, key_width), keys));
  const mx::array v = float_columns(qkv, begin, end, 2 * key_width, heads * v_dim);
  const auto gate_columns = [&](int64_t column) {
    return float_columns(gates.projected, begin, end, static_cast<int>(column), heads);
  };
  const mx::array x = gate_columns(gates.a_column) + gates.dt_bias;
  const mx::array softplus = mx::logaddexp(x, mx::array(0.0f));
  const mx::array scale = mx::array(1.0f / std::sqrt(static_cast<float>(dim)));
  return {.q = spread(q, heads, gates.heads_take_turns) * scale,
          .k = spread(k, heads, gates.heads_take_turns),
          .v = mx::reshape(v, {n, heads, v_dim, 1}),
          .decay = mx::reshape(mx::exp(mx::negative(mx::exp(gates.a_log) * softplus)), gate),
          .beta = mx::reshape(mx::sigmoid(gate_columns(gates.b_column)), gate)};
}

// Row t of x, without that axis.
mx::array at(const mx::array& x, int t) {
  mx::Shape begin(x.ndim(), 0), end = x.shape();
  begin[0] = t;
  end[0] = t + 1;
  return mx::squeeze(mx::slice(x, begin, end), 0);
}

}  // namespace

mx::array matrices_of_slot(const mx::array& slot) {
  const int heads = slot.shape(0), rows = slot.shape(1), dim = slot.shape(2);
  const mx::array flat = mx::reshape(slot, {heads, rows * dim});
  std::vector<mx::array> blocks;
  for (int first = 0; first < rows; first += kDeltaRows) {
    const int count = std::min<int>(kDeltaRows, rows - first);
    const mx::array block = mx::slice(flat, {0, first * dim}, {heads, (first + count) * dim});
    blocks.push_back(mx::swapaxes(mx::reshape(block, {heads, dim, count}), 1, 2));
  }
  return mx::contiguous(mx::concatenate(blocks, 1));
}

mx::array slot_of_matrices(const mx::array& matrices) {
  const int heads = matrices.shape(0), rows = matrices.shape(1), dim = matrices.shape(2);
  std::vector<mx::array> blocks;
  for (int first = 0; first < rows; first += kDeltaRows) {
    const int count = std::min<int>(kDeltaRows, rows - first);
    const mx::array block = mx::slice(matrices, {0, first, 0}, {heads, first + count, dim});
    blocks.push_back(mx::reshape(mx::swapaxes(block, 1, 2), {heads, count * dim}));
  }
  return mx::reshape(mx::concatenate(blocks, 1), {heads, rows, dim});
}

DeltaRuleResult gated_delta_rule_reference(const mx::array& qkv, const DeltaGates& gates,
                                           const mx::array& state, const BatchLayout& layout) {
  const int heads = state.shape(1), v_dim = state.shape(2), k_dim = state.shape(3);
  mx::array pool = state;
  std::vector<mx::array> rows;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int begin = layout.cu_seqlens[s], end = layout.cu_seqlens[s + 1];
    if (begin == end) continue;
    const int slot = layout.state_slots[s];
    const Sequence in = inputs_of(qkv, gates, state, begin, end);
    mx::array matrix = layout.positions[begin] == 0 ? mx::zeros({heads, v_dim, k_dim})
                                                    : matrices_of_slot(at(state, slot));
    for (int t = 0; t < end - begin; ++t) {
      const mx::array k = at(in.k, t);
      matrix = matrix * at(in.decay, t);
      const mx::array seen = mx::sum(matrix * k, -1, /*keepdims=*/true);
      matrix = matrix + (at(in.v, t) - seen) * at(in.beta, t) * k;
      rows.push_back(mx::reshape(mx::sum(matrix * at(in.q, t), -1), {1, heads, v_dim}));
    }
    const mx::Shape first = {slot, 0, 0, 0}, last = {slot + 1, heads, v_dim, k_dim};
    pool = mx::slice_update(pool, mx::expand_dims(slot_of_matrices(matrix), 0), first, last);
  }
  if (rows.empty()) return {mx::zeros({0, heads, v_dim}, qkv.dtype()), pool};
  return {mx::astype(mx::concatenate(rows, 0), qkv.dtype()), pool};
}

}  // namespace quire::ops
