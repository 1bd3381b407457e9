#pragma once
#include <optional>

#include "ops/linear/linear.h"
#include "ops/lora_add/lora_add.h"

namespace quire::models {

namespace mx = mlx::core;

// A linear layer of a model, and what adapters say about it.
struct Projection {
  ops::LinearWeight weight;
  ops::LoraWeightsPtr lora = nullptr;                       // null: no adapter changes it
  std::optional<ops::LinearWeight> ungated = std::nullopt;  // of an interleaved one with `lora`

  Projection() = default;
  // One that no adapter changes.
  Projection(ops::LinearWeight w) : weight(std::move(w)) {}

  // Whether an adapter of these rows changes it.
  bool is_adapted(const ops::AdapterRowsPtr& rows) const {
    return lora && rows && ops::lora_applies(*lora, *rows);
  }
};

// linear() with the projection's weight. Where is_adapted(rows), what the adapters add to the
// rounded product is added to it (ops::lora_add), and then comes what the options say of the
// result: a gate or a residual, with the bits of linear()'s own. No other dtype may be asked for.
mx::array project(const ops::Context& context, const mx::array& x, const Projection& projection,
                  const ops::LinearOptions& options, const ops::AdapterRowsPtr& rows);

}  // namespace quire::models
