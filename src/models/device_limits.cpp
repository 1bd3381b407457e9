#include "models/device_limits.h"

#include <string_view>

#include "base/error.h"
#include "models/model_size.h"
#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/sample/sample_cuda.h"
#include "ops/sample/sample_metal.h"

namespace quire::models {
namespace {

// What there is more of than the kernels take.
struct Excess {
  int64_t count, most;
  const char* what;
};

std::vector<Excess> excesses(const ModelSpec& spec) {
  std::vector<Excess> found;
  const auto consider = [&](int64_t count, int64_t most, const char* what) {
    if (count > most) found.push_back({count, most, what});
  };
  consider(spec.vocab, ops::kMaxSampleCudaVocab, "tokens in its vocabulary");
  for (const LayerSpec& layer : spec.layers) {
    const MoeSpec* moe = experts_of(layer);
    if (!moe || !found.empty()) continue;
    consider(moe->num_experts, ops::kMaxMoeCudaExperts, "experts in a layer");
    consider(moe->route.top_k, ops::kMaxMoeCudaChoices, "experts for a token");
  }
  return found;
}

// What a layer has that no Metal kernel does; empty: nothing.
std::string beyond_metal(const LayerSpec& layer) {
  constexpr int64_t kWidestHead = 576;
  const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  if (attention && attention->head_dim > kWidestHead)
    return "heads of " + std::to_string(attention->head_dim) + " elements";
  return {};
}

void check_metal_limits(const ModelSpec& spec) {
  std::string what;
  if (spec.vocab > ops::kMaxSampleMetalVocab)
    what = std::to_string(spec.vocab) + " tokens in its vocabulary";
  for (const LayerSpec& layer : spec.layers)
    if (what.empty()) what = beyond_metal(layer);
  if (!what.empty())
    throw LoadError("the model has " + what +
                    ", for which there are no kernels for Apple GPUs; --device cpu runs it");
}

}  // namespace

void check_device_limits(const ModelSpec& spec, const ops::Device& device) {
  if (std::string_view(device.name()) == "metal") return check_metal_limits(spec);
  if (std::string_view(device.name()) != "cuda") return;
  for (const auto& [count, most, what] : excesses(spec))
    throw LoadError("the model has " + std::to_string(count) + " " + what +
                    ", but the kernels for NVIDIA GPUs take " + std::to_string(most) +
                    "; --device cpu runs it");
}

std::vector<std::string> beyond_cuda(const formats::Checkpoint& checkpoint,
                                     const LoadOptions& options) {
  std::vector<std::string> names;
  const ModelSpec spec = model_spec_of(checkpoint, options);
  for (const auto& [count, most, what] : excesses(spec))
    names.push_back("kernels for " + std::to_string(count) + " " + what);
  return names;
}

}  // namespace quire::models
