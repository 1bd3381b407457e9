#!/usr/bin/env python3
"""Writes a random-weight checkpoint of a published model's exact shape, for speed measurements.

    make_random_model.py --shape NAME --out DIR [--layers N] [--dtype float32]      (--help lists the shapes)

--layers cuts the model's depth, for shapes that are too large for a machine.

Needs numpy, ml_dtypes and tokenizers. Tensors are streamed to disk, so that memory stays at the size
of the largest one. Deterministic for one seed and dtype (the tokenizer also depends on the Python
version, whose library it is trained on). The text that such a model writes is noise.
"""

import argparse
import json
import math
import os
import pathlib

import ml_dtypes
import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

# From the models' config.json on the hub.
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
# Three gated delta nets, then one attention layer, and so on.
QWEN35 = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "full_attention_interval": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000000,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
# Five layers with a window of 512 and a rope of their own, then one that sees everything.
GEMMA3_1B = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "vocab_size": 262144,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000,
    "rope_local_base_freq": 10000,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
# Latent attention, one dense layer, then experts with a shared one.
GLM47_FLASH = {
    "architectures": ["Glm4MoeLiteForCausalLM"],
    "model_type": "glm4_moe_lite",
    "hidden_size": 2048,
    "intermediate_size": 10240,
    "num_hidden_layers": 47,
    "num_attention_heads": 20,
    "num_key_value_heads": 20,
    "q_lora_rank": 768,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "rope_theta": 1000000,
    "rms_norm_eps": 1e-5,
    "n_routed_experts": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.8,
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "tie_word_embeddings": False,
}
# Experts as the published checkpoint has them: mxfp4, 32 values in 16 bytes and one scale.
GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
    "rms_norm_eps": 1e-5,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "swiglu_limit": 7.0,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
SHAPES = {
    "gemma3-1b": GEMMA3_1B,
    "glm-4.7-flash": GLM47_FLASH,
    "gpt-oss-20b": GPT_OSS_20B,
    "qwen3-0.6b": QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072},
    "qwen3-1.7b": QWEN3 | {"hidden_size": 2048, "intermediate_size": 6144},
    "qwen3-8b": QWEN3 | {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": QWEN3 | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "tie_word_embeddings": False,
    },
    "qwen3.5-0.8b": QWEN35,
    "llama-160m": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    },
}
COMMON = {"attention_bias": False, "hidden_act": "silu", "rope_scaling": None, "use_cache": True}

# Qwen's pre-tokenizer, so that tokenization costs what it costs with the real model.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
TRAINED_VOCAB = 16384
TRAINING_BYTES = 4 << 20


def training_files() -> list[str]:
    """Python's own library: English and code that every machine with Python has."""
    files, size = [], 0
    for path in sorted(pathlib.Path(os.__file__).parent.glob("*.py")):
        if size < TRAINING_BYTES:
            files.append(str(path))
            size += path.stat().st_size
    return files


def write_tokenizer(folder: pathlib.Path, vocab_size: int) -> dict[str, int]:
    """Real merges for the first ids, then words that no merge reaches: every id has a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TRAINED_VOCAB,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train(training_files(), trainer)
    # Qwen3's specials start at 151643 and its vocabulary is padded beyond them.
    first_special = vocab_size - (293 if vocab_size == 151936 else len(SPECIALS))
    content = json.loads(tokenizer.to_str())
    vocab = content["model"]["vocab"]
    for i in range(len(vocab), first_special):
        vocab[f"qz{i}"] = i
    assert len(vocab) == first_special, "a filler word is a trained token too"
    ids = {token: first_special + i for i, token in enumerate(SPECIALS)}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] = [
        {"id": i, "content": token, "special": True} | flags for token, i in ids.items()
    ]
    write_json(folder / "tokenizer.json", content)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", config)
    return ids


def write_json(path: pathlib.Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def delta_net_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    key = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    value = heads * config["linear_value_head_dim"]
    return {
        "in_proj_qkv.weight": (2 * key + value, hidden),
        "in_proj_z.weight": (value, hidden),
        "in_proj_b.weight": (heads, hidden),
        "in_proj_a.weight": (heads, hidden),
        "conv1d.weight": (2 * key + value, 1, config["linear_conv_kernel_dim"]),
        "A_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (config["linear_value_head_dim"],),
        "out_proj.weight": (hidden, value),
    }


def expert_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    count = config.get("num_experts") or config["n_routed_experts"]
    shapes = {"mlp.gate.weight": (count, hidden)}
    for e in range(count):
        shapes |= {f"mlp.experts.{e}.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"mlp.experts.{e}.down_proj.weight"] = (hidden, inner)
    return shapes


def mlp_shapes(part: str, hidden: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{part}.gate_proj.weight": (inner, hidden),
        f"{part}.up_proj.weight": (inner, hidden),
        f"{part}.down_proj.weight": (hidden, inner),
    }


def latent_attention_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden, heads, latent = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    rank, key, rotary = config["q_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    value = config["v_head_dim"]
    shapes = {
        "q_a_proj.weight": (rank, hidden),
        "q_a_layernorm.weight": (rank,),
        "q_b_proj.weight": (heads * (key + rotary), rank),
        "kv_a_proj_with_mqa.weight": (latent + rotary, hidden),
        "kv_a_layernorm.weight": (latent,),
        "kv_b_proj.weight": (heads * (key + value), latent),
        "o_proj.weight": (hidden, heads * value),
    }
    return {f"self_attn.{name}": shape for name, shape in shapes.items()}


def shared_expert_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """DeepSeek's experts, and what goes with them."""
    inner = config["moe_intermediate_size"] * config["n_shared_experts"]
    bias = {"mlp.gate.e_score_correction_bias": (config["n_routed_experts"],)}
    shared = mlp_shapes("mlp.shared_experts", config["hidden_size"], inner)
    return expert_shapes(config) | bias | shared


