#include "ops/gated_activation/gated_activation_reference.h"

#include <cmath>
#include <numbers>

namespace quire::ops {

namespace mx = mlx::core;

namespace {

mx::array number(double value) { return mx::array(static_cast<float>(value)); }

mx::array open(const mx::array& x) { return number(1) / (number(1) + mx::exp(-x)); }

mx::array clamped_swiglu(const mx::array& gate, const mx::array& up, const Gate& options) {
  const mx::array limit = number(options.limit);
  const mx::array g = mx::minimum(gate, limit);
  const mx::array u = mx::clip(up, std::optional(-limit), std::optional(limit));
  return g * open(number(options.alpha) * g) * (u + number(1));
}

mx::array activated(const mx::array& x, Gate::Kind kind) {
  switch (kind) {
    case Gate::Kind::kGeluTanh: {
      const mx::array u = x * (number(1) + number(0.044715) * x * x);
      return number(0.5) * x * (number(1) + mx::tanh(number(std::sqrt(2 / std::numbers::pi)) * u));
    }
    case Gate::Kind::kGelu:
      return number(0.5) * x * (number(1) + mx::erf(x * number(std::sqrt(0.5))));
    case Gate::Kind::kRelu2:
      return mx::square(mx::maximum(x, number(0)));
    default:
      return x * open(x);
  }
}

}  // namespace

mx::array gated_activation_reference(const mx::array& gate, const mx::array& up,
                                     const Gate& options) {
  const mx::array g = mx::astype(gate, mx::float32), u = mx::astype(up, mx::float32);
  const mx::array y = options.kind == Gate::Kind::kClampedSwiglu ? clamped_swiglu(g, u, options)
                                                                 : activated(g, options.kind) * u;
  return mx::astype(y, gate.dtype());
}

mx::array gated_activation_reference(const mx::array& gate_up, const Gate& gate) {
  const auto halves = mx::split(gate_up, 2, -1);
  return gated_activation_reference(halves[0], halves[1], gate);
}

mx::array gated_activation_reference(const mx::array& x, const Columns& up, const Gate& gate) {
  const auto first = static_cast<int>(up.first);
  const mx::array columns = mx::slice(up.matrix, {0, first}, {x.shape(0), first + x.shape(1)});
  return gated_activation_reference(mx::concatenate({x, columns}, 1), gate);
}

}  // namespace quire::ops
