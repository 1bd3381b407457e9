#!/usr/bin/env python3
"""Writes a GGUF of a Qwen3, Qwen3.5, Gemma 3, gpt-oss or GLM-4.7-Flash checkpoint of bfloat16 or float32:
make_gguf.py CHECKPOINT OUT.gguf

llama.cpp's own converter knows tokenizers by a hash of what they produce and refuses that of a random
model, so the file is written here with the `gguf` package; llama-quantize makes q8_0 and q4_0 from it.
"""

import json
import pathlib
import sys

import gguf
import ml_dtypes
import numpy as np

OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# Of Qwen3.5, whose delta nets have as many heads of keys as of values here, so that none changes its place.
HYBRID = INNER | {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}

GEMMA = INNER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}

GPT_OSS = INNER | {
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router": "ffn_gate_inp",
}

GLM_LITE = INNER | {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}


def gguf_name(name: str, inner: dict[str, str] = INNER) -> str:
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    stem = name.removesuffix(".weight")
    end = ".weight" if name.endswith(".weight") else ""
    if name.endswith(".bias"):
        stem, end = name.removesuffix(".bias"), ".bias"
    if stem in OUTER:
        return OUTER[stem] + end
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{inner[part]}{end}"


def gemma_values(name: str, values: np.ndarray) -> np.ndarray:
    """The model adds one to the weights of its norms, llama.cpp does not."""
    return values.astype(np.float32) + 1 if name.endswith("norm.weight") else values


def hybrid_values(name: str, values: np.ndarray) -> np.ndarray:
    """As llama.cpp's converter changes them."""
    if name.endswith(".A_log"):
        return -np.exp(values.astype(np.float32))
    if name.endswith("norm.weight") and "linear_attn" not in name:
        return values.astype(np.float32) + 1  # the model adds it itself, llama.cpp does not
    return values.squeeze().astype(np.float32) if "conv1d" in name else values


def mxfp4(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """[..., groups, 16] bytes whose halves are neighbours, [..., groups] -> [..., groups * 17]: the scale, then bytes
    whose halves are values i and i + 16."""
    values = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    halves = values[..., :16] | values[..., 16:] << 4
    return np.concatenate([scales[..., None], halves], axis=-1).reshape(*scales.shape[:-1], -1)


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
    """As the checkpoint has it; what is no matrix, and routers, in float32."""
    if values.dtype == np.float32 or values.ndim == 1 or "ffn_gate_inp" in name:
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    else:
        packed = np.ascontiguousarray(values).view(np.uint8)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.BF16)


def add_heads(writer: gguf.GGUFWriter, layer: str, kv_b: np.ndarray, config: dict) -> None:
    """kv_b_proj taken apart, [heads, latent, key] and [heads, value, latent]: llama.cpp absorbs it, too."""
    key, heads = config["qk_nope_head_dim"], config["num_attention_heads"]
    both = np.asarray(kv_b).reshape(heads, key + config["v_head_dim"], -1)
    add_tensor(writer, f"blk.{layer}.attn_k_b.weight", both[:, :key].transpose(0, 2, 1))
    add_tensor(writer, f"blk.{layer}.attn_v_b.weight", both[:, key:])


