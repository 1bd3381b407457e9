"""The table of tiny checkpoints: what each one is there to catch.

Published checkpoints come with two spellings of the rope facts: `rope_theta` and `rope_scaling` at
the top level (every file written before transformers 5), and one `rope_parameters` dictionary. A
variant's `keys` says which one its config.json uses; both must load. "global" is the new one with keys of
Google's Gemma 4 files in place of `per_layer_config`.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    family: str  # transformers' model_type
    config: dict[str, Any]
    keys: str  # "old", "new" or "global"
    dtype: str = "float32"
    shard_size: str = "1GB"
    # Tensors that a text model must skip, added to the file: published checkpoints have them.
    extra: dict[str, list[int]] | None = None
    # Turns one feature off; the goldens must change when it does, or they would not test it.
    without: dict[str, Any] | None = None
    # Sigmoid routers whose choice no rounding changes, for bfloat16: see steadied().
    steady: bool = False
    # A tensor for each expert and matrix, as llm-compressor saves them: see number_experts().
    numbered: bool = False


BASE = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
UNTIED = BASE | {"tie_word_embeddings": False, "rope_parameters": PLAIN_ROPE}

# heads * head_dim = 128, twice the hidden size.
QWEN3 = BASE | {
    "head_dim": 32,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
# 331 is a multiple of nothing that a kernel likes.
QWEN2 = BASE | {
    "vocab_size": 331,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
QWEN2_YARN = QWEN2 | {
    "vocab_size": 320,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 128,
    },
}
# Layer 0 sees everything, layers 1 and 2 the last 20 tokens.
QWEN2_SLIDING = QWEN2 | {
    "vocab_size": 320,
    "num_hidden_layers": 3,
    "use_sliding_window": True,
    "sliding_window": 20,
    "max_window_layers": 1,
}
# With original_max_position_embeddings = 64 the three bands of the llama3 rule are all occupied.
LLAMA3 = BASE | {
    "vocab_size": 331,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}
LLAMA_LINEAR = BASE | {
    "num_key_value_heads": 4,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
}
# head_dim is a multiple of 8 but not of 16, and heads * head_dim = 96.
MISTRAL = UNTIED | {
    "head_dim": 24,
    "rms_norm_eps": 1e-5,
    "sliding_window": 24,
}
PHI3 = BASE | {
    "rms_norm_eps": 1e-5,
    "sliding_window": 32,
    "original_max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 1.0},
}
# Prompts up to 17 tokens stay on the short factors, the one of 300 is on the long ones throughout.
PHI3_LONGROPE = PHI3 | {
    "sliding_window": None,
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 1.0,
        "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0],
        "long_factor": [1.05, 1.3, 1.9, 2.8, 4.0, 5.5, 7.0, 8.0],
    },
}
PHI3_PARTIAL = PHI3 | {
    "sliding_window": None,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5},
}

# Layers 0 and 2 are mixtures of experts, layer 1 is listed as dense.
QWEN3_MOE = QWEN3 | {
    "num_hidden_layers": 3,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "mlp_only_layers": [1],
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
}
# decoder_sparse_step leaves layer 0 dense; a shared expert with its gate.
QWEN2_MOE = QWEN2 | {
    "vocab_size": 320,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 80,
    "decoder_sparse_step": 2,
    "norm_topk_prob": False,
    "tie_word_embeddings": False,
}

# Odd sizes on purpose: two value heads per key head, Dk unlike Dv, a quarter of each attention head
# rotated.
QWEN3_5 = BASE | {
    "num_hidden_layers": 5,
    "layer_types": ["linear_attention"] * 2
    + ["full_attention", "linear_attention", "full_attention"],
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE
    | {"partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
}
# bfloat16 loses too much over more layers for a tight bound. As published: the model inside a wrapper with a vision part, and a part that predicts
# several tokens.
THREE_LAYERS = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention"] * 2 + ["full_attention"],
}
QWEN3_5_WRAPPED = {
    "text_config": QWEN3_5 | THREE_LAYERS | {"tie_word_embeddings": True},
    "vision_config": {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "patch_size": 4,
        "out_hidden_size": 64,
        "num_position_embeddings": 16,
    },
    "tie_word_embeddings": True,
}
MTP = {"mtp.fc.weight": [64, 128], "mtp.layers.0.mlp.up_proj.weight": [96, 64]}
# Layer 0 is dense; three value heads per key head.
QWEN3_NEXT = QWEN3_5 | {
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention"] * 2 + ["full_attention", "linear_attention"],
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 24,
    "linear_value_head_dim": 16,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 80,
    "mlp_only_layers": [0],
    "norm_topk_prob": True,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5},
}
QWEN3_5_MOE = {
    "text_config": {
        key: value
        for key, value in (
            QWEN3_NEXT
            | {
                "rope_parameters": QWEN3_5["rope_parameters"],
                "attention_bias": True,
                "linear_conv_kernel_dim": 3,
            }
        ).items()
        if key not in ("mlp_only_layers", "norm_topk_prob", "intermediate_size")
    },
    "vision_config": QWEN3_5_WRAPPED["vision_config"],
    "tie_word_embeddings": False,
}

# Norms behind each part only, q and k normed as whole rows.
OLMO2 = UNTIED | {"rms_norm_eps": 1e-5}
# YaRN where there is no window, plain rotation where there is one.
OLMO3 = OLMO2 | {
    "num_hidden_layers": 3,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {
            "rope_type": "yarn",
            "rope_theta": 500000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 128,
        },
    },
}
# Caps that bite, a scale of scores that is not that of the head's width.
GEMMA2 = UNTIED | {
    "head_dim": 24,
    "query_pre_attn_scalar": 16,
    "sliding_window": 24,
    "final_logit_softcapping": 12.0,
    "attn_logit_softcapping": 2.0,
}
GEMMA3 = BASE | {
    "num_hidden_layers": 3,
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "sliding_window": 20,
    "sliding_window_pattern": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "tie_word_embeddings": False,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
    },
}
TINY_SIGLIP = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
GEMMA3_WRAPPED = {
    "text_config": GEMMA3,
    "vision_config": TINY_SIGLIP,
    "mm_tokens_per_image": 4,
    "tie_word_embeddings": False,
}
SMOLLM3 = BASE | {
    "num_hidden_layers": 3,
    "no_rope_layers": [1, 0, 1],
    "tie_word_embeddings": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
EXAONE4 = UNTIED | {
    "num_hidden_layers": 3,
    "head_dim": 24,
    "sliding_window": 20,
    "sliding_window_pattern": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
GRANITE = BASE | {
    "embedding_multiplier": 0.6,
    "residual_multiplier": 1.4,
    "attention_multiplier": 0.3,
    "logits_scaling": 0.8,
    "tie_word_embeddings": True,
    "rope_parameters": PLAIN_ROPE,
}
GLM = BASE | {
    "head_dim": 24,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.5},
}
# Queries grow with every 64 positions.
MINISTRAL3 = BASE | {
    "head_dim": 24,
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3,
    },
}
MISTRAL3_WRAPPED = {
    "text_config": MINISTRAL3 | {"model_type": "ministral3"},
    "vision_config": TINY_SIGLIP | {"model_type": "pixtral", "head_dim": 8},
    "spatial_merge_size": 2,
    "tie_word_embeddings": False,
}
MINISTRAL = MISTRAL | {
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
}
SEED_OSS = UNTIED | {
    "head_dim": 16,
    "attention_bias": True,
    "attention_out_bias": True,
    "mlp_bias": True,
}
HELIUM = UNTIED | {
    "head_dim": 16,
}

VARIANTS = [
    Variant("qwen3", "qwen3", QWEN3, "old"),
    Variant("qwen3-bf16", "qwen3", QWEN3, "new", "bfloat16"),
    Variant(
        "qwen3-untied-sharded",
        "qwen3",
        QWEN3 | {"tie_word_embeddings": False, "num_key_value_heads": 4},
        "new",
        shard_size="300KB",
    ),
    Variant("qwen2", "qwen2", QWEN2, "old"),
    Variant("qwen2-bf16", "qwen2", QWEN2, "new", "bfloat16"),
    Variant("qwen2-yarn", "qwen2", QWEN2_YARN, "old", without={"rope_parameters": PLAIN_ROPE}),
    Variant("qwen2-sliding", "qwen2", QWEN2_SLIDING, "old", without={"use_sliding_window": False}),
    Variant(
        "qwen2-sliding-bf16",
        "qwen2",
        QWEN2_SLIDING,
        "new",
        "bfloat16",
        without={"use_sliding_window": False},
    ),
    Variant(
        "llama3",
        "llama",
        LLAMA3,
        "old",
        without={"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ),
    Variant("llama3-bf16", "llama", LLAMA3, "new", "bfloat16"),
    Variant("llama-linear-bias", "llama", LLAMA_LINEAR, "old", without={"rope_parameters": PLAIN_ROPE}),
    Variant("qwen3-moe", "qwen3_moe", QWEN3_MOE, "old", without={"norm_topk_prob": False}),
    Variant("qwen3-moe-bf16", "qwen3_moe", QWEN3_MOE, "new", "bfloat16"),
    Variant("qwen2-moe", "qwen2_moe", QWEN2_MOE, "new", without={"norm_topk_prob": True}),
    Variant(
        "qwen35",
        "qwen3_5_text",
        QWEN3_5,
        "new",
        without={"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 1.0}},
    ),
    Variant("qwen35-wrapped-bf16", "qwen3_5", QWEN3_5_WRAPPED, "new", "bfloat16", extra=MTP),
    Variant("qwen35-moe", "qwen3_5_moe", QWEN3_5_MOE, "new", extra=MTP),
    Variant("qwen3-next", "qwen3_next", QWEN3_NEXT, "new", without={"norm_topk_prob": False}),
    Variant("qwen3-next-bf16", "qwen3_next", QWEN3_NEXT | THREE_LAYERS, "new", "bfloat16"),
    Variant("exaone4", "exaone4", EXAONE4, "new", without={"sliding_window": 512}),
    Variant("gemma2", "gemma2", GEMMA2, "old", without={"final_logit_softcapping": None}),
    Variant("gemma3", "gemma3_text", GEMMA3, "old", without={"sliding_window": 512}),
    Variant("gemma3-wrapped-bf16", "gemma3", GEMMA3_WRAPPED, "new", "bfloat16"),
    Variant("glm", "glm", GLM, "old", without={"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 1.0}}),
    Variant("glm4", "glm4", GLM, "new"),
    Variant("granite", "granite", GRANITE, "old", without={"residual_multiplier": 1.0}),
    Variant("helium", "helium", HELIUM, "new"),
    Variant("ministral", "ministral", MINISTRAL, "new", without={"sliding_window": 512}),
    Variant(
        "ministral3",
        "ministral3",
        MINISTRAL3,
        "new",
        without={"rope_parameters": MINISTRAL3["rope_parameters"] | {"llama_4_scaling_beta": 0.0}},
    ),
    Variant("mistral3-wrapped-bf16", "mistral3", MISTRAL3_WRAPPED, "new", "bfloat16"),
    Variant("olmo2", "olmo2", OLMO2, "old"),
    Variant("olmo3", "olmo3", OLMO3, "new", without={"sliding_window": 512}),
    Variant("olmo3-bf16", "olmo3", OLMO3, "old", "bfloat16", without={"sliding_window": 512}),
    Variant("seed-oss", "seed_oss", SEED_OSS, "new"),
    Variant("smollm3", "smollm3", SMOLLM3, "old", without={"no_rope_layers": [1, 1, 1]}),
    Variant("mistral", "mistral", MISTRAL, "new", without={"sliding_window": None}),
    Variant("mistral-bf16", "mistral", MISTRAL, "old", "bfloat16", without={"sliding_window": None}),
    Variant("phi3", "phi3", PHI3, "old", without={"sliding_window": None}),
    Variant("phi3-bf16", "phi3", PHI3, "new", "bfloat16", without={"sliding_window": None}),
    Variant(
        "phi3-longrope",
        "phi3",
        PHI3_LONGROPE,
        "old",
        without={"rope_parameters": PHI3["rope_parameters"]},
    ),
    Variant(
        "phi3-partial",
        "phi3",
        PHI3_PARTIAL,
        "new",
        without={"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 1.0}},
    ),
]


def old_keys(config: dict[str, Any]) -> dict[str, Any]:
    """The same facts as checkpoints on the hub from before transformers 5 spell them."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters"))
    nested = "sliding_attention" in rope
    if nested:  # layers with a window have their own, unscaled
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = dict(rope["full_attention"])
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope.pop("rope_theta")
    partial = rope.pop("partial_rotary_factor", None)
    if partial is not None and partial != 1.0:
        config["partial_rotary_factor"] = partial
    # Llama 3 says rope_type; the older yarn, linear and longrope files say type.
    kind = rope.pop("rope_type")
    if "original_max_position_embeddings" in config:  # Phi 3 keeps it at the top level only
        rope.pop("original_max_position_embeddings", None)
    rope["rope_type" if kind == "llama3" or nested else "type"] = kind
    config["rope_scaling"] = None if kind == "default" else rope
    if config["model_type"] == "granitemoehybrid":  # says "mamba" or "attention"
        config["layer_types"] = [kind.removeprefix("full_") for kind in config["layer_types"]]
    elif config["model_type"] != "olmo3":  # elsewhere implied by other keys
        config.pop("layer_types", None)
    if config["model_type"] == "qwen2" and not config["use_sliding_window"]:
        config["sliding_window"] = 24  # as in Qwen2: stated, but not in use
    derived = config["hidden_size"] // config["num_attention_heads"]
    if config.get("head_dim") == derived and config["model_type"] != "gpt_oss":
        del config["head_dim"]  # older files leave it to the reader
    return config
