// Which kernels linear() and attention choose, by what they call themselves, and by what.
#include "attention_step.h"
#include "harness.h"
#include "ops/cuda/cuda_traits.h"
#include "ops/linear/cuda/linear_choice_cases.h"
#include "ops/paged_attention/attention_choice_cases.h"

namespace quire::ops::cuda_test {
namespace {

void expect(const std::string& what, const char* got, const char* want) {
  const std::string name = got ? got : "none", wanted = want ? want : "none";
  report(name == wanted, what + ": " + name + ", for " + wanted, name != wanted, 0);
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
const char* linear_kernel(CudaStream stream, const CudaWeightLayout& layout, int64_t rows) {
  const DeviceBytes weight(static_cast<size_t>(layout.bytes()));
  const auto size = static_cast<size_t>(float_type_bytes(layout.type));
  const DeviceBytes x(static_cast<size_t>(rows * layout.k) * size),
      y(static_cast<size_t>(rows * layout.n) * size);
  const char* kernel = linear_cuda(stream, {.layout = layout,
                                            .out_type = layout.type,
                                            .rows = rows,
                                            .x = x.get(),
                                            .w = weight.get(),
                                            .y = y.get()});
  check_cuda(cudaDeviceSynchronize(), "linear");
  return kernel;
}

const char* attention_kernel(CudaStream stream, const testing::AttentionChoiceCase& c) {
  const BatchLayout layout = testing::layout_of(c);
  AttentionKernelParams p = c.params;
  const auto slots = static_cast<int64_t>(layout.blocks.size()) * p.block_size * p.kv_heads;
  const auto zeros = [](int64_t floats) {
    return std::vector<uint32_t>(static_cast<size_t>(floats));
  };
  const DeviceBytes q(zeros(layout.num_tokens * p.heads * p.key_dim)), k(zeros(slots * p.key_dim)),
      v(zeros(slots * p.value_dim)), scales(zeros(slots)),
      out(zeros(layout.num_tokens * p.heads * p.value_dim));
  p.q = q.get();
  p.k = k.get();
  p.v = p.values_in_keys ? k.get() : v.get();
  p.k_scale = p.v_scale = scales.as<float>();
  p.out = out.get();
  const AttentionCudaPlan plan = has_tensor_core_attention(p, cuda_traits().block_memory)
                                     ? plan_for_device(p, layout)
                                     : AttentionCudaPlan();
  const UploadedStep step(layout, p, plan);
  const char* kernel = paged_attention_cuda(stream, p, step.batch);
  check_cuda(cudaDeviceSynchronize(), "attention");
  return kernel;
}

}  // namespace

// On a GPU that is neither Hopper nor takes as little memory as the smallest, the lists do not
// hold.
void check_kernel_choice(CudaStream stream) {
  check_traits();
  const CudaTraits& traits = cuda_traits();
  const bool is_plain = traits.block_memory == kLeastBlockMemory - kFixedBlockMemory;
  if (!traits.is_hopper && !is_plain) {
    std::printf("left out: which kernels run, on a GPU of neither list\n");
    return;
  }
  for (const testing::LinearChoiceCase& c : testing::linear_choices())
    expect("linear " + c.name, linear_kernel(stream, c.layout, c.rows),
           kernel_log_name(traits.is_hopper ? c.hopper : c.plain));
  for (const testing::AttentionChoiceCase& c : testing::attention_choices())
    expect("attention, " + c.name, attention_kernel(stream, c),
           kernel_log_name(traits.is_hopper ? c.hopper : c.plain));
}

}  // namespace quire::ops::cuda_test
