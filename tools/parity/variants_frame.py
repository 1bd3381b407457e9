"""The tiny checkpoints that are there for a switch of a layer's frame: norms that are layer norms,
MLPs without a gate, attention and MLP side by side, windows of chunks, norms behind the rotation."""

from variants import BASE, PHI3_LONGROPE, PLAIN_ROPE, UNTIED, Variant
from variants_moe import GRANITE_MOE_SHARED

# An MLP without a gate, with biases.
ARCEE = UNTIED | {
    "head_dim": 24,
    "hidden_act": "relu2",
    "mlp_bias": True,
}
# Layer norms with biases, a bias on the head, two experts by a sparse mixer whose threshold counts,
# a factor of rotated heads beside each set of longrope's.
PHIMOE = BASE | {
    "rms_norm_eps": 1e-5,
    "intermediate_size": 32,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "router_jitter_noise": 0.2,
    "attention_bias": True,
    "lm_head_bias": True,
    "original_max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "rope_parameters": PHI3_LONGROPE["rope_parameters"]
    | {"short_mscale": 1.1, "long_mscale": 1.25, "original_max_position_embeddings": 64},
}
# Layers of attention alone: the MLP is what others call a shared expert.
GRANITE_HYBRID = UNTIED | {
    "layer_types": ["full_attention"] * 2,
    "num_local_experts": 0,
    "shared_intermediate_size": 80,
    "position_embedding_type": "rope",
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.45,
    "attention_multiplier": 0.3,
    "logits_scaling": 0.25,
}
# The same with experts beside it, and no layer rotates.
GRANITE_HYBRID_MOE = GRANITE_MOE_SHARED | {
    "layer_types": ["full_attention"] * 2,
    "intermediate_size": 32,
    "shared_intermediate_size": 48,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "position_embedding_type": None,
}

# Layers 0 and 2 rotate neighbours, norm heads and see chunks of 24 tokens; layer 1 sees all, does
# not rotate and has queries that grow every 40 positions. Experts of weighed inputs in layer 1, their
# tensors transposed. As in Scout the bounds of Llama 3's rope are equal.
LLAMA4 = BASE | {
    "num_hidden_layers": 3,
    "head_dim": 24,
    "rms_norm_eps": 1e-5,
    "intermediate_size": 40,
    "intermediate_size_mlp": 96,
    "num_local_experts": 5,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "no_rope_layers": [1, 0, 1],
    "attention_chunk_size": 24,
    "attn_temperature_tuning": True,
    "floor_scale": 40,
    "attn_scale": 0.3,
    "use_qk_norm": True,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 1.0,
        "original_max_position_embeddings": 64,
    },
}
# As in Maverick heads are not normed; layer 0 is the one that sees all. Two experts a token.
LLAMA4_WRAPPED = {
    "text_config": LLAMA4
    | {
        "num_hidden_layers": 2,
        "no_rope_layers": [0, 1],
        "moe_layers": [1],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "use_qk_norm": False,
        "attention_bias": True,
    },
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
        "vision_output_dim": 16,
        "projector_input_dim": 16,
        "projector_output_dim": 16,
    },
    "tie_word_embeddings": False,
}

# Attention and MLP side by side behind a layer norm whose eps counts, scaled logits, biases.
COHERE = {key: value for key, value in BASE.items() if key != "rms_norm_eps"} | {
    "layer_norm_eps": 0.01,
    "logit_scale": 0.8,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE,
}
# The same with windows of 20 in two layers; the third does not rotate.
COHERE2 = COHERE | {
    "num_hidden_layers": 3,
    "attention_bias": False,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
# Norms of heads behind the rotation, whose base an alpha makes longer.
HUNYUAN = BASE | {
    "head_dim": 24,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "dynamic",
        "rope_theta": 10000.0,
        "alpha": 50.0,
        "factor": 1.0,
    },
}
HUNYUAN_MOE = BASE | {
    "head_dim": 16,
    "intermediate_size": 32,
    "num_experts": 5,
    "moe_topk": [2, 3],
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE,
}

# Norms around zero, scaled embeddings, a tied head.
GEMMA = BASE | {
    "head_dim": 24,
    "intermediate_size": 64,
    "tie_word_embeddings": True,
    "rope_parameters": PLAIN_ROPE,
}
# Neighbours rotate; biases everywhere.
ERNIE45 = BASE | {
    "head_dim": 24,
    "intermediate_size": 64,
    "rms_norm_eps": 1e-5,
    "use_bias": True,
    "tie_word_embeddings": True,
    "rope_parameters": PLAIN_ROPE | {"rope_theta": 500000.0},
}

FRAME_VARIANTS = [
    Variant("gemma-bf16", "gemma", GEMMA, "old", "bfloat16", without={"hidden_act": "relu"}),
    Variant("ernie45-bf16", "ernie4_5", ERNIE45, "old", "bfloat16"),
    Variant("arcee", "arcee", ARCEE, "old", without={"hidden_act": "silu"}),
    Variant("phimoe", "phimoe", PHIMOE, "new", without={"router_jitter_noise": 0.01}),
    Variant(
        "granite4",
        "granitemoehybrid",
        GRANITE_HYBRID,
        "old",
        without={"position_embedding_type": None},
    ),
    Variant(
        "granite4-moe",
        "granitemoehybrid",
        GRANITE_HYBRID_MOE,
        "new",
        without={"position_embedding_type": "rope"},
    ),
    Variant("cohere", "cohere", COHERE, "old", without={"layer_norm_eps": 1e-5}),
    Variant("cohere2-bf16", "cohere2", COHERE2, "new", "bfloat16", without={"sliding_window": 512}),
    Variant("hunyuan", "hunyuan_v1_dense", HUNYUAN, "old", without={"rope_parameters": PLAIN_ROPE}),
    Variant("hunyuan-moe", "hunyuan_v1_moe", HUNYUAN_MOE, "new", without={"moe_topk": 1}),
    Variant("llama4", "llama4_text", LLAMA4, "old", without={"attention_chunk_size": 512}),
    Variant("llama4-wrapped-bf16", "llama4", LLAMA4_WRAPPED, "new", "bfloat16"),
    Variant("llama4-numbered-bf16", "llama4", LLAMA4_WRAPPED, "new", "bfloat16", numbered=True),
]
