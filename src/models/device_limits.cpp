#include "models/device_limits.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/sample/sample_cuda.h"

namespace quire::models {
namespace {

void check(int64_t count, int64_t most, const char* what) {
  if (count <= most) return;
  throw LoadError("the model has " + std::to_string(count) + " " + what +
                  ", but the kernels for NVIDIA GPUs take " + std::to_string(most) +
                  "; --device cpu runs it");
}

}  // namespace

void check_device_limits(const ModelSpec& spec, const ops::Device& device) {
  if (std::string_view(device.name()) != "cuda") return;
  check(spec.vocab, ops::kMaxSampleCudaVocab, "tokens in its vocabulary");
  for (const LayerSpec& layer : spec.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (!moe) continue;
    check(moe->num_experts, ops::kMaxMoeCudaExperts, "experts in a layer");
    check(moe->top_k, ops::kMaxMoeCudaChoices, "experts for a token");
  }
}

}  // namespace quire::models
