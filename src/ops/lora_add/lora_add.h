#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "ops/layout/adapter_rows.h"
#include "ops/linear/linear.h"

namespace quire::ops {

// What an adapter (LoRA, Hu et al. 2021, arXiv:2106.09685) adds to a linear layer [N, K]: b a x.
// Its factor alpha / r is part of b. Both are dense, in the model's dtype.
struct LoraPair {
  PackedMatrix a;  // [r, K]
  PackedMatrix b;  // [N, r]
};
// Of one layer, by adapter; absent where an adapter leaves it as it is.
using LoraWeights = std::vector<std::optional<LoraPair>>;
using LoraWeightsPtr = std::shared_ptr<const LoraWeights>;

// Whether any of these tokens has an adapter that changes the layer.
bool lora_applies(const LoraWeights& weights, const AdapterRows& rows);

// Adds what adapters say to rows of a product y = x W^T + bias, in place:
//   y = round(round(round(x a^T) b^T) + y)
// Each product has linear()'s order of sums and is rounded to the dtype, so that a row's bits
// depend on x, y and the adapter alone. Rows without an adapter are not touched.
//   x     [T, K] in the model's dtype; `norm`: x is ops::rms_norm(x) first
//   y     [T, N] in the same dtype: its memory is the result's, and nothing else may read it
//   rows  each in [0, T); adapters are indices into `weights`
// Returns [T, N]. Throws std::runtime_error on CUDA, where there is no kernel for it.
mx::array lora_add(const Context& context, const mx::array& x, const mx::array& y,
                   const LoraWeightsPtr& weights, const AdapterRowsPtr& rows,
                   const std::optional<LinearOptions::Norm>& norm = std::nullopt);

}  // namespace quire::ops
