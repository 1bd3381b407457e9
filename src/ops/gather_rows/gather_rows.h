#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// Whether layout.rows are all of the T rows, in their order: a step of decode rows.
bool takes_all_rows(const BatchLayout& layout);

// Rows layout->rows of x [T, H], in order: [R, H]. Only these are projected to the vocabulary. x
// itself, and no kernel, if these are all of its rows.
mx::array gather_rows(const Context& context, const mx::array& x, const BatchLayoutPtr& layout);

// The same of given rows, which may repeat. Always a kernel.
using RowList = std::shared_ptr<const std::vector<int32_t>>;
mx::array take_rows(const Context& context, const mx::array& x, const RowList& rows);

// Row rows[i] of x [T, H] into row places[i] of `to` [N, H], in place: the returned handle aliases
// `to`, and later readers must take it. No place may be there twice.
mx::array put_rows(const Context& context, const mx::array& x, const RowList& rows,
                   const mx::array& to, const RowList& places);

// Columns [begin, begin + width) of x [T, N] as [T, width]: takes q, k and v apart after a fused
// projection.
mx::array slice_columns(const Context& context, const mx::array& x, int64_t begin, int64_t width);

// Fills in token ids that are still on the device: out[t] = from[t] >= 0 ? previous[from[t]] :
// ids[t].
//   ids, from  host vectors of length T;  previous  [R'] int32, tokens sampled by the step before
// A row of `previous` may hold -1 (the sampler found no token): its successor is computed from
// token 0 and dropped, because the request ends when the -1 is read.
mx::array resolve_tokens(const Context& context, std::shared_ptr<const std::vector<int32_t>> ids,
                         std::shared_ptr<const std::vector<int32_t>> from,
                         const mx::array& previous);

}  // namespace quire::ops
