#include "ops/linear/linear_cuda.h"

#include "ops/linear/linear_few_rows_plan.cuh"
#include "ops/linear/linear_kernels.cuh"
#include "ops/rms_norm/rms_norm_cuda.h"

namespace quire::ops {
namespace {

// float32, and whatever has no tensor-core kernel: a thread for each output of 16 rows x 16
// tokens, the same cuts of K.
constexpr int64_t kPlainTokens = 16;

__device__ inline float plain_sum(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                                  int64_t panel) {
  const float* x = static_cast<const float*>(p.x) + row_of_x(p, row) * p.layout.k;
  const int64_t packed_row = panel * 16 + threadIdx.x % 16;
  float total = 0;
  for (int64_t begin = 0; begin < p.layout.k; begin += kLinearCudaChunk) {
    const int64_t end = min(p.layout.k, begin + kLinearCudaChunk);
    float sum = 0;
    for (int64_t k = begin; k < end; ++k)
      sum = fmaf(weight_value<float>(p.layout, task.w, packed_row, k), x[k], sum);
    total += sum;
  }
  return total;
}

__global__ void __launch_bounds__(256) plain_linear(const __grid_constant__ LinearCudaParams p) {
  begin_dependent();
  const LinearTask task = find_task(p, kPlainTokens);
  const int64_t t = threadIdx.x / 16;
  if (t >= task.count) return;
  const int64_t row = task.first + t, i = threadIdx.x % 16;
  if (!p.layout.interleaved)
    return finish(p, task, row, blockIdx.y * 16 + i, plain_sum(p, task, row, blockIdx.y));
  const float gate = plain_sum(p, task, row, 2 * blockIdx.y);
  finish_gated(p, task, row, blockIdx.y * 16 + i, gate,
               plain_sum(p, task, row, 2 * blockIdx.y + 1));
}

void run_plain(CudaStream stream, const LinearCudaParams& p) {
  const int64_t panels = p.layout.panels() / (p.layout.interleaved ? 2 : 1);
  const auto tiles =
      p.tiles != nullptr ? static_cast<unsigned>(p.max_tiles) : blocks_for(p.rows, kPlainTokens);
  launch("linear", stream, plain_linear, dim3(tiles, static_cast<unsigned>(panels)), 256, 0, p);
}

}  // namespace

namespace {

// Which kernels take the weight; the bits are the same.
struct LinearRoute {
  bool wgmma = false;
  bool norms_in_blocks = false;  // by the blocks that need the rows, else by a kernel before
};

LinearRoute linear_route(const LinearCudaParams& p) {
  constexpr int64_t kMostBlocks = 132 * 4;  // that repeat a norm and run at once
  if (p.layout.type == FloatType::kF32) return {};
  const bool wgmma = has_wgmma(p);
  if (p.rows > 8) return {.wgmma = wgmma};
  const bool can_norm = p.norm_weight != nullptr && p.tiles == nullptr &&
                        p.layout.panels() / few_rows_plan(p, 1).panels() <= kMostBlocks;
  // A kernel less is worth more than a faster one where rows are short. Few rows of narrow matrices
  // have too few blocks for the fast one.
  const bool is_short = can_norm && p.rows <= 2 && p.layout.k <= 2048;
  // So few rows of a dense weight: it arrives faster where a block's warps share a panel than where
  // each walks all of one.
  const bool is_bound_by_weight =
      p.layout.source() == CudaSource::kDense && p.rows <= (p.layout.k >= 8192 ? 4 : 2);
  if (!wgmma || p.layout.panels() < 4 * 64) return {.norms_in_blocks = can_norm};
  if (!is_short && !is_bound_by_weight) return {.wgmma = true};
  return {.norms_in_blocks = can_norm && (is_short || p.rows == 1)};
}

void run_mma(CudaStream stream, const LinearCudaParams& p) {
  const bool is_bf16 = p.layout.type == FloatType::kBf16;
  if (is_in_blocks(p.layout.block_source))
    is_bf16 ? run_block_rows<DeviceBf16>(stream, p) : run_block_rows<DeviceF16>(stream, p);
  else if (p.tiles == nullptr && has_many_rows(p))
    run_many_rows(stream, p);
  else
    is_bf16 ? run_few_rows<DeviceBf16>(stream, p) : run_few_rows<DeviceF16>(stream, p);
}

}  // namespace

size_t linear_cuda_scratch_bytes(const LinearCudaParams& p) {
  return p.norm_weight != nullptr && !linear_route(p).norms_in_blocks
             ? static_cast<size_t>(p.rows * p.layout.k * float_type_bytes(p.layout.type))
             : 0;
}

const char* linear_cuda(CudaStream stream, const LinearCudaParams& params) {
  LinearCudaParams p = params;
  if (p.rows == 0 || p.layout.n == 0) return nullptr;
  if (p.y_pitch == 0) p.y_pitch = p.layout.interleaved ? p.layout.n / 2 : p.layout.n;
  const LinearRoute route = linear_route(p);
  if (p.norm_weight != nullptr && !route.norms_in_blocks) {
    rms_norm_cuda(stream,
                  {.type = p.layout.type,
                   .width = p.layout.k,
                   .eps = p.norm_eps,
                   .x = p.x,
                   .weight = p.norm_weight,
                   .y = p.scratch},
                  p.rows);
    p.x = p.scratch;
    p.norm_weight = nullptr;
  }
  if (p.layout.type == FloatType::kF32) {
    run_plain(stream, p);
    return "cuda_plain";
  }
  if (route.wgmma) {
    run_wgmma(stream, p);
    return "cuda_sm90";
  }
  run_mma(stream, p);
  return "cuda_mma";
}

}  // namespace quire::ops
