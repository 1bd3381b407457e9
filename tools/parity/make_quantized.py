#!/usr/bin/env python3
"""Writes the quantised checkpoints of tests/parity/models from the dense ones, with goldens.

    make_quantized.py [NAME ...]

The formats are MLX's: affine, and small floats ("mode": mxfp4, mxfp8, nvfp4) (config.json:
"quantization"). The oracle is transformers on the dequantised weights, scale * q + bias or
scale * code, in float32.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import golden
from make_checkpoints import ROOT, load
from mlx_layout import fuse_experts, join_latent, split_latent, stack_experts
from mlx_names import from_mlx, from_mlx_gemma, to_mlx, to_mlx_gemma

MODELS = ROOT / "tests/parity/models"


@dataclasses.dataclass(frozen=True)
class Quantized:
    name: str
    base: str
    dtype: torch.dtype  # of scales and unquantised tensors
    default: dict[str, Any]
    layers: dict[str, Any]  # overrides: a format, or False
    hybrid: bool = False  # as mlx-lm stores the models of the Qwen3.5 family
    stacked: bool = False  # a layer's experts in one tensor, as mlx-lm stores them
    latent: bool = False  # latent attention's heads in two stacks, as mlx-lm stores them
    gemma: bool = False  # as mlx-lm stores Gemma 4
    openai: bool = False  # experts alone in mxfp4, as OpenAI stores those of gpt-oss
    split: bool = False  # experts as mlx-lm stores those of gpt-oss
    plain: tuple[str, ...] = ()  # ends of names that mlx-lm does not quantise
    dropped: tuple[str, ...] = ()  # beginnings of names that mlx-lm leaves out


VARIANTS = [
    # q, k and v of different formats in one projection; gate quantised, up not; a tied embedding.
    Quantized(
        "qwen3-4bit",
        "qwen3-bf16",
        torch.bfloat16,
        {"group_size": 32, "bits": 4},
        {
            "model.embed_tokens": {"group_size": 64, "bits": 4},
            "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 8},
            "model.layers.0.self_attn.k_proj": {"group_size": 64, "bits": 4},
            "model.layers.1.self_attn.o_proj": {"group_size": 128, "bits": 4},
            "model.layers.1.mlp.up_proj": False,
        },
    ),
    # The other widths: 6, 5 and 3 bits in one projection, a tied embedding of 6.
    Quantized(
        "qwen3-6bit",
        "qwen3-bf16",
        torch.bfloat16,
        {"group_size": 32, "bits": 6},
        {
            "model.embed_tokens": {"group_size": 64, "bits": 6},
            "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 5},
            "model.layers.0.self_attn.k_proj": {"group_size": 64, "bits": 3},
            "model.layers.1.self_attn.o_proj": {"group_size": 128, "bits": 3},
            "model.layers.1.mlp.up_proj": {"group_size": 32, "bits": 2},
        },
    ),
    # Stacked experts of 3, 5 and 6 bits.
    Quantized(
        "qwen3-moe-3bit",
        "qwen3-moe-bf16",
        torch.bfloat16,
        {"group_size": 32, "bits": 3},
        {
            "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8},
            "model.layers.1.mlp.switch_mlp.down_proj": {"group_size": 32, "bits": 5},
            "model.layers.2.mlp.switch_mlp.up_proj": {"group_size": 64, "bits": 6},
        },
        stacked=True,
    ),
    # Small floats: mxfp4 with mxfp8 and nvfp4 in places, all three in one projection (which is dense
    # then), affine weights beside them; a tied embedding.
    Quantized(
        "qwen3-mxfp4",
        "qwen3-bf16",
        torch.bfloat16,
        {"group_size": 32, "bits": 4, "mode": "mxfp4"},
        {
            "model.layers.0.self_attn.k_proj": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
            "model.layers.0.self_attn.v_proj": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
            "model.layers.0.self_attn.o_proj": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
            "model.layers.1.self_attn.o_proj": {"group_size": 64, "bits": 8},
            "model.layers.1.mlp.gate_proj": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
            "model.layers.1.mlp.up_proj": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
            "model.layers.1.mlp.down_proj": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
        },
    ),
    # Stacked experts of small floats, an affine router of 8 bits.
    Quantized(
        "qwen3-moe-nvfp4",
        "qwen3-moe-bf16",
        torch.bfloat16,
        {"group_size": 16, "bits": 4, "mode": "nvfp4"},
        {
            "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8},
            "model.layers.2.mlp.gate": {"group_size": 64, "bits": 8},
            "model.layers.2.mlp.switch_mlp.down_proj": {
                "group_size": 32,
                "bits": 8,
                "mode": "mxfp8",
            },
        },
        stacked=True,
    ),
    Quantized("gpt-oss-mxfp4", "gpt-oss-bf16", torch.float16, {}, {}, openai=True),
    # The same as mlx-lm stores it: gate and up apart, all that is no expert in 8 bits.
    Quantized(
        "gpt-oss-mlx",
        "gpt-oss-bf16",
        torch.float16,
        {"group_size": 32, "bits": 4, "mode": "mxfp4"},
        {
            name: {"group_size": 64, "bits": 8}
            for layer in range(3)
            for name in (
                *(f"model.layers.{layer}.self_attn.{part}_proj" for part in "qkvo"),
                f"model.layers.{layer}.mlp.router",
            )
        }
        | {name: {"group_size": 64, "bits": 8} for name in ("model.embed_tokens", "lm_head")},
        split=True,
    ),
    # Norms around zero stay as they are; windows, a rope for each layer type.
    Quantized("gemma3-4bit", "gemma3", torch.bfloat16, {"group_size": 32, "bits": 4}, {}),
    # Norms behind each part, q and k normed as whole rows.
    Quantized("olmo3-4bit", "olmo3-bf16", torch.bfloat16, {"group_size": 32, "bits": 4}, {}),
    # A router that is not quantised, a correction in float32, no group divides the experts' columns.
    Quantized(
        "glm45-4bit",
        "glm45-moe",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {},
        stacked=True,
        plain=("mlp.gate.weight",),
        dropped=("model.layers.3.",),
    ),
    # float16 scales, an untied quantised embedding, another format in the head.
    Quantized(
        "llama3-8bit",
        "llama3",
        torch.float16,
        {"group_size": 32, "bits": 8},
        {"lm_head": {"group_size": 64, "bits": 8}, "model.layers.1.self_attn.o_proj": False},
    ),
    # Stacked experts, a router of 8 bits.
    Quantized(
        "qwen3-moe-4bit",
        "qwen3-moe-bf16",
        torch.bfloat16,
        {"group_size": 32, "bits": 4},
        {
            "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8},
            "model.layers.2.mlp.switch_mlp.up_proj": {"group_size": 64, "bits": 8},
        },
        stacked=True,
    ),
    # A language model taken out of its wrapper, with gated delta nets: two formats in one projection.
    Quantized(
        "qwen35-mlx-4bit",
        "qwen35-wrapped-bf16",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {
            "language_model.model.layers.0.linear_attn.in_proj_z": {"group_size": 32, "bits": 8},
            "language_model.model.layers.1.linear_attn.in_proj_a": False,
            "language_model.model.layers.2.self_attn.q_proj": {"group_size": 64, "bits": 8},
        },
        hybrid=True,
    ),
    # The same of projections that are sorted by key head, and stacked experts.
    Quantized(
        "qwen3-next-mlx-4bit",
        "qwen3-next-bf16",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {
            "model.layers.0.linear_attn.in_proj_ba": {"group_size": 64, "bits": 8},
            "model.layers.1.mlp.gate": {"group_size": 64, "bits": 8},
        }
        | {
            f"model.layers.{layer}.mlp.{part}.down_proj": False  # no group divides their columns
            for layer in (1, 2)
            for part in ("switch_mlp", "shared_expert")
        },
        hybrid=True,
        stacked=True,
    ),
    # Heads of latent attention in two stacks, or in one matrix: then half of it must be turned.
    Quantized(
        "glm47-flash-mlx-4bit",
        "glm47-flash",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {
            "model.layers.0.mlp.gate": {"group_size": 32, "bits": 8},
            "model.layers.0.self_attn.embed_q": {"group_size": 32, "bits": 8},
            "model.layers.1.self_attn.kv_a_proj_with_mqa": {"group_size": 64, "bits": 8},
            "model.layers.1.self_attn.q_b_proj": False,
        },
        stacked=True,
        latent=True,
    ),
    # Gemma 4 taken out of its wrapper, with the embedding of all layers' inputs.
    Quantized(
        "gemma4-mlx-4bit",
        "gemma4-e2b-wrapped-bf16",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {
            "language_model.model.embed_tokens_per_layer": {"group_size": 64, "bits": 8},
            "language_model.model.layers.0.self_attn.v_proj": {"group_size": 64, "bits": 8},
        }
        | {  # no group divides their columns
            f"language_model.model.layers.{layer}.per_layer_projection": False
            for layer in range(4)
        },
        gemma=True,
    ),
    # Experts beside an MLP.
    Quantized(
        "gemma4-moe-mlx-4bit",
        "gemma4-26b-a4b",
        torch.float16,
        {"group_size": 32, "bits": 4},
        {f"model.layers.{layer}.mlp.down_proj": False for layer in range(2)}
        | {"model.layers.1.router.proj": {"group_size": 64, "bits": 8}},
        gemma=True,
    ),
]


def quantize(w: np.ndarray, bits: int, group: int, dtype: torch.dtype):
    """Values packed as uint32, scales, biases [n, k/group], and the dequantised float32 matrix."""
    n, k = w.shape
    groups = w.reshape(n, k // group, group).astype(np.float64)
    low, high = groups.min(-1), groups.max(-1)
    top = 2**bits - 1
    scales = torch.from_numpy((high - low) / top).to(dtype)
    biases = torch.from_numpy(low).to(dtype)
    s, b = scales.float().numpy()[..., None], biases.float().numpy()[..., None]
    q = np.clip(np.rint((groups - b) / s), 0, top).astype(np.uint32)
    dense = (s * q.astype(np.float32) + b).reshape(n, k)
    # Value i lies in bits [i * bits, (i + 1) * bits) of its row, lowest bit first.
    stream = (q.reshape(n, k, 1) >> np.arange(bits, dtype=np.uint32)) & 1
    packed = np.packbits(stream.reshape(n, k * bits).astype(np.uint8), axis=-1, bitorder="little")
    return torch.from_numpy(packed.view(np.uint32)), scales, biases, torch.from_numpy(dense)


FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
FLOAT8 = np.array(  # e4m3, without NaN
    [m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e in range(16) for m in range(8)][
        :127
    ],
    np.float32,
)


def nearest(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Codes, a sign above the index of the nearest size."""
    index = np.abs(np.abs(values)[..., None] - sizes).argmin(-1)
    sign = len(FLOAT4) if sizes is FLOAT4 else 128
    return np.where((values < 0) & (index > 0), index + sign, index).astype(np.uint8)


