#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {

// Phi-3's two sets of longrope factors: transformers picks one by the length of each forward, which
// would make a cached prefix depend on what follows it; like vLLM, one set is fixed at load time,
// by how far sequences may reach.
ops::RopeParams rope_params(const formats::HfConfig& config, const formats::RopeConfig& rope,
                            int64_t max_positions, int64_t head_dim) {
  using Scaling = ops::RopeParams::Scaling;
  if (head_dim == 0) head_dim = config.head_dim;
  ops::RopeParams p;
  p.rotary_dim = static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
  p.theta = rope.theta;
  p.factor = rope.factor;
  p.original_max_position_embeddings = static_cast<double>(rope.original_max_position_embeddings);
  p.low_freq_factor = rope.low_freq_factor;
  p.high_freq_factor = rope.high_freq_factor;
  p.beta_fast = rope.beta_fast;
  p.beta_slow = rope.beta_slow;
  p.mscale = rope.mscale.value_or(0.0);
  p.mscale_all_dim = rope.mscale_all_dim.value_or(0.0);
  p.truncate = rope.truncate;
  p.attention_factor = rope.attention_factor.value_or(0.0);
  if (rope.type == "default") {
    p.scaling = Scaling::kDefault;
  } else if (rope.type == "linear") {
    p.scaling = Scaling::kLinear;
  } else if (rope.type == "proportional") {  // frequencies are those of a whole head
    p.scaling = Scaling::kLinear;
    p.turning_pairs =
        static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor / 2);
    p.rotary_dim = head_dim;
  } else if (rope.type == "llama3") {
    p.scaling = Scaling::kLlama3;
  } else if (rope.type == "yarn") {
    p.scaling = Scaling::kYarn;
  } else if (rope.type == "longrope") {
    p.scaling = Scaling::kLongrope;
    const bool is_long = max_positions > rope.original_max_position_embeddings;
    p.extension_factors = is_long ? rope.long_factor : rope.short_factor;
    p.factor = static_cast<double>(config.max_position_embeddings) /
               static_cast<double>(rope.original_max_position_embeddings);
  } else {
    config.reader().fail("rope_type", "is \"" + rope.type +
                                          "\"; supported are default, linear, llama3, yarn, "
                                          "longrope and proportional");
  }
  return p;
}

}  // namespace quire::models
