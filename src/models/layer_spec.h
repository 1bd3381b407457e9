#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ops/gated_activation/gate.h"
#include "ops/layout/recurrent_state.h"
#include "ops/moe_route/moe_route_options.h"
#include "ops/rope/rope.h"

namespace quire::models {

// A model as data. A family (families/*.cpp) turns a Hugging Face config into a ModelSpec; the
// decoder runs any of them. Weight fields hold names in the checkpoint; an empty name or list means
// that the layer has no such weight.

// A norm of rows. Without a name its weights are ones.
struct NormSpec {
  enum class Kind : uint8_t { kRms, kLayer };  // ops::rms_norm, ops::layer_norm
  std::string weight = {};
  Kind kind = Kind::kRms;
  std::string bias = {};    // of kLayer, or none
  float multiplier = 1.0f;  // of the weights
};

// Queries are multiplied by 1 + beta * ln(1 + floor((position + offset) / length)): the attention
// of long contexts is sharper (Llama 4, Ministral 3).
struct PositionScaleSpec {
  double beta = 0;
  int64_t length = 1, offset = 0;

  bool operator==(const PositionScaleSpec&) const = default;
};

// Self-attention over the paged KV cache.
struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0.0f;        // on q.k
  int64_t window_left = -1;  // keys further back than this are not seen; -1: no limit
  // > 0: nor keys before the last multiple of so many positions (chunked attention).
  int64_t window_step = 0;
  float softcap = 0.0f;                                // of scores; 0: none
  std::optional<ops::RopeParams> rope = std::nullopt;  // none: nothing rotates
  bool rotates_neighbours = false;  // pairs (2i, 2i + 1) turn, not (i, i + rotary_dim / 2)
  std::optional<PositionScaleSpec> q_scale = std::nullopt;
  // One tensor each for q, k and v, or one that already holds all three stacked in this order. The
  // tensor of k again for v: keys before their norm and rotation are the values before theirs.
  std::vector<std::string> qkv_weights, qkv_biases;
  std::string o_weight, o_bias;
  // Keys and values are those that an earlier layer, of the same kv_heads, head_dim and window, has
  // written. This one has queries alone: one tensor of weights, and of norms q_norm at most.
  std::optional<int64_t> kv_of_layer = std::nullopt;
  // Of each head before the rotation, or behind it if norms_follow_rope; q and k of all heads as
  // one row if norms_span_heads.
  std::optional<NormSpec> q_norm = std::nullopt, k_norm = std::nullopt, v_norm = std::nullopt;
  bool norms_span_heads = false, norms_follow_rope = false;
  std::string sinks;  // [heads]: a logit beside a head's scores that no value goes with
  // The tensor of q has, for each head, the rows of its query and then of a gate: what the head
  // brings is multiplied by the gate's sigmoid. Then q, k and v are three tensors.
  bool has_output_gate = false;
};

// Multi-head latent attention (arXiv:2405.04434, section 2.1): keys and values of all heads are
// made of one latent vector a token, and only that and a rotated part that heads share is kept.
// W_UK and W_UV are absorbed, see MlaBlock.
struct MlaSpec {
  int64_t heads = 0;
  int64_t latent = 0;     // elements of the latent vector
  int64_t key_dim = 0;    // of a head's query and key beside the rotated part
  int64_t value_dim = 0;  // of a head's value
  int64_t q_rank = 0;     // of the queries' own latent vector; 0: queries are one projection
  float scale = 0.0f;     // on q.k
  ops::RopeParams rope = {};
  bool rotates_neighbours = false;  // as AttentionSpec has it
  float norm_eps = 0.0f;            // of the norms of latent vectors
  // q_a and its norm only if q_rank > 0. Rows of q_b for each head are its key_dim, then its
  // rotated part; of kv_a the latent, then the rotated part.
  std::string q_a_weight = {}, q_a_bias = {}, q_a_norm = {}, q_b_weight = {};
  std::string kv_a_weight = {}, kv_a_bias = {}, kv_a_norm = {};
  // For each head the key_dim rows of W_UK and the value_dim rows of W_UV; or, if the checkpoint
  // has them, the two apart: W_UK transposed [heads, latent, key_dim], W_UV [heads, value_dim,
  // latent].
  std::string kv_b_weight = {}, key_heads_weight = {}, value_heads_weight = {};
  std::string o_weight = {}, o_bias = {};
};

