#include "formats/rope_config.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace quire::formats {
namespace {

constexpr RealRange kFactorOrNone{.min = 0.0, .max = kFactors.max};

// "su" is what the first Phi-3 files call longrope. "mrope" (Qwen-VL) rotates text like "default":
// its sections differ only for images.
std::string canonical_type(std::string type) {
  if (type == "su") return "longrope";
  if (type == "mrope") return "default";
  return type;
}

std::string read_type(const ConfigReader& rope) {
  auto type = rope.find_string("rope_type");
  if (!type) type = rope.find_string("type");
  std::string name = canonical_type(type.value_or("default"));
  constexpr std::array<std::string_view, 7> kKnown = {
      "default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"};
  if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
    rope.fail("rope_type", "is \"" + name +
                               "\"; supported are default, linear, dynamic, llama3, yarn, "
                               "longrope and proportional");
  }
  return name;
}

// The factor may be left out where transformers derives it from the two lengths.
double read_factor(const ConfigReader& rope, const RopeConfig& out, const RopeContext& context) {
  if (out.type == "default") return 1.0;
  if (out.type == "proportional") return rope.find_double("factor", kFactors).value_or(1.0);
  if (out.type != "yarn" && out.type != "longrope") return rope.require_double("factor", kFactors);
  const double derived = static_cast<double>(context.max_position_embeddings) /
                         static_cast<double>(out.original_max_position_embeddings);
  return rope.find_double("factor", kFactors).value_or(derived);
}

void read_llama3(const ConfigReader& rope, RopeConfig& out) {
  out.low_freq_factor = rope.require_double("low_freq_factor", kFactors);
  out.high_freq_factor = rope.require_double("high_freq_factor", kFactors);
  // Equal in Llama 4 Scout: nothing is blended.
  if (out.high_freq_factor < out.low_freq_factor)
    rope.fail("high_freq_factor", "must not be less than low_freq_factor");
}

void read_yarn(const ConfigReader& rope, RopeConfig& out) {
  out.beta_fast = rope.find_double("beta_fast", kFactors).value_or(out.beta_fast);
  out.beta_slow = rope.find_double("beta_slow", kFactors).value_or(out.beta_slow);
  if (out.beta_fast < out.beta_slow) rope.fail("beta_fast", "must not be less than beta_slow");
  if (out.theta == 1)
    rope.fail("rope_theta", "is 1: all dimensions turn alike, and yarn divides by its logarithm");
  out.mscale = rope.find_double("mscale", kFactorOrNone);
  out.mscale_all_dim = rope.find_double("mscale_all_dim", kFactorOrNone);
  out.truncate = rope.find_bool("truncate").value_or(out.truncate);
}

void read_longrope(const ConfigReader& rope, const RopeContext& context, RopeConfig& out) {
  const auto rotary =
      static_cast<int64_t>(static_cast<double>(context.head_dim) * out.partial_rotary_factor);
  const auto read = [&](std::string_view key) {
    std::vector<double> factors = rope.get_doubles(key, kFactors);
    if (factors.size() != static_cast<size_t>(rotary / 2)) {
      rope.fail(key, "must list " + std::to_string(rotary / 2) +
                         " numbers (half of the rotary dims), not " +
                         std::to_string(factors.size()));
    }
    return factors;
  };
  out.short_factor = read("short_factor");
  out.long_factor = read("long_factor");
}

// Logarithms of the length of pretraining are divided by.
void check_length(const ConfigReader& rope, const RopeConfig& out) {
  const bool counts = out.type == "llama3" || out.type == "yarn" || out.type == "longrope";
  if (counts && out.original_max_position_embeddings < 2)
    rope.fail("original_max_position_embeddings", "is 1; " + out.type + " needs 2 or more");
}

// One set of rope keys; `config` gives what stands outside of it. A top-level length of pretraining
// (Phi-3) wins over the one inside.
RopeConfig read_one(const ConfigReader& config, const ConfigReader& rope,
                    const RopeContext& context) {
  constexpr IntRange kLength{.min = 1, .max = INT32_MAX};
  constexpr RealRange kShare{.min = 0.0, .max = 1.0, .min_inclusive = false};
  RopeConfig out;
  out.type = read_type(rope);
  auto theta = rope.find_double("rope_theta", kFactors);
  if (!theta) theta = config.find_double("rope_theta", kFactors);
  out.theta = theta.value_or(out.theta);
  auto partial = rope.find_double("partial_rotary_factor", kShare);
  if (!partial) partial = config.find_double("partial_rotary_factor", kShare);
  out.partial_rotary_factor = partial.value_or(out.partial_rotary_factor);
  auto original = config.find_int("original_max_position_embeddings", kLength);
  if (!original) original = rope.find_int("original_max_position_embeddings", kLength);
  out.original_max_position_embeddings = original.value_or(context.max_position_embeddings);
  check_length(rope, out);
  out.factor = read_factor(rope, out, context);
  out.attention_factor = rope.find_double("attention_factor", kFactors);
  if (out.type == "llama3") read_llama3(rope, out);
  if (out.type == "yarn") read_yarn(rope, out);
  if (out.type == "longrope") read_longrope(rope, context, out);
  return out;
}

// Nested per layer type: every value is an object, or null for layers without rope.
bool is_nested(const json::object& rope) {
  const auto is_object = [](const auto& entry) { return entry.value().is_object(); };
  const auto fits = [](const auto& e) { return e.value().is_object() || e.value().is_null(); };
  return std::any_of(rope.begin(), rope.end(), is_object) &&
         std::all_of(rope.begin(), rope.end(), fits);
}

RopeConfigs read_nested(const ConfigReader& config, const ConfigReader& rope,
                        const RopeContext& context) {
  RopeConfigs out;
  for (const auto& entry : rope.object()) {
    if (entry.value().is_null()) continue;
    const std::string layer_type(entry.key().data(), entry.key().size());
    out.by_layer_type[layer_type] =
        read_one(config, rope.inside(layer_type, entry.value().get_object()), context);
  }
  const auto full = out.by_layer_type.find("full_attention");
  out.rope = (full != out.by_layer_type.end() ? full : out.by_layer_type.begin())->second;
  return out;
}

// Gemma 3 as transformers 4 writes it: sliding layers rotate with a base of their own, unscaled.
RopeConfigs with_local_rope(const ConfigReader& config, RopeConfig rope) {
  RopeConfigs out{.rope = std::move(rope), .by_layer_type = {}};
  const auto local = config.find_double("rope_local_base_freq", kFactors);
  if (!local) return out;
  RopeConfig sliding;
  sliding.theta = *local;
  sliding.original_max_position_embeddings = out.rope.original_max_position_embeddings;
  out.by_layer_type = {{"full_attention", out.rope}, {"sliding_attention", sliding}};
  return out;
}

}  // namespace

ConfigReader rope_reader(const ConfigReader& config) {
  static const json::object none;
  const json::object* parameters = config.find_object("rope_parameters");
  std::array<const char*, 2> keys = {"rope_scaling", "rope_parameters"};
  if (parameters && is_nested(*parameters)) std::swap(keys[0], keys[1]);
  for (const char* key : keys) {
    const json::object* object = config.find_object(key);
    if (object && !object->empty()) return config.inside(key, *object);
  }
  return config.inside("rope_scaling", none);
}

RopeConfigs read_rope_configs(const ConfigReader& config, const RopeContext& context) {
  const ConfigReader rope = rope_reader(config);
  if (is_nested(rope.object())) return read_nested(config, rope, context);
  return with_local_rope(config, read_one(config, rope, context));
}

}  // namespace quire::formats
