// Which kernels linear() and attention choose, by what they call themselves, and by what.
#include <string_view>

#include "attention_step.h"
#include "harness.h"
#include "ops/cuda/cuda_traits.h"
#include "ops/linear/linear_cuda.h"

namespace quire::ops::cuda_test {
namespace {

void expect(const std::string& what, const char* got, std::string_view want) {
  const bool is_same = want == (got ? got : "none");
  report(is_same, what + ": " + (got ? got : "none") + ", for " + std::string(want), !is_same, 0);
}

void check_traits() {
  const auto check = [](const char* what, const CudaTraits& traits, bool is_hopper, size_t kib) {
    report(traits.is_hopper == is_hopper, std::string(what) + ": Hopper's kernels",
           traits.is_hopper, is_hopper);
    report(traits.block_memory == kib << 10, std::string(what) + ": KiB of a block",
           static_cast<double>(traits.block_memory >> 10), static_cast<double>(kib));
  };
  check("H200", make_cuda_traits(9, 227 << 10, nullptr), true, 226);
  check("H200, unset", make_cuda_traits(9, 227 << 10, ""), true, 226);
  check("H200 as others", make_cuda_traits(9, 227 << 10, "plain"), false, 98);
  check("A100", make_cuda_traits(8, 163 << 10, nullptr), false, 162);
  check("RTX", make_cuda_traits(8, 99 << 10, nullptr), false, 98);
  check("Blackwell", make_cuda_traits(10, 227 << 10, nullptr), false, 226);
  report(knows_cuda_kernels(nullptr) && knows_cuda_kernels("") && knows_cuda_kernels("plain"),
         "names of QUIRE_CUDA_KERNELS", 0, 0);
  report(!knows_cuda_kernels("plane"), "no name of QUIRE_CUDA_KERNELS", 0, 0);
}

// The weights' bits do not matter.
const char* linear_kernel(CudaStream stream, FloatType type, int64_t n, int64_t k, int64_t rows) {
  const CudaWeightLayout layout = {.n = n, .k = k, .type = type};
  const DeviceBytes weight(static_cast<size_t>(layout.bytes()));
  const auto size = static_cast<size_t>(float_type_bytes(type));
  const DeviceBytes x(static_cast<size_t>(rows * k) * size),
      y(static_cast<size_t>(rows * n) * size);
  const char* kernel = linear_cuda(stream, {.layout = layout,
                                            .out_type = type,
                                            .rows = rows,
                                            .x = x.get(),
                                            .w = weight.get(),
                                            .y = y.get()});
  check_cuda(cudaDeviceSynchronize(), "linear");
  return kernel;
}

// Rows of one sequence behind a context.
const char* attention_kernel(CudaStream stream, FloatType type, KvType kv_type, int64_t dim,
                             int64_t rows) {
  constexpr int64_t kBlock = 16, kContext = 512;
  BatchLayout layout;
  layout.num_tokens = rows;
  layout.num_sequences = 1;
  layout.block_size = kBlock;
  for (int64_t i = 0; i < rows; ++i)
    layout.positions.push_back(static_cast<int32_t>(kContext - rows + i));
  layout.cu_seqlens = {0, static_cast<int32_t>(rows)};
  layout.seq_lens = {kContext};
  layout.block_offsets = {0, kContext / kBlock};
  for (int b = 0; b < kContext / kBlock; ++b) layout.blocks.push_back(b);
  AttentionKernelParams p = {.q_type = type,
                             .kv_type = kv_type,
                             .heads = 8,
                             .kv_heads = 2,
                             .key_dim = dim,
                             .value_dim = dim,
                             .block_size = kBlock};
  const auto pool = static_cast<size_t>(kContext * 2 * dim);
  const std::vector<uint32_t> zeros(pool), few_zeros(static_cast<size_t>(rows * 8 * dim));
  const DeviceBytes q(few_zeros), k(zeros), v(zeros), scales(zeros), out(few_zeros);
  p.q = q.get();
  p.k = k.get();
  p.v = v.get();
  p.k_scale = p.v_scale = scales.as<float>();
  p.out = out.get();
  const UploadedStep step(layout, p, plan_for_device(p, layout));
  const char* kernel = paged_attention_cuda(stream, p, step.batch);
  check_cuda(cudaDeviceSynchronize(), "attention");
  return kernel;
}

}  // namespace

void check_kernel_choice(CudaStream stream) {
  check_traits();
  const bool hopper = cuda_traits().is_hopper;
  const char* fastest = hopper ? "cuda_sm90" : "cuda_mma";
  for (const int64_t rows : {1, 70})
    expect("linear f32", linear_kernel(stream, FloatType::kF32, 128, 256, rows), "cuda_plain");
  for (const FloatType type : {FloatType::kBf16, FloatType::kF16}) {
    expect("linear, a row", linear_kernel(stream, type, 128, 256, 1), "cuda_mma");
    expect("linear, few rows", linear_kernel(stream, type, 128, 256, 8), "cuda_mma");
    expect("linear, few rows of many columns", linear_kernel(stream, type, 8192, 256, 8), fastest);
    expect("linear, rows", linear_kernel(stream, type, 128, 256, 70), fastest);
    expect("linear, rows of an odd length", linear_kernel(stream, type, 128, 252, 70), "cuda_mma");
  }
  expect("linear, no rows", linear_kernel(stream, FloatType::kBf16, 128, 256, 0), "none");
  const FloatType bf16 = FloatType::kBf16;
  const auto attention = [&](KvType kv_type, int64_t dim, int64_t rows) {
    return attention_kernel(stream, bf16, kv_type, dim, rows);
  };
  expect("attention f32", attention_kernel(stream, FloatType::kF32, KvType::kF32, 128, 1),
         "cuda_plain");
  expect("attention, a prompt", attention(KvType::kBf16, 128, 300), fastest);
  expect("attention, codes, a row", attention(KvType::kInt8, 128, 1), "cuda_mma");
  expect("attention, codes, a prompt", attention(KvType::kInt8, 128, 300), "cuda_mma");
  expect("attention, wide heads", attention(KvType::kBf16, 256, 1), "cuda_mma");
  expect("attention, wider heads", attention(KvType::kBf16, 512, 300),
         cuda_traits().block_memory > (200 << 10) ? "cuda_mma" : "cuda_plain");
}

}  // namespace quire::ops::cuda_test
