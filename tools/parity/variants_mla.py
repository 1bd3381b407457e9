"""The tiny checkpoints with multi-head latent attention."""

from variants import BASE, PLAIN_ROPE, Variant

# q_a and kv_a have norms whose eps is not that of the others.
MLA = BASE | {
    "rms_norm_eps": 1e-4,
    "num_key_value_heads": 4,
    "q_lora_rank": 40,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "v_head_dim": 20,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "tie_word_embeddings": False,
}
# The two mscales differ, so that rotated parts are scaled, too, beside the scores.
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.8,
    "mscale_all_dim": 1.2,
}
# Two of four groups of two experts, layer 0 dense, biases; a part that predicts several tokens is
# stored as layer 2.
DEEPSEEK_V3 = MLA | {
    "attention_bias": True,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 1,
    "rope_parameters": YARN,
}
MTP_LAYER = {"model.layers.2.eh_proj.weight": [64, 128], "model.layers.2.enorm.weight": [64]}
# Neither interleaved nor scaled. All layers are dense: where the weights of the chosen experts are
# normalised, rounding to bfloat16 that sends a token elsewhere would be most of the error.
DENSE_HALVES = {
    "rope_interleave": False,
    "attention_bias": False,
    "first_k_dense_replace": 2,
    "rope_parameters": PLAIN_ROPE,
}
# Every layer has experts, two of them shared; groups are as good as their best.
DEEPSEEK_V2 = MLA | {
    "topk_method": "group_limited_greedy",
    "n_group": 4,
    "topk_group": 2,
    "n_shared_experts": 2,
    "first_k_dense_replace": 0,
    "routed_scaling_factor": 2.0,
    "norm_topk_prob": False,
    "rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
}
# Queries of one projection; the best of all experts.
DEEPSEEK_V2_LITE = DEEPSEEK_V2 | {
    "q_lora_rank": None,
    "topk_method": "greedy",
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.0,
}
# Five heads do not divide 64; widths are multiples of 32, for groups of quantised weights.
GLM47_FLASH = MLA | {
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 8,
    "v_head_dim": 64,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.8,
    "norm_topk_prob": True,
    "mlp_layer_types": ["sparse", "dense"],
    "num_nextn_predict_layers": 1,
    "rope_parameters": PLAIN_ROPE | {"rope_theta": 1000000.0},
}

MLA_VARIANTS = [
    Variant(
        "deepseek-v3",
        "deepseek_v3",
        DEEPSEEK_V3,
        "old",
        extra=MTP_LAYER,
        without={"rope_interleave": False},
    ),
    Variant("deepseek-v3-bf16", "deepseek_v3", DEEPSEEK_V3 | DENSE_HALVES, "new", "bfloat16"),
    Variant("deepseek-v2", "deepseek_v2", DEEPSEEK_V2, "new", without={"topk_method": "greedy"}),
    Variant(
        "deepseek-v2-lite-bf16",
        "deepseek_v2",
        DEEPSEEK_V2_LITE,
        "old",
        "bfloat16",
        without={"rope_parameters": PLAIN_ROPE},
    ),
    Variant(
        "glm47-flash",
        "glm4_moe_lite",
        GLM47_FLASH,
        "new",
        extra=MTP_LAYER,
        without={"mlp_layer_types": ["sparse", "sparse"]},
    ),
]
