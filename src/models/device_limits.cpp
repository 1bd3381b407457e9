#include "models/device_limits.h"

#include "base/error.h"
#include "formats/folder_quantization.h"
#include "models/model_size.h"

namespace quire::models {
namespace {

// What there is more of than the kernels take.
struct Excess {
  std::string what;  // "5000 experts in a layer"
  int64_t most;
};

class Excesses {
 public:
  void consider(int64_t count, int64_t most, const std::string& before, const std::string& behind) {
    if (count > most) found.push_back({before + std::to_string(count) + behind, most});
  }
  void consider(const LayerSpec& layer, const ops::DeviceLimits& limits) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
      consider(attention->head_dim, limits.head_dim, "heads of ", " elements");
    const MoeSpec* moe = experts_of(layer);
    if (!moe) return;
    consider(moe->num_experts, limits.experts, "", " experts in a layer");
    consider(moe->route.top_k, limits.chosen_experts, "", " experts for a token");
  }

  std::vector<Excess> found;
};

// Of the first layer that has any.
std::vector<Excess> excesses(const ModelSpec& spec, const ops::DeviceLimits& limits) {
  Excesses all;
  all.consider(spec.vocab, limits.vocab, "", " tokens in its vocabulary");
  for (const LayerSpec& layer : spec.layers)
    if (all.found.empty()) all.consider(layer, limits);
  return all.found;
}

}  // namespace

void check_device_limits(const ModelSpec& spec, const ops::DeviceLimits& limits) {
  for (const auto& [what, most] : excesses(spec, limits))
    throw LoadError("the model has " + what + ", but the " + limits.kernels + " take " +
                    std::to_string(most) + "; --device cpu runs it");
}

std::vector<std::string> beyond_limits(const formats::Checkpoint& checkpoint,
                                       const LoadOptions& options,
                                       const ops::DeviceLimits& limits) {
  std::vector<std::string> names;
  for (const auto& [what, most] : excesses(model_spec_of(checkpoint, options), limits))
    names.push_back("kernels for " + what);
  const auto folder = formats::read_folder_quantization(checkpoint.config());
  if (folder && folder->rounds_per_token() && options.int8_activations.value_or(true))
    names.emplace_back("activations of 8 bits, as the model's config asks");
  return names;
}

}  // namespace quire::models
