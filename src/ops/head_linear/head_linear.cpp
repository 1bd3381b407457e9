#include "ops/head_linear/head_linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cuda/cuda_device.h"
#include "ops/head_linear/head_linear_cuda.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/linear_kernel.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "head_linear";
// Rows of a task: a head's matrix is used for all of them, and they stay in L2 with the result.
constexpr int64_t kTaskRows = 256;

void check(const mx::array& x, const std::vector<PackedMatrix>& weights, int64_t passed) {
  if (passed < 0) throw std::invalid_argument("head_linear: passed must not be negative");
  const PackedMatrix& first = weights.front();
  const int64_t heads = first.mlx ? first.mlx->w.shape(0) : static_cast<int64_t>(weights.size());
  check_shape(kOp, "x", x, {-1, heads, passed + first.k});
  check_dtype(kOp, "x", x, first.dtype);
}

mx::array head_linear_reference(const mx::array& x, const std::vector<PackedMatrix>& weights,
                                int64_t passed) {
  const int tokens = x.shape(0), width = x.shape(2), first = static_cast<int>(passed);
  std::vector<mx::array> heads;
  for (int h = 0; h < x.shape(1); ++h) {
    const mx::array row =
        mx::reshape(mx::slice(x, {0, h, 0}, {tokens, h + 1, width}), {tokens, -1});
    const mx::array product = linear_reference(
        mx::contiguous(mx::slice(row, {0, first}, {tokens, width})), {weights[h]}, x.dtype());
    heads.push_back(mx::concatenate({product, mx::slice(row, {0, 0}, {tokens, first})}, 1));
  }
  return mx::stack(heads, 1);
}

mx::array head_linear_mlx(const mx::array& x, const MlxMatrix& stack, int64_t passed) {
  const int tokens = x.shape(0), heads = x.shape(1), width = x.shape(2);
  const int first = static_cast<int>(passed);
  // The rows of a head are neighbours, [H, T, K].
  const mx::array in =
      mx::transpose(mx::slice(x, {0, 0, first}, {tokens, heads, width}), {1, 0, 2});
  const mx::array product =
      stack.scales
          ? mx::reshape(mlx_gather_product(mx::reshape(in, {heads * tokens, width - first}), stack,
                                           mx::repeat(mx::arange(heads), tokens), /*sorted=*/true),
                        {heads, tokens, -1})
          : mx::matmul(in, mx::swapaxes(stack.w, -1, -2));
  const mx::array y = mx::astype(mx::transpose(product, {1, 0, 2}), x.dtype());
  if (passed == 0) return mx::contiguous(y);
  return mx::concatenate({y, mx::slice(x, {0, 0, 0}, {tokens, heads, first})}, 2);
}

// Of the thread that calls, as linear()'s kernels want them: a pool of its own, and memory that
// grows to the largest task.
ThreadPool& own_pool() {
  thread_local ThreadPool pool(1);
  return pool;
}
std::byte* own_scratch(int64_t bytes) {
  thread_local ScratchMemory memory;
  return memory.reserve(bytes);
}

// The bytes of a call's rows. A head's part of a row of x is [passed, K], of y [N, passed].
struct Rows {
  int64_t heads, k, n, passed;  // k, n and passed in bytes
  const std::byte* x;
  std::byte* y;

  const std::byte* from(int64_t token, int64_t head) const {
    return x + (token * heads + head) * (passed + k);
  }
  std::byte* to(int64_t token, int64_t head) const {
    return y + (token * heads + head) * (n + passed);
  }
};

// Tokens [begin, end) of a head: gathered, multiplied and put in their places. One token's need
// neither.
void run_task(const Rows& rows, const LinearKernel& kernel, LinearParams p, int64_t head,
              int64_t begin, int64_t end) {
  const int64_t count = end - begin;
  p.rows = count;
  p.x = rows.from(begin, head) + rows.passed;
  p.y = rows.to(begin, head);
  std::byte *x = nullptr, *y = nullptr;
  if (count > 1) {
    const int64_t x_bytes = (count * rows.k + 63) / 64 * 64;
    x = own_scratch(x_bytes + count * rows.n);
    y = x + x_bytes;
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(x + i * rows.k, rows.from(begin + i, head) + rows.passed,
                  static_cast<size_t>(rows.k));
    p.x = x;
    p.y = y;
  }
  kernel.run(own_pool(), p);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* to = rows.to(begin + i, head);
    if (y) std::memcpy(to, y + i * rows.n, static_cast<size_t>(rows.n));
    std::memcpy(to + rows.n, rows.from(begin + i, head), static_cast<size_t>(rows.passed));
  }
}