def add_stacked_experts(writer: gguf.GGUFWriter, layer: int, of: dict[str, np.ndarray]) -> None:
    """Of matrices called 7.up_proj.weight."""
    for part in ("gate", "up", "down"):
        one_by_one = [of[f"{i}.{part}_proj.weight"] for i in range(len(of) // 3)]
        add_tensor(writer, f"blk.{layer}.ffn_{part}_exps.weight", np.stack(one_by_one))


def add_gpt_oss_experts(writer: gguf.GGUFWriter, layer: int, of: dict[str, np.ndarray]) -> None:
    """Packed ones, of which rows of gate and of up take turns."""
    both = mxfp4(of["gate_up_proj_blocks"], of["gate_up_proj_scales"])
    biases = of["gate_up_proj_bias"].astype(np.float32)
    parts = {
        "gate": (both[:, ::2], biases[:, ::2]),
        "up": (both[:, 1::2], biases[:, 1::2]),
        "down": (mxfp4(of["down_proj_blocks"], of["down_proj_scales"]), of["down_proj_bias"].astype(np.float32)),
    }
    for part, (packed, bias) in parts.items():
        name = f"blk.{layer}.ffn_{part}_exps"
        packed = np.ascontiguousarray(packed)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        writer.add_tensor(f"{name}.bias", np.ascontiguousarray(bias))


DTYPES = {"BF16": ml_dtypes.bfloat16, "F32": np.float32, "U8": np.uint8}


def tensors(path: pathlib.Path):
    """(name, values) of every tensor, mapped: bfloat16, float32, or bytes of mxfp4."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    for name, info in header.items():
        if name == "__metadata__":
            continue
        if info["dtype"] not in DTYPES:
            sys.exit(f"{path}: {name} is {info['dtype']}; a checkpoint of bfloat16 or float32 is needed")
        offset, shape = 8 + size + info["data_offsets"][0], tuple(info["shape"])
        yield name, np.memmap(path, DTYPES[info["dtype"]], "r", offset, shape)


def add_config(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    if config["model_type"] == "glm4_moe_lite":
        add_latent_attention(writer, config)
        add_deepseek_experts(writer, config)
    else:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if config["model_type"] == "qwen3_5_text":
        add_delta_nets(writer, config)
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] == "gpt_oss":
        add_gpt_oss(writer, config)
    bfloat16 = config["torch_dtype"] == "bfloat16"
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if bfloat16 else gguf.LlamaFileType.ALL_F32)


def add_delta_nets(writer: gguf.GGUFWriter, config: dict) -> None:
    if config["linear_num_key_heads"] != config["linear_num_value_heads"]:
        sys.exit("delta nets with more heads of values than of keys are not written here")
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    writer.add_full_attention_interval(config["full_attention_interval"])
    writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([11, 11, 10, 0])


def add_gpt_oss(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    yarn = config["rope_scaling"]
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(yarn["factor"])
    writer.add_rope_scaling_orig_ctx_len(yarn["original_max_position_embeddings"])


def add_latent_attention(writer: gguf.GGUFWriter, config: dict) -> None:
    """One head of keys, whose first part is the values; *_mla is what a head has before it is absorbed."""
    latent, rotary = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_head_count_kv(1)
    writer.add_key_length(latent + rotary)
    writer.add_value_length(latent)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rotary)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_rope_dimension_count(rotary)


def add_deepseek_experts(writer: gguf.GGUFWriter, config: dict) -> None:
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def add_tokenizer(writer: gguf.GGUFWriter, folder: pathlib.Path, config: dict) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    words = [f"[unused{i}]" for i in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(words)
    for word, i in content["model"]["vocab"].items():
        words[i], kinds[i] = word, gguf.TokenType.NORMAL
    for token in content["added_tokens"]:
        words[token["id"]], kinds[token["id"]] = token["content"], gguf.TokenType.CONTROL
    merges = content["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


# model_type: architecture, names in a layer, what becomes of values.
KINDS = {
    "qwen3": ("qwen3", INNER, lambda name, values: values),
    "qwen3_5_text": ("qwen35", HYBRID, hybrid_values),
    "gemma3_text": ("gemma3", GEMMA, gemma_values),
    "gpt_oss": ("gpt-oss", GPT_OSS, lambda name, values: values),
    "glm4_moe_lite": ("deepseek2", GLM_LITE, lambda name, values: values),
}


EXPERTS = {"gpt_oss": add_gpt_oss_experts, "glm4_moe_lite": add_stacked_experts}


def main() -> None:
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] not in KINDS:
        sys.exit(f"{folder}: model_type is {config['model_type']}, only {', '.join(KINDS)} are written here")
    architecture, names, change = KINDS[config["model_type"]]
    writer = gguf.GGUFWriter(out, architecture)
    writer.add_name(folder.name)
    add_config(writer, config)
    add_tokenizer(writer, folder, config)
    experts = {}
    for name, values in tensors(folder / "model.safetensors"):
        if ".experts." in name:
            layer, _, part = name.removeprefix("model.layers.").partition(".mlp.experts.")
            experts.setdefault(int(layer), {})[part] = values
            continue
        if name.endswith(".kv_b_proj.weight"):
            add_heads(writer, name.split(".")[2], values, config)
            continue
        add_tensor(writer, gguf_name(name, names), change(name, values))
    for layer, parts in experts.items():
        EXPERTS[config["model_type"]](writer, layer, parts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
