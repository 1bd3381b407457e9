#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/config_reader.h"

namespace quire::formats {

// Rotary position embedding, from either spelling in config.json: transformers 4 (rope_theta and
// rope_scaling {type or rope_type, ...}) and transformers 5 (rope_parameters). Which value wins and
// the defaults follow transformers 5's modeling_rope_utils.py.
struct RopeConfig {
  std::string type = "default";  // default, linear, dynamic, llama3, yarn, longrope, proportional
  double theta = 10000.0;
  double factor = 1.0;  // yarn, longrope: if not given, max / original max position embeddings
  // rotary dims = int(head_dim * this); proportional: pairs that turn = int(head_dim * this / 2)
  double partial_rotary_factor = 1.0;
  // Length of pretraining; max_position_embeddings if not given.
  int64_t original_max_position_embeddings = 0;

  double low_freq_factor = 1.0;  // llama3, both always given
  double high_freq_factor = 4.0;

  double beta_fast = 32.0;  // yarn
  double beta_slow = 1.0;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  bool truncate = true;

  std::optional<double> attention_factor;  // yarn, longrope: replaces the formula of the paper

  std::vector<double> short_factor;  // longrope: rotary dims / 2 numbers each
  std::vector<double> long_factor;
};

// What the rope keys are read against.
struct RopeContext {
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
};

struct RopeConfigs {
  RopeConfig rope;  // of every layer, or of the full-attention layers if they differ
  std::map<std::string, RopeConfig> by_layer_type;  // empty if all layers share one
};

// The object whose keys of the rope count, for those that only a family knows: rope_scaling where a
// file has both, as one does that its user has extended; but layer types have their ropes in
// rope_parameters. An empty one if there is none.
ConfigReader rope_reader(const ConfigReader& config);

// Throws LoadError naming the file and the key.
RopeConfigs read_rope_configs(const ConfigReader& config, const RopeContext& context);

}  // namespace quire::formats