def decode(codes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    sign = len(FLOAT4) if sizes is FLOAT4 else 128
    return np.where(codes >= sign, -1, 1).astype(np.float32) * sizes[codes % sign]


def quantize_floats(w: np.ndarray, mode: str, group: int):
    """Codes packed as uint32, scales of a byte [n, k/group], and the dequantised float32 matrix."""
    n, k = w.shape
    groups = w.reshape(n, k // group, group)
    sizes = FLOAT8 if mode == "mxfp8" else FLOAT4
    wanted = np.abs(groups).max(-1) / sizes[-1]
    if mode == "nvfp4":
        scales = nearest(wanted, FLOAT8)
        scale = FLOAT8[scales]
    else:
        exponent = np.ceil(np.log2(np.where(wanted > 0, wanted, 1)))
        scales = (exponent + 127).astype(np.uint8)
        scale = np.exp2(exponent).astype(np.float32)
    codes = nearest(groups / np.where(scale > 0, scale, 1)[..., None], sizes)
    dense = (decode(codes, sizes) * scale[..., None]).reshape(n, k)
    codes = codes.reshape(n, k)
    packed = codes if mode == "mxfp8" else codes[:, ::2] | codes[:, 1::2] << 4
    packed = np.ascontiguousarray(packed).view(np.uint32)
    return torch.from_numpy(packed), torch.from_numpy(scales), torch.from_numpy(dense)


def is_quantised(variant: Quantized, name: str, tensor: torch.Tensor, form: dict) -> bool:
    if tensor.dim() < 2 or name.endswith(("conv1d.weight", ".bias", *variant.plain)):
        return False
    return tensor.shape[-1] % form["group_size"] == 0


def convert(variant: Quantized, tensors: dict[str, torch.Tensor]):
    """The checkpoint's tensors, and the float32 weights that they stand for."""
    stored, dense = {}, {}
    for name, tensor in tensors.items():
        layer = name.removesuffix(".weight")
        form = variant.layers.get(layer, variant.default)
        if form is False or not is_quantised(variant, name, tensor, form):
            is_correction = name.endswith("e_score_correction_bias")
            stored[name] = tensor if is_correction else tensor.to(variant.dtype)
            dense[name] = stored[name].float()
            continue
        rows = tensor.float().numpy().reshape(-1, tensor.shape[-1])
        mode = form.get("mode", "affine")
        if mode == "affine":
            parts = quantize(rows, form["bits"], form["group_size"], variant.dtype)
        else:
            parts = quantize_floats(rows, mode, form["group_size"])
        parts = [part.reshape(*tensor.shape[:-1], -1) for part in parts]
        dense[name] = parts[-1]
        suffixes = (".weight", ".scales", ".biases")
        stored |= {layer + suffix: part for suffix, part in zip(suffixes, parts[:-1])}
    return stored, dense


def convert_openai(variant: Quantized, tensors: dict[str, torch.Tensor]):
    """The same for experts in bytes of two values [E, n, k / 32, 16], and scales of their own."""
    stored, dense = {}, {}
    for name, tensor in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = tensor.to(variant.dtype)
            dense[name] = stored[name].float()
            continue
        experts, k, n = tensor.shape
        rows = tensor.float().transpose(1, 2).reshape(experts * n, k).numpy()
        packed, scales, values = quantize_floats(rows, "mxfp4", 32)
        blocks = packed.numpy().view(np.uint8).reshape(experts, n, k // 32, 16)
        stored[name + "_blocks"] = torch.from_numpy(blocks.copy())
        stored[name + "_scales"] = scales.reshape(experts, n, k // 32)
        dense[name] = values.reshape(experts, n, k).transpose(1, 2)
    return stored, dense


def split_experts(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """gpt-oss as mlx-lm stores it: experts [E, n, k], rows of gate and up apart."""
    split = {}
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".experts.")
        if kind in ("gate_up_proj", "gate_up_proj_bias"):
            rows = tensor.transpose(1, 2) if tensor.dim() == 3 else tensor
            end = "bias" if kind.endswith("_bias") else "weight"
            split[f"{stem}.experts.gate_proj.{end}"] = rows[:, ::2].contiguous()
            split[f"{stem}.experts.up_proj.{end}"] = rows[:, 1::2].contiguous()
        elif kind == "down_proj":
            split[f"{stem}.experts.down_proj.weight"] = tensor.transpose(1, 2).contiguous()
        elif kind == "down_proj_bias":
            split[f"{stem}.experts.down_proj.bias"] = tensor
        else:
            split[name] = tensor
    return split


def join_experts(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inverse of split_experts."""
    joined = dict(dense)
    for name in dense:
        if not name.endswith(".experts.down_proj.weight"):
            continue
        stem = name.removesuffix("down_proj.weight")
        for end, key in (("weight", "gate_up_proj"), ("bias", "gate_up_proj_bias")):
            pair = [dense[f"{stem}{part}_proj.{end}"] for part in ("gate", "up")]
            rows = torch.stack(pair, 2).flatten(1, 2)
            joined[stem + key] = rows.transpose(1, 2) if end == "weight" else rows
        joined[stem + "down_proj"] = dense[name].transpose(1, 2)
        joined[stem + "down_proj_bias"] = dense[stem + "down_proj.bias"]
    return joined




def oracle(base: pathlib.Path, dense: dict[str, torch.Tensor], dtype: torch.dtype):
    model = load(base, torch.float32)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in dense:
                buffer.copy_(dense[name])
        for name, parameter in model.named_parameters():
            if name in dense:
                parameter.copy_(dense[name])
            else:
                assert re.match(r"model\.(visual|vision|audio|embed_(vision|audio))", name), name
            parameter.data = parameter.data.to(dtype)
    return model if dtype != torch.float64 else model.double()


def write(variant: Quantized) -> str:
    base, folder = MODELS / variant.base, MODELS / variant.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tensors = load_file(base / "model.safetensors")
    tensors = {k: v for k, v in tensors.items() if not k.startswith(variant.dropped or ("-",))}
    config = json.loads((base / "config.json").read_text())
    tensors = to_mlx(tensors) if variant.hybrid else tensors
    tensors = split_experts(tensors) if variant.split else tensors
    tensors = split_latent(tensors, config) if variant.latent else tensors
    tensors = to_mlx_gemma(tensors) if variant.gemma else tensors
    to_stored = convert_openai if variant.openai else convert
    stored, dense = to_stored(variant, stack_experts(tensors) if variant.stacked else tensors)
    dense = from_mlx_gemma(dense) if variant.gemma else dense
    dense = fuse_experts(join_latent(from_mlx(dense) if variant.hybrid else dense))
    dense = join_experts(dense) if variant.split else dense
    save_file(stored, folder / "model.safetensors", metadata={"format": "mlx"})
    if variant.openai:
        config["quantization_config"] = {"quant_method": "mxfp4"}
    else:
        config["quantization"] = {"mode": "affine"} | variant.default | variant.layers
        config["quantization_config"] = config["quantization"]
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    config[key] = str(variant.dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(base / name, folder / name)
    model = oracle(base, dense, torch.float32)
    cases = [golden.case(variant.name, model, length) for length in golden.PROMPT_LENGTHS]
    rounding = {"float64": round(golden.difference(oracle(base, dense, torch.float64), cases), 7)}
    is_bfloat16 = variant.dtype == torch.bfloat16
    if is_bfloat16:
        half = oracle(base, dense, torch.bfloat16)
        rounding["bfloat16"] = round(golden.difference(half, cases), 4)
    head = {
        "checkpoint": variant.name,
        "family": config["model_type"],
        "config_keys": "old" if "torch_dtype" in config else "new",
        "weights_dtype": str(variant.dtype).removeprefix("torch."),
    }
    return golden.write(folder, head, rounding, cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these variants")
    names = parser.parse_args().names
    golden.set_up()
    for variant in VARIANTS:
        if not names or variant.name in names:
            print(f"{variant.name:22} {write(variant)}", flush=True)


if __name__ == "__main__":
    main()