// A gated delta net (arXiv:2412.06464): linear attention with a state per sequence.
struct GdnSpec {
  int64_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0;
  int64_t conv_kernel = 0;
  // Either a tensor for each projection (Qwen3.5), or two (Qwen3-Next) whose rows are sorted by key
  // head: its q, its k, then v of its value heads, then their z; and b of its value heads, then a.
  // With both names for the first ones, the checkpoint decides.
  std::string qkv_weight, z_weight, b_weight, a_weight;
  std::string qkvz_weight, ba_weight;
  std::string conv_weight, a_log, dt_bias, norm, out_weight;
  std::string negated_rate;  // -exp(a_log), which GGUF files have in its place
  // Value head h goes with key head h % k_heads, not with h / (v_heads / k_heads).
  bool heads_take_turns = false;

  // Of the convolution: q, k and v of all heads.
  int64_t conv_dim() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
};

// down(gate(g, up)), g and up projections of the same input.
struct MlpSpec {
  int64_t intermediate = 0;
  ops::Gate gate = {};
  bool has_gate = true;  // else down(act(up)), act the function of `gate`
  // Gate then up, or one tensor that holds both; without a gate up alone.
  std::vector<std::string> gate_up_weights = {}, gate_up_biases = {};
  // Gate and up where a checkpoint has two tensors in place of the one above.
  std::vector<std::string> gate_up_apart = {};
  std::string down_weight = {}, down_bias = {};
};

// A mixture of experts: each token goes to some of them, and to the shared one if there is one.
struct MoeSpec {
  // Names of the experts' weights. A * stands for the expert's index (a tensor [n, k] each);
  // without one a tensor holds all experts [E, n, k]. A name that ends with _blocks is one of
  // OpenAI's mxfp4: bytes of two values, and scales beside it.
  struct Names {
    std::vector<std::string> gate_up;  // gate then up, or one tensor that holds both
    std::string down;
    std::vector<std::string> gate_up_biases = {};  // likewise, without k
    std::string down_bias = {};
    bool transposed = false;   // [E, k, n]
    bool alternating = false;  // in a tensor of both, rows of gate and of up take turns
  };
  int64_t num_experts = 0;
  int64_t intermediate = 0;  // of one expert
  ops::MoeRouteOptions route = {};
  ops::Gate gate = {};       // of the experts; the shared one has its own
  bool weigh_input = false;  // a weight multiplies what goes into an expert, not what comes out
  std::string router = {}, router_bias = {};  // [E, hidden], [E]
  // The router reads the stream through a norm of its own, not what goes into the experts.
  std::optional<NormSpec> router_norm = std::nullopt;
  std::string correction = {}, expert_scale = {};  // [E], as in ops::MoeRouteArrays
  std::vector<Names> layouts = {};  // that checkpoints come in; the first one found is taken
  // Several shared experts are one that is as wide as all of them.
  std::optional<MlpSpec> shared = std::nullopt;
  // Weighs the shared expert: sigmoid of [1, hidden] . h; without a name it counts fully.
  std::string shared_gate = {};
};

// An MLP and experts beside each other, each between norms of its own; their sum is what the part
// makes. The MLP's input norm is that of the frame.
struct MlpAndMoeSpec {
  MlpSpec mlp = {};
  MoeSpec moe = {};
  std::optional<NormSpec> mlp_output_norm = std::nullopt;
  std::optional<NormSpec> moe_input_norm = std::nullopt, moe_output_norm = std::nullopt;
};

// What a layer must keep between steps, for the memory budget and the pools: keys and values of
// every token, a state of constant size, or nothing.
struct KvCacheSpec {
  int64_t kv_heads = 0, head_dim = 0;
  int64_t window_left = -1;  // tokens further back than this need not be kept; -1: all are seen
  // > 0: latent attention, whose rows of head_dim elements hold their values (ops::PagedKv).
  int64_t values_in_keys = 0;
};
using StateCacheSpec = ops::RecurrentStateShape;
struct SharedKvSpec {
  int64_t layer = 0;  // an earlier one, whose keys and values this one reads; it keeps none itself
};
using CacheSpec = std::variant<KvCacheSpec, StateCacheSpec, SharedKvSpec>;

