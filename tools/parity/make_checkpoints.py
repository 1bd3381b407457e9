#!/usr/bin/env python3
"""Writes the tiny checkpoints of tests/parity/models and their golden outputs.

    make_checkpoints.py [--out DIR] [NAME ...]

Deterministic: the same package versions write the same bytes.
"""

import argparse
import json
import os
import pathlib
import shutil
import zlib

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is local; never ask the hub

import numpy as np
import torch
import transformers

from safetensors.torch import load_file, save_file

import golden
import tiny_tokenizer
from variants import VARIANTS, Variant, old_keys
from variants_frame import FRAME_VARIANTS
from variants_gemma4 import GEMMA4_VARIANTS, global_keys
from variants_mla import MLA_VARIANTS
from variants_moe import MOE_VARIANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def random_weight(
    base: str, name: str, shape: torch.Size, zero_centred: bool = False
) -> torch.Tensor:
    """Drawn from a generator of its own, so that adding a tensor changes no other one."""
    rng = np.random.default_rng([zlib.crc32(base.encode()), zlib.crc32(name.encode())])
    # Gated delta nets: from heads that remember to heads that forget at once.
    if name.endswith("A_log"):
        return torch.from_numpy(rng.uniform(np.log(0.02), np.log(1.0), shape).astype(np.float32))
    if name.endswith("conv1d.weight"):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return torch.from_numpy(rng.uniform(0.6, 1.5, shape).astype(np.float32))
    if base.startswith("gemma4") and name.endswith(("q_norm.weight", "k_norm.weight")):
        return torch.from_numpy(rng.uniform(0.4, 0.9, shape).astype(np.float32))  # scores times 1
    # Gemma multiplies embeddings by 8 here: parts must add more than that, or a tied head repeats
    # the last token for ever.
    if base.startswith("gemma") and "layernorm" in name and ".post_" in name:
        least, most = (3.0, 4.6) if base.startswith("gemma4") else (1.5, 2.6)
        return torch.from_numpy(rng.uniform(least, most, shape).astype(np.float32))
    if base.startswith("gemma") and "embed_tokens" in name:
        return torch.from_numpy((0.2 * rng.standard_normal(shape)).astype(np.float32))
    # Gemma's first models have no norm behind a part.
    if base.startswith("gemma-") and name.endswith(("o_proj.weight", "down_proj.weight")):
        return torch.from_numpy((0.8 * rng.standard_normal(shape)).astype(np.float32))
    if zero_centred and "norm" in name and "linear_attn.norm" not in name:
        return torch.from_numpy(rng.uniform(-0.5, 0.6, shape).astype(np.float32))
    if "norm" in name and not name.endswith("bias"):
        return torch.from_numpy(rng.uniform(0.5, 1.6, shape).astype(np.float32))
    # The scales give logits a standard deviation of two to three and attention scores of about
    # two: peaked enough for clear argmaxes, flat enough that every position still counts.
    if name.endswith("e_score_correction_bias"):
        std = 0.15
    elif name.endswith("bias"):
        std = 0.3
    elif name.endswith("sinks"):
        std = 1.5
    elif "embed" in name or "lm_head" in name:
        std = 0.3
    elif "q_proj" in name or "k_proj" in name or "qkv_proj" in name:
        std = 0.17
    elif "q_b_proj" in name:
        std = 0.4  # of what is already normed
    elif "kv_b_proj" in name:
        std = 0.2
    elif name.endswith(("mlp.gate.weight", "router.weight", "router.proj.weight", "gate.wg.weight")):
        std = 0.6  # few close calls among experts: rounding must not send tokens elsewhere
    else:
        std = 0.13
    return torch.from_numpy((std * rng.standard_normal(shape)).astype(np.float32))


