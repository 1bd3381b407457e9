"""The tiny checkpoints of Gemma 4, one like each of its models."""

from typing import Any

from variants import BASE, PLAIN_ROPE, Variant

# As the 31B model: layers without a window have fewer and wider heads, whose keys are their values
# too; a quarter of them rotates.
GEMMA4 = BASE | {
    "num_hidden_layers": 3,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "sliding_window": 20,
    "final_logit_softcapping": 12.0,
    "use_bidirectional_attention": "vision",
    "layer_types": ["sliding_attention", "full_attention", "full_attention"],
    "tie_word_embeddings": True,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1000000.0,
            "partial_rotary_factor": 0.25,
        },
    },
}
# As the E2B model: the last two layers read the keys and values of layers 1 and 2 and have wider
# MLPs; every layer has an input of its own, from an embedding with more rows than the first. All
# heads have one shape, so that layers with and without a window can share pools.
GEMMA4_E2B = GEMMA4 | {
    "num_hidden_layers": 5,
    "global_head_dim": 16,
    "attention_k_eq_v": False,
    "num_global_key_value_heads": None,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "intermediate_size": 64,
    "hidden_size_per_layer_input": 12,
    "vocab_size_per_layer_input": 331,
    "layer_types": ["sliding_attention"] * 2
    + ["full_attention", "sliding_attention", "full_attention"],
    "use_bidirectional_attention": None,
}
GEMMA4_WRAPPED = {
    "text_config": GEMMA4_E2B
    | {
        "num_hidden_layers": 4,
        "global_head_dim": 24,
        "hidden_size_per_layer_input": 16,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "vision_config": {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "patch_size": 4,
        "pooling_kernel_size": 2,
        "position_embedding_size": 16,
    },
    "audio_config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "subsampling_conv_channels": [4, 4],
        "conv_kernel_size": 3,
        "output_proj_dims": 16,
    },
    "tie_word_embeddings": True,
}
# What training left over where layers share keys and values.
GEMMA4_LEFT = {
    f"model.language_model.layers.{layer}.self_attn.{name}.weight": shape
    for layer, dim in ((2, 16), (3, 24))
    for name, shape in (
        ("k_proj", [2 * dim, 64]),
        ("v_proj", [2 * dim, 64]),
        ("k_norm", [dim]),
    )
}
# As the 26B-A4B model: experts beside every MLP, whose router has a norm and scales of its own.
GEMMA4_MOE = GEMMA4 | {
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "intermediate_size": 48,
    "enable_moe_block": True,
    "num_experts": 5,
    "top_k_experts": 3,
    "moe_intermediate_size": 32,
}

GEMMA4_VARIANTS = [
    Variant(
        "gemma4-31b",
        "gemma4_text",
        GEMMA4 | {"num_key_value_heads": 4},  # twice as wide as those of layers without a window
        "global",
        without={"rope_parameters": GEMMA4["rope_parameters"] | {"full_attention": PLAIN_ROPE}},
    ),
    Variant("gemma4-e2b", "gemma4_text", GEMMA4_E2B, "global", without={"num_kv_shared_layers": 1}),
    Variant(
        "gemma4-e2b-wrapped-bf16",
        "gemma4",
        GEMMA4_WRAPPED,
        "global",
        "bfloat16",
        extra=GEMMA4_LEFT,
    ),
    Variant("gemma4-26b-a4b", "gemma4_text", GEMMA4_MOE, "new", without={"top_k_experts": 2}),
]


def global_keys(config: dict[str, Any], variant: Variant) -> dict[str, Any]:
    """Gemma 4 as Google's files state it."""
    config = dict(config)
    stated = variant.config.get("text_config", variant.config)
    inside = "text_config" in config
    text = dict(config["text_config"] if inside else config)
    for layer in text.pop("per_layer_config", {}).values():
        assert layer["head_dim"] == stated["global_head_dim"]
    text["global_head_dim"] = stated["global_head_dim"]
    text["num_global_key_value_heads"] = stated.get("num_global_key_value_heads")
    return config | {"text_config": text} if inside else text
