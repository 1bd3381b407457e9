#include "ops/linear/cuda/linear_cuda_choice.h"

#include "ops/linear/cuda/linear_few_rows_plan.h"

namespace quire::ops {
namespace {

// Of the kernels that every GPU runs. Whether tiles of tokens and weights are the faster way:
// matrices in blocks have one shape of tiles for few rows and one for many.
LinearCudaKernel by_rows(const LinearCudaParams& p) {
  if (p.tiles != nullptr) return LinearCudaKernel::kFewRows;
  const bool many_blocks = p.layout.panels() >= 8 * 96;
  const int64_t most = is_in_blocks(p.layout.block_source) ? 8 : (many_blocks ? 16 : 64);
  return p.rows > most ? LinearCudaKernel::kManyRows : LinearCudaKernel::kFewRows;
}

}  // namespace

LinearCudaChoice choose_linear_cuda(const LinearCudaParams& p, bool wide_x,
                                    const CudaTraits& traits) {
  constexpr int64_t kMostBlocks = 132 * 4;  // that repeat a norm and run at once
  if (p.rows == 0 || p.layout.n == 0) return {};
  if (p.layout.type == FloatType::kF32) return {.kernel = LinearCudaKernel::kPlain};
  const bool has_wgmma = traits.is_hopper && p.tiles == nullptr && wide_x;
  if (p.rows > 8) return {.kernel = has_wgmma ? LinearCudaKernel::kWgmma : by_rows(p)};
  const FewRowsPlan plan = few_rows_plan(p.layout.k, p.layout.interleaved, /*tiles=*/1);
  const bool can_norm = p.norm_weight != nullptr && p.tiles == nullptr &&
                        p.layout.panels() / plan.panels() <= kMostBlocks;
  // A kernel less is worth more than a faster one where rows are short. Few rows of narrow matrices
  // have too few blocks for the fast one.
  const bool is_short = can_norm && p.rows <= 2 && p.layout.k <= 2048;
  // So few rows of a dense weight: it arrives faster where a block's warps share a panel than where
  // each walks all of one.
  const bool is_bound_by_weight =
      p.layout.source() == CudaSource::kDense && p.rows <= (p.layout.k >= 8192 ? 4 : 2);
  if (!has_wgmma || p.layout.panels() < 4 * 64)
    return {.kernel = by_rows(p), .norms_in_blocks = can_norm};
  if (!is_short && !is_bound_by_weight) return {.kernel = LinearCudaKernel::kWgmma};
  return {.kernel = by_rows(p), .norms_in_blocks = can_norm && (is_short || p.rows == 1)};
}

const char* kernel_log_name(LinearCudaKernel kernel) {
  switch (kernel) {
    case LinearCudaKernel::kNone:
      break;
    case LinearCudaKernel::kPlain:
      return "cuda_plain";
    case LinearCudaKernel::kFewRows:
    case LinearCudaKernel::kManyRows:
      return "cuda_mma";
    case LinearCudaKernel::kWgmma:
      return "cuda_sm90";
  }
  return nullptr;
}

}  // namespace quire::ops