void run_heads(ThreadPool& pool, const Rows& rows, const LinearKernel& kernel,
               const LinearParams& params, const std::vector<PackedMatrix>& weights,
               int64_t tokens) {
  const int64_t blocks = (tokens + kTaskRows - 1) / kTaskRows;
  pool.parallel_for(rows.heads * blocks, [&](int64_t i) {
    const int64_t head = i / blocks, begin = i % blocks * kTaskRows;
    LinearParams p = params;
    p.w = weights[static_cast<size_t>(head)].data.get();
    run_task(rows, kernel, p, head, begin, std::min(tokens, begin + kTaskRows));
  });
}

// Nobody calls it in a build without the GPU kernels.
[[maybe_unused]] void run_on_cuda(CudaDevice& cuda, const HeadWeights& weights,
                                  HeadLinearCudaParams p) {
  std::vector<const void*> addresses;
  const auto make = [&] {
    for (const PackedMatrix& w : *weights) addresses.push_back(w.data.get());
    return std::as_bytes(std::span(addresses));
  };
  p.layout = cuda_layout(weights->front());
  p.heads = static_cast<int64_t>(weights->size());
  p.weights = static_cast<const void* const*>(cuda.resident(weights, weights.get(), make));
  const CudaScratch scratch(cuda, head_linear_cuda_scratch_bytes(p));
  p.scratch = scratch.data();
  name_kernel(head_linear_cuda(cuda.stream(), p));
}

KernelCost cost_of(const mx::array& x, const std::vector<PackedMatrix>& weights, int64_t y_bytes) {
  const PackedMatrix& first = weights.front();
  return {.bytes = static_cast<double>(weights.size() * first.nbytes() + x.nbytes()) +
                   static_cast<double>(y_bytes),
          .width = first.n,
          .k = first.k};
}

void check_head_weights(const std::vector<PackedMatrix>& weights) {
  if (weights.empty()) throw std::invalid_argument("head_linear: there are no weights");
  const PackedMatrix& first = weights.front();
  for (const PackedMatrix& w : weights) {
    if (w.n != first.n || w.k != first.k || w.dtype != first.dtype || w.interleaved ||
        w.block_float != first.block_float || w.gguf != first.gguf || w.parts || w.columns ||
        w.affine != first.affine)
      throw std::invalid_argument("head_linear: the heads' weights differ in shape or format");
  }
}

}  // namespace

HeadWeights stack_heads(const Context& context, std::vector<PackedMatrix> weights) {
  check_head_weights(weights);
  if (context.device->metal()) {
    std::vector<std::shared_ptr<const MlxMatrix>> matrices;
    for (const PackedMatrix& weight : weights) matrices.push_back(weight.mlx);
    weights.resize(1);
    weights.front().mlx = mlx_stack(context, matrices);
  }
  return std::make_shared<const std::vector<PackedMatrix>>(std::move(weights));
}

mx::array head_linear(const Context& context, const mx::array& x, const HeadWeights& weights,
                      int64_t passed) {
  check(x, *weights, passed);
  if (context.use_reference) {
    note_reference(context, kOp);
    return head_linear_reference(x, *weights, passed);
  }
  if (context.device->metal()) {
    context.kernels->literal_counter(kOp, "mlx").fetch_add(1, std::memory_order_relaxed);
    return head_linear_mlx(x, *weights->front().mlx, passed);
  }
  const LinearParams params = linear_format(weights->front(), x.dtype());
  CudaDevice* const cuda = context.device->cuda();
  const LinearKernel* const kernel = cuda ? nullptr : &linear_kernel_for(params);
  const auto size = static_cast<int64_t>(mx::size_of(x.dtype()));
  const mx::Shape shape = {x.shape(0), x.shape(1), static_cast<int>(params.n + passed)};
  auto run = [=, pool = context.pool](const auto& in, auto& out) {
    if constexpr (kHasCuda)
      if (cuda)
        return run_on_cuda(*cuda, weights,
                           {.layout = {},
                            .tokens = in[0].shape(0),
                            .passed = passed,
                            .x = in[0].template data<void>(),
                            .y = out[0].template data<void>()});
    const Rows rows = {.heads = in[0].shape(1),
                       .k = params.k * size,
                       .n = params.n * size,
                       .passed = passed * size,
                       .x = in[0].template data<std::byte>(),
                       .y = out[0].template data<std::byte>()};
    run_heads(*pool, rows, *kernel, params, *weights, in[0].shape(0));
  };
  return launch_kernel(
      context,
      {.op = kOp,
       .kernel = cuda ? "cuda" : kernel->name(),
       .run = run,
       .cost = cost_of(x, *weights, int64_t{shape[0]} * shape[1] * shape[2] * size)},
      shape, x.dtype(), {x});
}

}  // namespace quire::ops
