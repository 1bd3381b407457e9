#!/usr/bin/env python3
"""Writes tests/parity/config_defaults.json: what transformers' config classes make of files that
leave keys out, for those keys that every family has.

    config_defaults.py
"""

import json
import pathlib

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = {
    "arcee": "ArceeForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "dots1": "Dots1ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "helium": "HeliumForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "llama": "LlamaForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "ministral": "MinistralForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "phimoe": "PhimoeForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
# What Quire wants in every file; other keys only families without a default of their own.
STATED = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
STATED += ("max_position_embeddings", "num_experts", "num_experts_per_tok", "num_local_experts")
STATED += ("n_routed_experts", "n_shared_experts", "moe_intermediate_size", "q_lora_rank")
STATED += ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def stated_keys(family: str) -> dict:
    defaults = CONFIG_MAPPING[family]()
    found = {"model_type": family, "num_hidden_layers": 64 if family == "dots1" else 8}
    for key in STATED:
        value = getattr(defaults, key, None)
        if value is not None:
            found[key] = value
    if family == "glm4_moe":
        found["head_dim"] = 128  # hidden_size / num_attention_heads is odd
    if family == "granitemoehybrid":  # without mamba, and such models say that they rotate
        found |= {"layer_types": ["full_attention"] * 8, "position_embedding_type": "rope"}
        found |= {"shared_intermediate_size": 1024}
    if family == "deepseek_v2":
        found["num_experts_per_tok"] = 6
    if family == "dots1":
        found |= {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6}
    return found


def rotates(config, layer: int) -> bool:
    if config.model_type in ("smollm3", "llama4_text"):
        return bool(config.no_rope_layers[layer])
    return config.model_type not in ("exaone4", "cohere2") or config.layer_types[layer] == "sliding_attention"


def layer_of(config, head_dim: int, layer: int) -> dict:
    """Its window (0: none), and of its rope theta and the dimensions that turn (0: none do)."""
    types = getattr(config, "layer_types", None)
    kind = types[layer] if types else "sliding_attention"
    rope = config.rope_parameters.get(kind, config.rope_parameters)
    turning = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    window = getattr(config, "sliding_window", None) or 0
    return {
        "window": window if kind == "sliding_attention" else 0,
        "theta": rope["rope_theta"] if rotates(config, layer) else 0,
        "rotary_dim": turning if rotates(config, layer) else 0,
        "scaling": rope["rope_type"] if rotates(config, layer) else "default",
    }


def case_of(family: str, architecture: str) -> dict:
    keys = stated_keys(family)
    config = CONFIG_MAPPING[family](**keys)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    first_dense = getattr(config, "first_k_dense_replace", None)
    if types := getattr(config, "mlp_layer_types", None):
        first_dense = types.index("sparse")
    layers = [layer_of(config, head_dim, i) for i in range(config.num_hidden_layers)]
    return {
        "config": {"architectures": [architecture]} | keys,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": head_dim,
        "rms_norm_eps": getattr(config, "rms_norm_eps", None) or config.layer_norm_eps,
        "tie_word_embeddings": config.tie_word_embeddings,
        "first_dense": first_dense,
        "normalise": getattr(config, "norm_topk_prob", None),
        "groups": getattr(config, "n_group", None),
        "chosen_groups": getattr(config, "topk_group", None),
        "route_scale": getattr(config, "routed_scaling_factor", None),
        "layers": {key: [layer[key] for layer in layers] for key in layers[0]},
    }


def main() -> None:
    transformers.logging.set_verbosity_error()
    cases = [case_of(*one) for one in FAMILIES.items()]
    text = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (ROOT / "tests/parity/config_defaults.json").write_text("[" + text + "]\n")


if __name__ == "__main__":
    main()
