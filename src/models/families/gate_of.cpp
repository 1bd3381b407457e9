#include <utility>

#include "models/families/families.h"

namespace quire::models {
namespace {

using Kind = ops::Gate::Kind;

// transformers' names. Its "gelu_new" and "gelu_fast" are ways to write the tanh.
constexpr std::pair<const char*, Kind> kGates[] = {
    {"silu", Kind::kSilu},         {"swish", Kind::kSilu},
    {"gelu", Kind::kGelu},         {"gelu_pytorch_tanh", Kind::kGeluTanh},
    {"gelu_new", Kind::kGeluTanh}, {"gelu_fast", Kind::kGeluTanh},
    {"relu2", Kind::kRelu2},
};

}  // namespace

ops::Gate gate_of(const formats::HfConfig& config) {
  for (const auto& [name, kind] : kGates)
    if (config.hidden_act == name) return {.kind = kind};
  std::string names;
  for (const auto& [name, kind] : kGates) names += std::string(names.empty() ? "" : ", ") + name;
  const bool is_gemmas = config.get_string("hidden_activation", "-") == config.hidden_act;
  config.reader().fail(is_gemmas ? "hidden_activation" : "hidden_act",
                       "is \"" + config.hidden_act + "\"; supported are " + names);
}

}  // namespace quire::models
