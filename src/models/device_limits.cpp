#include "models/device_limits.h"

#include <set>
#include <string_view>

#include "base/error.h"
#include "models/model_size.h"
#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/sample/sample_cuda.h"

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
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (!moe || !found.empty()) continue;
    consider(moe->num_experts, ops::kMaxMoeCudaExperts, "experts in a layer");
    consider(moe->route.top_k, ops::kMaxMoeCudaChoices, "experts for a token");
  }
  return found;
}

// Switches of a layer's frame that the GPU has no kernels for.
void find_switches(const AttentionSpec& attention, std::set<std::string>& found) {
  if (attention.norms_span_heads && (attention.q_norm || attention.k_norm))
    found.insert("norms of all heads of q or k together");
  if (attention.v_norm) found.insert("norms of values");
  if (attention.window_step > 0) found.insert("chunked attention");
  if (attention.q_scale) found.insert("queries scaled by position");
}

// What of routers and experts the GPU has no kernels for.
void find_switches(const MoeSpec& moe, std::set<std::string>& found) {
  using ops::MoeScore;
  const ops::MoeRouteOptions& route = moe.route;
  if (route.score == MoeScore::kSigmoid) found.insert("sigmoid routers");
  if (route.score == MoeScore::kSparseMixer) found.insert("sparse-mixer routers");
  if (route.groups > 1) found.insert("groups of experts");
  if (route.softcap > 0) found.insert("capped router logits");
  if (!moe.correction.empty()) found.insert("a correction of the choice of experts");
  if (!moe.expert_scale.empty() || route.scale != 1) found.insert("scaled routing weights");
  if (route.sum_offset != 0 || route.least_sum != 0) found.insert("bounds of routing weights");
  if (moe.gate != ops::Gate{})
    found.insert(std::string(ops::gate_name(moe.gate.kind)) + " experts");
  if (moe.shared && moe.shared->gate != ops::Gate{})
    found.insert(std::string(ops::gate_name(moe.shared->gate.kind)) + " shared experts");
  if (moe.weigh_input) found.insert("weighed inputs of experts");
  if (moe.shared && moe.shared_gate.empty()) found.insert("shared experts without a gate");
}

void find_switches(const std::optional<NormSpec>& norm, std::set<std::string>& found) {
  if (norm && norm->kind == NormSpec::Kind::kLayer) found.insert("layer norms");
}

void find_switches(const LayerSpec& layer, std::set<std::string>& found) {
  find_switches(layer.mixer_input_norm, found);
  find_switches(layer.ffn_input_norm, found);
  if (layer.mixer_output_norm || layer.ffn_output_norm)
    found.insert("norms of what a part of a layer makes");
  if (layer.residual_multiplier != 1) found.insert("a residual multiplier");
  if (!layer.output_scale.empty()) found.insert("a scale of a layer's output");
  if (const auto* mlp = std::get_if<MlpSpec>(&layer.ffn)) {
    if (!mlp->has_gate)
      found.insert("MLPs without a gate");
    else if (mlp->gate != ops::Gate{})
      found.insert(std::string(ops::gate_name(mlp->gate.kind)) + " gates");
  }
  if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) find_switches(*moe, found);
  if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
    find_switches(*attention, found);
  if (std::holds_alternative<MlaSpec>(layer.mixer)) found.insert("latent attention");
}

std::set<std::string> switches(const ModelSpec& spec) {
  std::set<std::string> found;
  for (const LayerSpec& layer : spec.layers) find_switches(layer, found);
  find_switches(spec.final_norm, found);
  if (spec.embed_multiplier != 1) found.insert("an embedding multiplier");
  if (spec.logits_multiplier != 1) found.insert("a logits multiplier");
  if (spec.logits_softcap != 0) found.insert("capped logits");
  return found;
}

}  // namespace

void check_device_limits(const ModelSpec& spec, const ops::Device& device) {
  if (std::string_view(device.name()) != "cuda") return;
  for (const auto& [count, most, what] : excesses(spec))
    throw LoadError("the model has " + std::to_string(count) + " " + what +
                    ", but the kernels for NVIDIA GPUs take " + std::to_string(most) +
                    "; --device cpu runs it");
  for (const std::string& name : switches(spec))
    throw LoadError("the model has " + name +
                    ", which the kernels for NVIDIA GPUs do not know; --device cpu runs it");
}

std::vector<std::string> beyond_cuda(const formats::Checkpoint& checkpoint,
                                     const LoadOptions& options) {
  std::vector<std::string> names;
  const ModelSpec spec = model_spec_of(checkpoint, options);
  for (const auto& [count, most, what] : excesses(spec))
    names.push_back("kernels for " + std::to_string(count) + " " + what);
  for (const std::string& name : switches(spec)) names.push_back(name);
  return names;
}

}  // namespace quire::models
