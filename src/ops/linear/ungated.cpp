#include "ops/linear/ungated.h"

#include <stdexcept>

#include "ops/gated_activation/gated_activation.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear_kernel.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel;  // and that of dense weights

}  // namespace

PackedMatrix ungated(const PackedMatrix& interleaved) {
  if (!interleaved.interleaved) throw std::invalid_argument("ungated: the weight has no gate");
  PackedMatrix plain = interleaved;
  plain.interleaved = false;
  if (!plain.parts) plain.n = linear_panels(interleaved.n, true) * kPanel;
  return plain;
}

LinearWeight ungated(const Context& context, const LinearWeight& interleaved) {
  LinearWeight plain = {.weight = ungated(interleaved.weight), .bias = interleaved.bias};
  if (!plain.bias || plain.weight.parts) return plain;
  std::vector<float> bias(static_cast<size_t>(plain.weight.n));
  const float* from = interleaved.bias->data<float>();
  const int64_t half = interleaved.weight.n / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t at = i / kPanel * 2 * kPanel + i % kPanel;
    bias[static_cast<size_t>(at)] = from[i];
    bias[static_cast<size_t>(at + kPanel)] = from[half + i];
  }
  plain.bias =
      context.device->make_array(bias.data(), {static_cast<int>(plain.weight.n)}, mx::float32);
  return plain;
}

mx::array gate_ungated(const Context& context, const mx::array& y, const PackedMatrix& interleaved,
                       const Gate& gate) {
  if (interleaved.parts) return gated_activation(context, y, gate);
  const int tokens = y.shape(0), panels = static_cast<int>(linear_panels(interleaved.n / 2));
  // A panel of gates and its ups are a row of their own.
  const mx::array pairs = mx::reshape(y, {tokens * panels, static_cast<int>(2 * kPanel)});
  const mx::array gated = mx::reshape(gated_activation(context, pairs, gate),
                                      {tokens, static_cast<int>(panels * kPanel)});
  const int64_t width = interleaved.n / 2;
  return width == gated.shape(1) ? gated : slice_columns(context, gated, 0, width);
}

}  // namespace quire::ops
