#pragma once
#include "ops/lora_add/lora_add.h"

namespace quire::ops {

// lora_add in plain MLX ops: the oracle. Leaves y as it is.
mx::array lora_add_reference(const mx::array& x, const mx::array& y, const LoraWeights& weights,
                             const AdapterRows& rows,
                             const std::optional<LinearOptions::Norm>& norm);

}  // namespace quire::ops
