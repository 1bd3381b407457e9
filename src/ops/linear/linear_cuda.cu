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

__global__ void __launch_bounds__(256) plain_linear(const LinearCudaParams p) {
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

// Hopper's kernel is the faster one but for few rows of narrow matrices, for which it has too few
// blocks. The bits are the same.
bool uses_wgmma(const LinearCudaParams& p) {
  return has_wgmma(p) && (p.rows > 8 || p.layout.panels() >= 4 * 64);
}

// Whether the blocks norm their rows themselves: a kernel less, but each repeats it, which pays
// while all run at once, two on a multiprocessor. Hopper's kernel reads weights while another one
// norms. The bits are the same.
bool norms_in_blocks(const LinearCudaParams& p) {
  constexpr int64_t kMostBlocks = 132 * 4;
  if (p.layout.type == FloatType::kF32 || p.tiles != nullptr || p.rows > 8 || uses_wgmma(p))
    return false;
  return p.layout.panels() / few_rows_plan(p, 1).panels() <= kMostBlocks;
}

}  // namespace

size_t linear_cuda_scratch_bytes(const LinearCudaParams& p) {
  return p.norm_weight != nullptr && !norms_in_blocks(p)
             ? static_cast<size_t>(p.rows * p.layout.k * float_type_bytes(p.layout.type))
             : 0;
}

void linear_cuda(CudaStream stream, const LinearCudaParams& params) {
  LinearCudaParams p = params;
  if (p.rows == 0 || p.layout.n == 0) return;
  if (p.norm_weight != nullptr && !norms_in_blocks(p)) {
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
  if (p.layout.type == FloatType::kF32) return run_plain(stream, p);
  if (uses_wgmma(p)) return run_wgmma(stream, p);
  if (p.tiles == nullptr && has_many_rows(p)) return run_many_rows(stream, p);
  p.layout.type == FloatType::kBf16 ? run_few_rows<DeviceBf16>(stream, p)
                                    : run_few_rows<DeviceF16>(stream, p);
}

}  // namespace quire::ops
