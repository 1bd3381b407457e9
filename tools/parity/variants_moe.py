"""The tiny checkpoints that are mixtures of experts with routers of their own."""

from variants import BASE, PLAIN_ROPE, UNTIED, Variant

# Layer 0 is dense; a correction that only chooses, weights that are scaled, two shared experts; half
# of each head rotates. A part that predicts several tokens is stored as layer 3.
GLM4_MOE = BASE | {
    "num_hidden_layers": 3,
    "head_dim": 32,
    "use_qk_norm": True,
    "attention_bias": True,
    "n_routed_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.8,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5},
}
MTP_LAYER = {"model.layers.3.eh_proj.weight": [64, 128], "model.layers.3.enorm.weight": [64]}
# Two of four groups of three experts are chosen from; no expert is shared; weights are not
# normalised; a window in layer 1.
DOTS1 = UNTIED | {
    "num_hidden_layers": 3,
    "head_dim": 24,
    "n_routed_experts": 12,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 0.6,
    "norm_topk_prob": False,
    "n_group": 4,
    "topk_group": 2,
    "sliding_window": 20,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
}
MIXTRAL = UNTIED | {
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 24,
}
# Sinks that matter, a gate whose clamp bites, YaRN whose ramp is not truncated.
GPT_OSS = BASE | {
    "num_hidden_layers": 3,
    "head_dim": 16,
    "intermediate_size": 64,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "swiglu_limit": 0.8,
    "swiglu_alpha": 1.5,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
}
ONE_LAYER = {"num_hidden_layers": 1, "num_local_experts": 4, "layer_types": ["sliding_attention"]}

# q and k normed as whole rows.
OLMOE = UNTIED | {
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "norm_topk_prob": False,
}
# The same; half of each head rotates, which published files call rotary_dim.
MINIMAX_M2 = BASE | {
    "head_dim": 32,
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "intermediate_size": 48,
    "tie_word_embeddings": False,
    "rotary_dim": 16,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5},
}
GRANITE_MOE = UNTIED | {
    "intermediate_size": 48,
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.45,
    "attention_multiplier": 0.3,
    "logits_scaling": 0.25,
}
FEW_EXPERTS = {"num_hidden_layers": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
GRANITE_MOE_SHARED = GRANITE_MOE | {"shared_intermediate_size": 80}
# Neighbouring dimensions rotate together; layer 0 is dense; a correction in a tensor of its own.
ERNIE45_MOE = BASE | {
    "num_hidden_layers": 3,
    "moe_num_experts": 7,
    "moe_k": 3,
    "moe_intermediate_size": 48,
    "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1,
    "tie_word_embeddings": True,
    "rope_parameters": PLAIN_ROPE | {"rope_theta": 500000.0},
}

MOE_VARIANTS = [
    Variant("gpt-oss", "gpt_oss", GPT_OSS, "new", without={"swiglu_limit": 7.0}),
    Variant("gpt-oss-bf16", "gpt_oss", GPT_OSS, "old", "bfloat16", without={"sliding_window": 512}),
    Variant("gpt-oss-numbered-bf16", "gpt_oss", GPT_OSS | ONE_LAYER, "new", "bfloat16", numbered=True),
    Variant(
        "glm45-moe",
        "glm4_moe",
        GLM4_MOE,
        "old",
        extra=MTP_LAYER,
        without={"routed_scaling_factor": 1.0},
    ),
    Variant(
        "glm45-moe-bf16",
        "glm4_moe",
        GLM4_MOE,
        "new",
        "bfloat16",
        extra=MTP_LAYER,
        without={"routed_scaling_factor": 1.0},
        steady=True,
    ),
    Variant("dots1", "dots1", DOTS1, "new", without={"n_group": 1, "topk_group": 1}),
    Variant("olmoe", "olmoe", OLMOE, "old", without={"norm_topk_prob": True}),
    Variant("minimax-m2", "minimax_m2", MINIMAX_M2, "old"),
    Variant("granitemoe", "granitemoe", GRANITE_MOE, "old", without={"residual_multiplier": 1.0}),
    Variant(
        "granitemoe-shared",
        "granitemoeshared",
        GRANITE_MOE_SHARED | {"hidden_act": "gelu"},
        "new",
        without={"hidden_act": "silu"},
    ),
    Variant("granitemoe-numbered-bf16", "granitemoe", GRANITE_MOE | FEW_EXPERTS, "new", "bfloat16", numbered=True),
    Variant("ernie45-moe", "ernie4_5_moe", ERNIE45_MOE, "new", without={"moe_k": 2}),
    Variant("mixtral", "mixtral", MIXTRAL, "old", without={"sliding_window": None}),
]