def gpt_oss_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The experts of a layer and what its attention has beside the weights."""
    hidden, inner, count = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    heads, dim = config["num_attention_heads"], config["head_dim"]
    kv = config["num_key_value_heads"] * dim
    return {
        "self_attn.q_proj.bias": (heads * dim,),
        "self_attn.k_proj.bias": (kv,),
        "self_attn.v_proj.bias": (kv,),
        "self_attn.o_proj.bias": (hidden,),
        "self_attn.sinks": (heads,),
        "mlp.router.weight": (count, hidden),
        "mlp.router.bias": (count,),
        "mlp.experts.gate_up_proj_blocks": (count, 2 * inner, hidden // 32, 16),
        "mlp.experts.gate_up_proj_scales": (count, 2 * inner, hidden // 32),
        "mlp.experts.gate_up_proj_bias": (count, 2 * inner),
        "mlp.experts.down_proj_blocks": (count, hidden, inner // 32, 16),
        "mlp.experts.down_proj_scales": (count, hidden, inner // 32),
        "mlp.experts.down_proj_bias": (count, hidden),
    }


def layer_shapes(config: dict, i: int) -> dict[str, tuple[int, ...]]:
    """Of layer i, without the prefix of its names."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config.get("head_dim", 0)
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    kind = config["model_type"]
    hybrid = kind == "qwen3_5_text"  # whose queries bring a gate
    norms = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    mixer = {
        "self_attn.q_proj.weight": (2 * q if hybrid else q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
    }
    ffn = mlp_shapes("mlp", hidden, inner)
    if hybrid or kind.startswith(("qwen3", "gemma3")):
        mixer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    if kind == "gemma3_text":
        norms |= {f"{side}_feedforward_layernorm.weight": (hidden,) for side in ("pre", "post")}
    if hybrid and (i + 1) % config["full_attention_interval"] != 0:
        mixer = {f"linear_attn.{name}": shape for name, shape in delta_net_shapes(config).items()}
    if kind == "qwen3_moe":
        ffn = expert_shapes(config)
    if kind == "glm4_moe_lite":
        mixer = latent_attention_shapes(config)
        ffn = shared_expert_shapes(config) if i >= config["first_k_dense_replace"] else ffn
    if kind == "gpt_oss":
        ffn = gpt_oss_shapes(config)
    return norms | mixer | ffn


def tensor_shapes(config: dict) -> dict[str, tuple[int, ...]]:
    hidden = config["hidden_size"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for i in range(config["num_hidden_layers"]):
        layer = layer_shapes(config, i).items()
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    return shapes


def is_zero_centred(config: dict) -> bool:
    """Whether the model adds one to the weights of its norms (but not to those of delta nets)."""
    return config["model_type"] in ("qwen3_5_text", "gemma3_text")


def draw(name: str, shape: tuple[int, ...], config: dict, rng: np.random.Generator) -> np.ndarray:
    """float32, or bytes of mxfp4: two values each, and the exponents of scales near 2^-7."""
    if name.endswith("_blocks"):
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if name.endswith("_scales"):
        return rng.integers(119, 122, shape, dtype=np.uint8)
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
    around_one = "norm.weight" in name and ("linear_attn" in name or not is_zero_centred(config))
    return values + np.float32(1) if around_one else values


def write_weights(path: pathlib.Path, config: dict, seed: int) -> tuple[int, int]:
    """The safetensors layout: length, JSON header, then the tensors without a gap. Returns how many tensors and bytes."""
    shapes = tensor_shapes(config)
    dtype = np.dtype(ml_dtypes.bfloat16 if config["torch_dtype"] == "bfloat16" else np.float32)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    code = {"bfloat16": "BF16", "float32": "F32"}[dtype.name]
    for name, shape in shapes.items():
        packed = name.endswith(("_blocks", "_scales"))
        end = offset + math.prod(shape) * (1 if packed else dtype.itemsize)
        header[name] = {"dtype": "U8" if packed else code, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            rows = shape[0] if len(shape) == 1 else max(1, (1 << 24) // math.prod(shape[1:]))
            for start in range(0, shape[0], rows):
                values = draw(name, (min(rows, shape[0] - start), *shape[1:]), config, rng)
                values = values if values.dtype == np.uint8 else values.astype(dtype)
                file.write(values.view(np.uint8).data)
    return len(shapes), offset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--layers", type=int, help="fewer than the shape has")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = COMMON | SHAPES[args.shape] | {"torch_dtype": args.dtype}
    if args.layers:
        config["num_hidden_layers"] = args.layers
    ids = write_tokenizer(args.out, config["vocab_size"])
    end = {"bos_token_id": ids["<|endoftext|>"], "pad_token_id": ids["<|endoftext|>"]}
    write_json(args.out / "config.json", config | end | {"eos_token_id": ids["<|im_end|>"]})
    stops = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "do_sample": False}
    write_json(args.out / "generation_config.json", end | stops)
    count, size = write_weights(args.out / "model.safetensors", config, args.seed)
    print(f"{args.shape}: {count} tensors, {size / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
