#include "ops/linear/cuda/linear_cuda.h"

#include "ops/linear/cuda/linear_cuda_choice.h"
#include "ops/linear/cuda/linear_kernels.cuh"
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

LinearCudaChoice choose(const LinearCudaParams& p) {
  return choose_linear_cuda(p, is_wide(p.x, p.layout.k), cuda_traits());
}

template <class T>
void run_mma(CudaStream stream, const LinearCudaParams& p, LinearCudaKernel kernel) {
  if (is_in_blocks(p.layout.block_source)) return run_block_rows<T>(stream, p, kernel);
  kernel == LinearCudaKernel::kManyRows ? run_many_rows(stream, p) : run_few_rows<T>(stream, p);
}

void run(CudaStream stream, const LinearCudaParams& p, LinearCudaKernel kernel) {
  if (kernel == LinearCudaKernel::kPlain) return run_plain(stream, p);
  if (kernel == LinearCudaKernel::kWgmma) return run_wgmma(stream, p);
  p.layout.type == FloatType::kBf16 ? run_mma<DeviceBf16>(stream, p, kernel)
                                    : run_mma<DeviceF16>(stream, p, kernel);
}

}  // namespace

size_t linear_cuda_scratch_bytes(const LinearCudaParams& p) {
  return p.norm_weight != nullptr && !choose(p).norms_in_blocks
             ? static_cast<size_t>(p.rows * p.layout.k * float_type_bytes(p.layout.type))
             : 0;
}

const char* linear_cuda(CudaStream stream, const LinearCudaParams& params) {
  const LinearCudaChoice choice = choose(params);
  if (choice.kernel == LinearCudaKernel::kNone) return nullptr;
  LinearCudaParams p = params;
  if (p.y_pitch == 0) p.y_pitch = p.layout.interleaved ? p.layout.n / 2 : p.layout.n;
  if (p.norm_weight != nullptr && !choice.norms_in_blocks) {
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
  run(stream, p, choice.kernel);
  return kernel_log_name(choice.kernel);
}

}  // namespace quire::ops
