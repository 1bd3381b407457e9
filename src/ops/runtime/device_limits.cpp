#include "ops/runtime/device_limits.h"

#include <string_view>

#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/sample/sample_cuda.h"
#include "ops/sample/sample_metal.h"

namespace quire::ops {

DeviceLimits cuda_limits() {
  return {.kernels = "kernels for NVIDIA GPUs",
          .vocab = kMaxSampleCudaVocab,
          .experts = kMaxMoeCudaExperts,
          .chosen_experts = kMaxMoeCudaChoices};
}

DeviceLimits limits_of(const Device& device) {
  constexpr int64_t kWidestMetalHead = 576;
  if (std::string_view(device.name()) == "cuda") return cuda_limits();
  if (std::string_view(device.name()) != "metal") return {};
  return {.kernels = "kernels for Apple GPUs",
          .vocab = kMaxSampleMetalVocab,
          .head_dim = kWidestMetalHead};
}

}  // namespace quire::ops