def steadied(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Corrections choose the experts, and sigmoids do not saturate, so weights still differ."""
    factors = {"mlp.gate.weight": 0.4, "e_score_correction_bias": 20.0}
    return tensor * next((f for end, f in factors.items() if name.endswith(end)), 1.0)


def auto_class(family: str):
    """A language model inside a wrapper is the wrapper's."""
    wrapped = family in ("qwen3_5", "qwen3_5_moe", "gemma3", "gemma4", "mistral3", "llama4")
    return transformers.AutoModelForImageTextToText if wrapped else transformers.AutoModelForCausalLM


def text_config(config: dict) -> dict:
    return config.get("text_config", config)


def add_tensors(variant: Variant, path: pathlib.Path) -> None:
    tensors = load_file(path)
    for name, shape in variant.extra.items():
        tensors[name] = random_weight(variant.name, name, shape).to(getattr(torch, variant.dtype))
    save_file(tensors, path, {"format": "pt"})


def build(variant: Variant, **changes) -> transformers.PreTrainedModel:
    ids = tiny_tokenizer.special_ids()
    config = transformers.AutoConfig.for_model(
        variant.family,
        bos_token_id=ids["<|bos|>"],
        eos_token_id=ids["<|eos|>"],
        pad_token_id=ids["<|pad|>"],
        **json.loads(json.dumps(variant.config | changes)),
    )
    model = auto_class(variant.family).from_config(
        config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    tied = config.tie_word_embeddings
    base = variant.name.removesuffix("-bf16")
    zero_centred = variant.family.startswith(("qwen3_5", "qwen3_next", "gemma2", "gemma3")) or variant.family == "gemma"
    finish = steadied if variant.steady else lambda name, tensor: tensor
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "layer_scalar")):
                buffer.copy_(finish(name, random_weight(base, name, buffer.shape)))
            if name.endswith("layer_scalar"):
                buffer.data = buffer.data.to(getattr(torch, variant.dtype))
        for name, parameter in model.named_parameters():
            assert not (tied and name == "lm_head.weight")
            weight = random_weight(base, name, parameter.shape, zero_centred)
            parameter.copy_(finish(name, weight))
            # Parameters only: Module.to would round the rotary tables as well.
            parameter.data = parameter.data.to(getattr(torch, variant.dtype))
    return model.eval()


def write_checkpoint(variant: Variant, folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = build(variant)
    model.save_pretrained(folder, max_shard_size=variant.shard_size)
    if variant.extra:
        add_tensors(variant, folder / "model.safetensors")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key in ("transformers_version", "_name_or_path"):
        config.pop(key, None)
    if variant.keys == "old":
        config = old_keys(config)
    elif variant.keys == "global":
        config = global_keys(config, variant)
    assert ("rope_parameters" in text_config(config)) == (variant.keys != "old")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)
    tiny_tokenizer.write(folder)
    probe = golden.draw_prompt(variant.name, 150, 0)
    same = golden.log_probs(model, probe) == golden.log_probs(load(folder, model.dtype), probe)
    assert bool(same.all()), f"{variant.name}: config.json lost something"


def number_experts(path: pathlib.Path) -> None:
    """Stacks of experts as a tensor each, with rows that are outputs, as llm-compressor saves them. Those of
    gpt-oss have gates and ups in turn, Granite's are outputs by inputs already."""
    tensors, numbered = load_file(path), {}
    for name, tensor in tensors.items():
        before, stacked, part = name.rpartition(".experts.")
        if name.endswith("_linear.weight") and tensor.dim() == 3:
            stem = name.removesuffix(".weight")
            numbered |= {f"{stem}.{i}.weight": expert.clone() for i, expert in enumerate(tensor)}
            continue
        if not stacked:
            numbered[name] = tensor
            continue
        takes_turns = part.startswith("gate_up") and f"{before}.experts.gate_up_proj_bias" in tensors
        end = "bias" if part.endswith("_bias") else "weight"
        for i, expert in enumerate(tensor):
            rows = expert if end == "bias" else expert.T
            pieces = [rows]
            if part.startswith("gate_up"):
                pieces = [rows[::2], rows[1::2]] if takes_turns else rows.chunk(2)
            names = ("gate", "up") if len(pieces) == 2 else ("down",)
            for kind, piece in zip(names, pieces):
                numbered[f"{before}.experts.{i}.{kind}_proj.{end}"] = piece.clone().contiguous()
    save_file(numbered, path, {"format": "pt"})
    path.chmod(0o644)


