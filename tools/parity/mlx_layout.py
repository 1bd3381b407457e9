"""Experts and heads of latent attention as mlx-lm stores them, and back."""

import re
from typing import Any

import torch


def split_latent(
    tensors: dict[str, torch.Tensor], config: dict[str, Any]
) -> dict[str, torch.Tensor]:
    """kv_b_proj as embed_q [H, latent, key] and unembed_out [H, value, latent], but not that of the
    last layer: so older conversions have it. Layers that predict further tokens are left out."""
    layers = config["num_hidden_layers"]
    split = {}
    for name, tensor in tensors.items():
        if name.startswith(f"model.layers.{layers}."):
            continue
        if not name.endswith("kv_b_proj.weight") or f".layers.{layers - 1}." in name:
            split[name] = tensor
            continue
        heads = tensor.reshape(config["num_attention_heads"], -1, tensor.shape[-1])
        keys, values = heads.split([config["qk_nope_head_dim"], config["v_head_dim"]], 1)
        stem = name.removesuffix("kv_b_proj.weight")
        split[stem + "embed_q.weight"] = keys.transpose(1, 2).contiguous()
        split[stem + "unembed_out.weight"] = values.contiguous()
    return split


def join_latent(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    joined = dict(dense)
    for name, keys in dense.items():
        if name.endswith("embed_q.weight"):
            stem = name.removesuffix("embed_q.weight")
            heads = torch.cat([keys.transpose(1, 2), dense[stem + "unembed_out.weight"]], 1)
            joined[stem + "kv_b_proj.weight"] = heads.reshape(-1, heads.shape[-1])
    return joined


def stack_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """experts.0.up_proj.weight and its like as switch_mlp.up_proj.weight [E, n, k]."""
    stacked, experts = {}, {}
    for name, tensor in tensors.items():
        match = re.fullmatch(r"(.*\.mlp)\.experts\.(\d+)\.(\w+)\.weight", name)
        if match is None:
            stacked[name] = tensor
            continue
        key = f"{match[1]}.switch_mlp.{match[3]}.weight"
        experts.setdefault(key, {})[int(match[2])] = tensor
    for name, rows in experts.items():
        stacked[name] = torch.stack([rows[i] for i in range(len(rows))])
    return stacked


def fuse_experts(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Stacked experts under the names that the parameters have in transformers."""
    fused = dict(dense)
    for name in dense:
        if not name.endswith(".switch_mlp.down_proj.weight"):
            continue
        stem = name.removesuffix("switch_mlp.down_proj.weight")
        gate, up = (dense[f"{stem}switch_mlp.{part}_proj.weight"] for part in ("gate", "up"))
        fused[stem + "experts.gate_up_proj"] = torch.cat([gate, up], 1)
        fused[stem + "experts.down_proj"] = dense[name]
    return fused