// What a layer does with an input of its own (Gemma 4's per-layer embeddings), after its other
// parts: h + output_norm(projection(gate(gate_weight h, input))).
struct LayerInputSpec {
  ops::Gate gate = {};
  std::string gate_weight = {}, projection = {};  // [width, hidden], [hidden, width]
  std::optional<NormSpec> output_norm = std::nullopt;
};

// Where the inputs of all layers come from, those of one token side by side:
//   multiplier * (norm(projection_multiplier * projection e) + embed_multiplier * embedding row)
// e is what the first layer is given; each layer's numbers are normed on their own.
struct LayerInputsSpec {
  int64_t width = 0;                               // of one layer
  int64_t vocab = 0;                               // at least the model's
  std::string embed_weight = {}, projection = {};  // [vocab, layers * width], [.., hidden]
  NormSpec norm = {};                              // [width]
  float embed_multiplier = 1.0f;                   // rounded to the model's dtype
  float projection_multiplier = 1.0f, multiplier = 1.0f;
};

// The frame around a layer's two parts, first the mixer, then the ffn. A part adds to the residual
// stream: h + residual_multiplier * output_norm(part(input_norm(h))).
struct LayerSpec {
  std::optional<NormSpec> mixer_input_norm = std::nullopt, mixer_output_norm = std::nullopt;
  std::optional<NormSpec> ffn_input_norm = std::nullopt, ffn_output_norm = std::nullopt;
  float residual_multiplier = 1.0f;
  // Both parts are given the stream as it is before the layer. Without an ffn_input_norm the
  // mixer's is that of both.
  bool is_parallel = false;
  std::variant<AttentionSpec, GdnSpec, MlaSpec> mixer;
  std::variant<MlpSpec, MoeSpec, MlpAndMoeSpec> ffn;
  std::optional<LayerInputSpec> input = std::nullopt;  // if ModelSpec::layer_inputs makes one
  std::string output_scale = {};  // [1]: the stream is multiplied by it at the end of the layer
};

struct ModelSpec {
  std::string architecture;
  int64_t hidden = 0, vocab = 0;
  int64_t max_positions = 0;
  float norm_eps = 0.0f;
  std::vector<LayerSpec> layers;
  std::string embed_weight;
  NormSpec final_norm = {};
  std::optional<LayerInputsSpec> layer_inputs = std::nullopt;
  float embed_multiplier = 1.0f;  // rounded to the model's dtype, as a tensor of it would be
  // Logits are multiplied, then capped: cap * tanh(logit / cap); 0: no cap.
  float logits_multiplier = 1.0f, logits_softcap = 0.0f;
  std::string head_weight;  // empty: tied to the embedding
  std::string head_bias = {};
  // Norms multiply by 1 + the stored weight (but not those of GdnSpec), unless the checkpoint is in
  // GGUF (Checkpoint::norms_are_complete) or mlx-lm has converted it: these add the 1, which
  // mlx-lm's way to store convolutions shows.
  bool has_zero_centred_norms = false;
  // Tensors that a checkpoint may hold and this model does not use (exact names or "prefix*"); any
  // other is an error.
  std::vector<std::string> ignored;
};

// The experts of a layer, or null.
inline const MoeSpec* experts_of(const LayerSpec& layer) {
  if (const auto* both = std::get_if<MlpAndMoeSpec>(&layer.ffn)) return &both->moe;
  return std::get_if<MoeSpec>(&layer.ffn);
}
// Its dense part, or null.
inline const MlpSpec* mlp_of(const LayerSpec& layer) {
  if (const auto* both = std::get_if<MlpAndMoeSpec>(&layer.ffn)) return &both->mlp;
  return std::get_if<MlpSpec>(&layer.ffn);
}

}  // namespace quire::models
