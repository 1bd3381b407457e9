#include "ops/moe_route/moe_route_reference.h"

#include <limits>

namespace quire::ops {
namespace {

mx::array number(float value) { return mx::array(value); }
mx::array minus_infinity() { return number(-std::numeric_limits<float>::infinity()); }

// The indices of the k largest of each row. A stable sort, so that the lower one comes first among
// equals.
mx::array best_of(const mx::array& keys, int64_t k) {
  const mx::array order = mx::argsort(-keys, -1);
  return mx::slice(order, {0, 0}, {keys.shape(0), static_cast<int>(k)});
}

// 1 at the given indices of rows of `width`, else 0.
mx::array marks(const mx::array& indices, int width) {
  const mx::array all = mx::reshape(mx::arange(width), {1, 1, width});
  return mx::any(mx::equal(mx::expand_dims(mx::astype(indices, mx::int32), -1), all), 1);
}

// Keys of experts in groups that were not chosen become -infinity.
mx::array limit_groups(const mx::array& keys, const MoeRouteOptions& options) {
  const int rows = keys.shape(0), groups = static_cast<int>(options.groups);
  const mx::array grouped = mx::reshape(keys, {rows, groups, -1});
  const mx::array value = options.groups_by_two ? mx::sum(mx::topk(grouped, 2, -1), -1)
                                                : mx::max(grouped, std::vector{-1});
  const mx::array chosen = marks(best_of(value, options.chosen_groups), groups);
  return mx::reshape(mx::where(mx::expand_dims(chosen, -1), grouped, minus_infinity()),
                     keys.shape());
}

MoeRouting sparse_mixer(const mx::array& logits, float jitter) {
  mx::array left = logits;
  std::vector<mx::array> experts, weights;
  for (int i = 0; i < 2; ++i) {
    const mx::array max = mx::max(left, std::vector{-1}, /*keepdims=*/true);
    const mx::array factor = mx::maximum(mx::abs(logits), max);
    const mx::array far = mx::greater((max - logits) / factor, number(2 * jitter));
    const mx::array scores = mx::softmax(mx::where(far, minus_infinity(), left), -1, true);
    experts.push_back(best_of(left, 1));
    weights.push_back(mx::take_along_axis(scores, experts.back(), -1));
    left = mx::where(marks(experts.back(), logits.shape(1)), minus_infinity(), left);
  }
  return {.experts = mx::concatenate(experts, -1), .weights = mx::concatenate(weights, -1)};
}

MoeRouting best_scores(const mx::array& logits, const MoeRouteOptions& options,
                       const MoeRouteArrays& arrays) {
  const mx::array scores = options.score == MoeScore::kSigmoid
                               ? mx::sigmoid(logits)
                               : mx::softmax(logits, -1, /*precise=*/true);
  mx::array keys = arrays.correction       ? scores + *arrays.correction
                   : options.groups_by_two ? scores
                                           : logits;
  if (options.groups > 1) keys = limit_groups(keys, options);
  const mx::array experts = best_of(keys, options.top_k);
  mx::array weights = mx::take_along_axis(scores, experts, -1);
  if (options.normalise) {
    const mx::array sum = mx::sum(weights, -1, /*keepdims=*/true) + number(options.sum_offset);
    weights = weights / mx::maximum(sum, number(options.least_sum));
  }
  return {.experts = experts, .weights = weights};
}

}  // namespace

MoeRouting moe_route_reference(const mx::array& logits, const MoeRouteOptions& options,
                               const MoeRouteArrays& arrays) {
  const mx::array cap = number(options.softcap);
  const mx::array capped = options.softcap > 0 ? cap * mx::tanh(logits / cap) : logits;
  MoeRouting routing = options.score == MoeScore::kSparseMixer
                           ? sparse_mixer(capped, options.jitter)
                           : best_scores(capped, options, arrays);
  routing.weights = routing.weights * number(options.scale);
  if (arrays.expert_scale)
    routing.weights = routing.weights * mx::take(*arrays.expert_scale, routing.experts);
  const mx::array bad = mx::any(mx::isnan(logits), -1, /*keepdims=*/true);
  const mx::array first = mx::arange(static_cast<int>(options.top_k));
  routing.experts = mx::where(bad, first, mx::astype(routing.experts, mx::int32));
  routing.weights =
      mx::where(bad, number(std::numeric_limits<float>::quiet_NaN()), routing.weights);
  return {.experts = mx::contiguous(routing.experts), .weights = mx::contiguous(routing.weights)};
}

}  // namespace quire::ops
