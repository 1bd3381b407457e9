"""The tiny checkpoints that are there for a switch of a layer's frame: norms that are layer norms,
MLPs without a gate, attention and MLP side by side, windows of chunks, norms behind the rotation."""

from variants import BASE, PHI3_LONGROPE, UNTIED, Variant
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

FRAME_VARIANTS = [
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
]