def load(folder: pathlib.Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    family = json.loads((folder / "config.json").read_text())["model_type"]
    return auto_class(family).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    ).eval()


def is_longrope(variant: Variant) -> bool:
    return text_config(variant.config)["rope_parameters"].get("rope_type") == "longrope"


def long_only(variant: Variant) -> transformers.PreTrainedModel:
    """The model on its long factors whatever the length (and, if it has them, the long mscale)."""
    rope = variant.config["rope_parameters"]
    changes = {key.replace("long", "short"): rope[key] for key in rope if key.startswith("long_")}
    return build(variant, rope_parameters=rope | changes).to(torch.float32)


def longrope_cases(variant: Variant, model: transformers.PreTrainedModel) -> list[dict]:
    """The short prompts twice, also on the long factors, for engines that fix the set at load.

    transformers picks the set by the length so far (its Phi-3.5-MoE picks only the mscale and keeps
    the short factors, unlike Microsoft's own code). An engine with a context limit above
    original_max_position_embeddings may use the long factors from the first token on.
    """
    long = long_only(variant)
    limit = variant.config["original_max_position_embeddings"]
    found = []
    for length in golden.PROMPT_LENGTHS:
        assert length > limit or length + golden.NEW_TOKENS <= limit, "the set would change midway"
        if length <= limit:
            found.append(golden.case(variant.name, model, length) | {"longrope": "short"})
    for length in golden.PROMPT_LENGTHS:
        found.append(golden.case(variant.name, long, length) | {"longrope": "long"})
    return found


def write_golden(variant: Variant, folder: pathlib.Path) -> str:
    base = variant.name.removesuffix("-bf16")
    model = load(folder, torch.float32)
    if is_longrope(variant):
        cases = longrope_cases(variant, model)
        long = [one for one in cases if one["longrope"] == "long"]
        short = [one for one in cases if one["longrope"] == "short"]
        exact = golden.difference(long_only(variant).to(torch.float64), long)
    else:
        cases = short = [golden.case(base, model, length) for length in golden.PROMPT_LENGTHS]
        exact = 0.0
    exact = max(exact, golden.difference(load(folder, torch.float64), short))
    rounding = {"float64": round(exact, 7)}
    if variant.dtype == "bfloat16":
        half = golden.difference(load(folder, torch.bfloat16), cases)
        rounding["bfloat16"] = round(half, 4)
    # Stay far from the margin, and make sure that a forgotten feature would be seen.
    assert exact < golden.MIN_MARGIN / 20, f"{variant.name}: ill-conditioned, {exact}"
    effect = None
    if variant.without is not None:
        ablated = build(variant, **variant.without).to(torch.float32)
        effect = round(golden.difference(ablated, cases), 4)
        assert effect > 0.1, f"{variant.name}: the feature hardly matters, {effect}"
    head = {
        "checkpoint": variant.name,
        "family": variant.family,
        "config_keys": variant.keys,
        "weights_dtype": variant.dtype,
    }
    return golden.write(folder, head, rounding, cases, effect) + f"  feature effect {effect}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/parity/models")
    parser.add_argument("names", nargs="*", help="only these variants")
    args = parser.parse_args()
    golden.set_up()
    for variant in VARIANTS + GEMMA4_VARIANTS + MOE_VARIANTS + FRAME_VARIANTS + MLA_VARIANTS:
        if args.names and variant.name not in args.names:
            continue
        folder = args.out / variant.name
        write_checkpoint(variant, folder)
        print(f"{variant.name:22} {write_golden(variant, folder)}", flush=True)
        if variant.numbered:
            number_experts(folder / "model.safetensors")


if __name__ == "__main__":
    main()
