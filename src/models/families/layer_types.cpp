#include "models/families/families.h"

namespace quire::models {
namespace {

std::string type_of(const formats::HfConfig& config, const LayerTypes& types, size_t layer) {
  if (config.layer_types.empty())
    return (static_cast<int64_t>(layer) + 1) % types.full_every == 0 ? kFullAttention
                                                                     : kSlidingAttention;
  const std::string& type = config.layer_types.at(layer);
  if (type != kSlidingAttention && type != kFullAttention)
    config.reader().fail("layer_types", "has the type \"" + type + "\"; supported are " +
                                            kSlidingAttention + " and " + kFullAttention);
  return type;
}

HeadShape changed_shape(const formats::ConfigReader& layer, const json::object& keys,
                        HeadShape shape) {
  for (const auto& entry : keys)
    if (entry.key() != "head_dim" && entry.key() != "num_key_value_heads")
      layer.fail(entry.key(),
                 "is not supported for a layer of its own; supported are head_dim and "
                 "num_key_value_heads");
  constexpr formats::IntRange kSize{.min = 1, .max = 1 << 16};
  shape.head_dim = layer.find_int("head_dim", kSize).value_or(shape.head_dim);
  shape.kv_heads = layer.find_int("num_key_value_heads", kSize).value_or(shape.kv_heads);
  return shape;
}

// Each key is the index of a layer.
void check_indices(const formats::HfConfig& config, const json::object& layers) {
  size_t known = 0;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    known += layers.contains(std::to_string(i));
  if (known < layers.size())
    config.reader().fail("per_layer_config", "has a key that is no layer's index");
}

}  // namespace

std::vector<HeadShape> head_shapes_of(const formats::HfConfig& config, const HeadShape& full) {
  const HeadShape usual = {.head_dim = config.head_dim, .kv_heads = config.num_key_value_heads};
  const formats::ConfigReader reader = config.reader();
  const json::object* layers = reader.find_object("per_layer_config");
  if (layers) check_indices(config, *layers);
  std::vector<HeadShape> shapes;
  for (size_t i = 0; i < static_cast<size_t>(config.num_hidden_layers); ++i) {
    const std::string index = std::to_string(i);
    const bool is_full = !layers && config.layer_types.at(i) == kFullAttention;
    shapes.push_back(is_full ? full : usual);
    const formats::ConfigReader all = layers ? reader.inside("per_layer_config", *layers) : reader;
    if (const json::object* keys = layers ? all.find_object(index) : nullptr)
      shapes.back() = changed_shape(all.inside(index, *keys), *keys, shapes.back());
    if (config.num_attention_heads % shapes.back().kv_heads != 0)
      reader.fail("num_attention_heads",
                  "is not a multiple of the " + std::to_string(shapes.back().kv_heads) +
                      " heads of keys and values that layer " + index + " has");
  }
  return shapes;
}

void use_layer_types(const formats::HfConfig& config, ModelSpec& spec, const LayerTypes& types,
                     int64_t max_positions) {
  const int64_t window = config.sliding_window.value_or(
      states_key(config, "sliding_window") ? 0 : types.window);  // null is none
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    const std::string type = type_of(config, types, i);
    attention.rope = rope_params(config, config.rope_for(type), max_positions, attention.head_dim);
    attention.window_left = type == kSlidingAttention && window > 0 ? window - 1 : -1;
  }
}

}  // namespace quire::models
