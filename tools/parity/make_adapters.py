#!/usr/bin/env python3
"""Writes tiny LoRA adapters for some of the checkpoints (tests/parity/adapters/CHECKPOINT/NAME), as PEFT saves them,
with the golden outputs of PEFT on the checkpoint's weights in float32.

    make_adapters.py [CHECKPOINT ...]

Deterministic: the same package versions write the same bytes.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import zlib

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

import golden
import make_quantized
from make_checkpoints import ROOT, build, load
from variants_gguf import GGUF_VARIANTS

MODELS, ADAPTERS = ROOT / "tests/parity/models", ROOT / "tests/parity/adapters"
# Fewer than of a checkpoint: the base is compared already.
PROMPT_LENGTHS = [1, 17, 80]
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
DENSE = ATTENTION + ("gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True)
class Adapter:
    checkpoint: str
    name: str
    targets: tuple[str, ...]
    rank: int = 2
    alpha: float = 4
    rslora: bool = False


TABLE = [
    Adapter("qwen3", "all", DENSE, rank=3, alpha=7),
    Adapter("qwen3", "some", ("v_proj", "down_proj"), alpha=3, rslora=True),
    # Neighbours that rotate, gate and up in one module, norms behind parts.
    Adapter("glm4", "all", ATTENTION + ("gate_up_proj", "down_proj")),
    Adapter("phi3", "all", ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")),
    Adapter("llama-linear-bias", "all", DENSE),
    # A layer norm, which linear() does not have, and parallel parts.
    Adapter("cohere", "all", DENSE),
    Adapter("arcee", "all", ATTENTION + ("up_proj", "down_proj")),
    Adapter("qwen2-moe", "all", ATTENTION + ("shared_expert.gate_proj", "shared_expert.down_proj")),
    Adapter("qwen35", "all", DENSE + ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")),
    Adapter("qwen3-next", "all", ATTENTION + ("in_proj_qkvz", "in_proj_ba", "out_proj")),
    Adapter("deepseek-v2", "all", ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")),
    # Weights of 4 and 8 bits in one fused matrix; rows in another order in the file.
    Adapter("qwen3-4bit", "all", DENSE),
    Adapter("llama3-gguf-bf16", "all", DENSE),
]


def base_model(name: str) -> transformers.PreTrainedModel:
    """The checkpoint's weights, whatever their format, in float32."""
    for variant in make_quantized.VARIANTS:
        if variant.name == name:
            base = MODELS / variant.base
            _, dense = make_quantized.convert(variant, load_file(base / "model.safetensors"))
            return make_quantized.oracle(base, dense, torch.float32)
    for variant in GGUF_VARIANTS:
        if variant.name == name:
            return build(variant.checkpoint).to(torch.float32)
    return load(MODELS / name, torch.float32)


def fill(adapter: Adapter, model: PeftModel) -> None:
    """Random matrices, each from a generator of its own, that change the layer by a third or so."""
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            continue
        seed = [zlib.crc32(f"{adapter.checkpoint}/{adapter.name}".encode()), zlib.crc32(name.encode())]
        std = 0.15 if "lora_A" in name else 0.12
        values = std * np.random.default_rng(seed).standard_normal(parameter.shape)
        parameter.data = torch.from_numpy(values.astype(np.float32))


def write(adapter: Adapter) -> str:
    folder = ADAPTERS / adapter.checkpoint / adapter.name
    shutil.rmtree(folder, ignore_errors=True)
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        use_rslora=adapter.rslora,
        target_modules=list(adapter.targets),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base_model(adapter.checkpoint), config)
    fill(adapter, model)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    stored = json.loads(path.read_text()) | {"base_model_name_or_path": adapter.checkpoint}
    stored["target_modules"] = sorted(stored["target_modules"])
    path.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    # What the folder holds, loaded anew, is what answers.
    model = PeftModel.from_pretrained(base_model(adapter.checkpoint), folder).eval()
    name = f"{adapter.checkpoint}/{adapter.name}"
    cases = [golden.case(name, model, length) for length in PROMPT_LENGTHS]
    exact = golden.difference(model.double(), cases)
    assert exact < golden.MIN_MARGIN / 20, f"{name}: ill-conditioned, {exact}"
    effect = golden.difference(base_model(adapter.checkpoint), cases)
    assert effect > 0.1, f"{name}: the adapter hardly matters, {effect}"
    head = {
        "checkpoint": adapter.checkpoint,
        "family": model.config.model_type,
        "config_keys": "new",
        "weights_dtype": "float32",
    }
    return golden.write(folder, head, {"float64": round(exact, 7)}, cases, round(effect, 4)) + f"  effect {effect:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only those of these checkpoints")
    names = parser.parse_args().names
    golden.set_up()
    for adapter in TABLE:
        if not names or adapter.checkpoint in names:
            print(f"{adapter.checkpoint + '/' + adapter.name:24} {write(adapter)}", flush=True)


if __name__ == "__main__":
    main()
