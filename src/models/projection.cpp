#include "models/projection.h"

#include "ops/linear/ungated.h"
#include "ops/residual_add/residual_add.h"

namespace quire::models {

mx::array project(const ops::Context& context, const mx::array& x, const Projection& projection,
                  const ops::LinearOptions& options, const ops::AdapterRowsPtr& rows) {
  if (!projection.is_adapted(rows)) return ops::linear(context, x, projection.weight, options);
  const ops::LinearWeight& weight = options.gate ? *projection.ungated : projection.weight;
  const mx::array product = ops::linear(context, x, weight, {.norm = options.norm});
  const mx::array y = ops::lora_add(context, x, product, projection.lora, rows, options.norm);
  if (options.gate) return ops::gate_ungated(context, y, projection.weight.weight, *options.gate);
  return options.residual ? ops::residual_add(context, y, *options.residual, {}) : y;
}

}  // namespace quire::models
