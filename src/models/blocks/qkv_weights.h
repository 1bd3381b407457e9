#pragma once
#include "models/layer_spec.h"
#include "models/weights.h"

namespace quire::models {

// The fused projection of a layer: rows of all queries, keys, values, then all output gates;
// queries alone of a layer that reads the keys and values of another. Where neighbours rotate, the
// rows of a head of q or k are sorted so that the pairs (2i, 2i + 1) become (i, i + rotary_dim /
// 2), which is what ops::rope turns: scores are sums over all of them.
Projection load_qkv(const AttentionSpec& spec, int64_t hidden, WeightLoader& weights);

// Adds the rows of the rotated part of a head, `head`, in the order that ops::rope turns: sorted as
// above if neighbours rotate.
void add_rotated_rows(const WeightRows& head, bool neighbours, std::vector<WeightRows>& rows);

}  // namespace quire::models
