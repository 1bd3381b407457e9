// Families make of configs that leave keys out what transformers' config classes make of them:
// tests/parity/config_defaults.json, written by tools/parity/config_defaults.py.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/source_dir.h"
#include "models/registry.h"

namespace quire::models {
namespace {

json::value read_cases() {
  const std::string file = source_dir() + "/tests/parity/config_defaults.json";
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  auto parsed = parse_json(text.str());
  EXPECT_TRUE(parsed) << file;
  return parsed ? *parsed : json::array();
}

// What transformers says of layer `i`.
template <class T>
T of_layer(const json::object& expected, const char* key, size_t i) {
  return expected.at("layers").at(key).at(i).to_number<T>();
}

void expect_attention(const json::object& expected, size_t i, const AttentionSpec& attention) {
  EXPECT_EQ(attention.kv_heads, expected.at("num_key_value_heads").as_int64());
  EXPECT_EQ(attention.head_dim, expected.at("head_dim").as_int64());
  EXPECT_EQ(attention.window_left + 1, of_layer<int64_t>(expected, "window", i));
  EXPECT_EQ(attention.rope ? attention.rope->theta : 0, of_layer<double>(expected, "theta", i));
  EXPECT_EQ(attention.rope ? attention.rope->rotary_dim : 0,
            of_layer<int64_t>(expected, "rotary_dim", i));
  const bool is_yarn = attention.rope && attention.rope->scaling == ops::RopeParams::Scaling::kYarn;
  EXPECT_EQ(is_yarn, expected.at("layers").at("scaling").at(i) == "yarn");
}

void expect_latent_attention(const json::object& expected, size_t i, const MlaSpec& mla) {
  EXPECT_EQ(mla.heads, expected.at("num_key_value_heads").as_int64());
  EXPECT_EQ(mla.rope.theta, of_layer<double>(expected, "theta", i));
  EXPECT_EQ(mla.rope.rotary_dim, of_layer<int64_t>(expected, "rotary_dim", i));
}

void expect_experts(const json::object& expected, size_t i, const LayerSpec& layer) {
  const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
  const json::value& first = expected.at("first_dense");
  const json::value& normalise = expected.at("normalise");
  EXPECT_TRUE(!first.is_int64() ||
              (moe != nullptr) == (static_cast<int64_t>(i) >= first.as_int64()));
  if (!moe) return;
  EXPECT_TRUE(!normalise.is_bool() || moe->route.normalise == normalise.as_bool());
  const auto expect_number = [&](const char* key, double actual) {
    const json::value& value = expected.at(key);
    EXPECT_TRUE(!value.is_number() || actual == value.to_number<float>()) << key << " " << actual;
  };
  expect_number("groups", static_cast<double>(moe->route.groups));
  expect_number("chosen_groups", static_cast<double>(moe->route.chosen_groups));
  expect_number("route_scale", moe->route.scale);
}

TEST(ConfigDefaults, AreThoseOfTransformers) {
  const json::value cases = read_cases();
  EXPECT_GT(cases.as_array().size(), 30u);
  for (const json::value& one : cases.as_array()) {
    const json::object& expected = one.as_object();
    const json::object& keys = expected.at("config").as_object();
    SCOPED_TRACE(keys.at("model_type").as_string());
    const formats::HfConfig config = formats::parse_hf_config(keys, "config.json");
    const ModelSpec spec = make_model_spec(config, config.max_position_embeddings);
    EXPECT_EQ(spec.norm_eps, static_cast<float>(expected.at("rms_norm_eps").to_number<double>()));
    EXPECT_EQ(spec.head_weight.empty(), expected.at("tie_word_embeddings").as_bool());
    for (size_t i = 0; i < spec.layers.size(); ++i) {
      SCOPED_TRACE("layer " + std::to_string(i));
      if (const auto* attention = std::get_if<AttentionSpec>(&spec.layers[i].mixer))
        expect_attention(expected, i, *attention);
      if (const auto* mla = std::get_if<MlaSpec>(&spec.layers[i].mixer))
        expect_latent_attention(expected, i, *mla);
      expect_experts(expected, i, spec.layers[i]);
    }
  }
}

}  // namespace
}  // namespace quire::models
