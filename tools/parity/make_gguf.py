#!/usr/bin/env python3
"""Writes the tiny checkpoints in GGUF of tests/parity/models and their golden outputs.

    make_gguf.py --llama-cpp DIR [--quantize PROGRAM] [--out DIR] [NAME ...]

DIR is llama.cpp's source, whose converter makes the files (bench/peers/install.py unpacks the version
that this was written with); PROGRAM is its llama-quantize, for the quantised ones. What the outputs are
compared with is transformers on the checkpoint that was converted, or, where a file is quantised, on
the values that the gguf package makes of it.
"""

import argparse
import dataclasses
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import make_checkpoints
from variants import GEMMA3, GLM, GRANITE, LLAMA3, OLMO3, PHI3_LONGROPE, PLAIN_ROPE, QWEN2, QWEN3, QWEN3_MOE, SMOLLM3, Variant
from variants_mla import DEEPSEEK_V2_LITE
from variants_moe import GPT_OSS


@dataclasses.dataclass(frozen=True)
class GgufVariant:
    checkpoint: Variant
    outtype: str  # "f32", "f16", "bf16"
    quantize: tuple[str, ...] = ()  # arguments of llama-quantize

    @property
    def name(self) -> str:
        return self.checkpoint.name


def variant(name: str, family: str, config: dict, outtype: str, *quantize: str, **more) -> GgufVariant:
    dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[outtype]
    checkpoint = Variant(name, family, config, "new", "float32" if quantize else dtype, **more)
    return GgufVariant(checkpoint, outtype, quantize)


# What a file does not say is as llama.cpp takes it for granted: one window in two layers or five in
# six, a scale of scores that follows from the head's width, which layers rotate, how a gate is clamped.
SIX = ["sliding_attention"] * 5 + ["full_attention"]
GGUF_GEMMA3 = GEMMA3 | {
    "num_hidden_layers": 6,
    "intermediate_size": 32,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window_pattern": 6,
    "layer_types": SIX,
    "tie_word_embeddings": True,
}
GGUF_GPT_OSS = GPT_OSS | {
    "num_hidden_layers": 2,
    "num_local_experts": 4,
    "layer_types": ["sliding_attention", "full_attention"],
    "swiglu_limit": 7.0,
    "swiglu_alpha": 1.702,
}
GGUF_SMOLLM3 = SMOLLM3 | {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
GGUF_QWEN3_MOE = QWEN3_MOE | {"num_hidden_layers": 1, "mlp_only_layers": []}
# Rows of 256, which K-quants need.
WIDE = QWEN3 | {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
# One dense layer, whose matrices have rows of whole blocks.
GGUF_DEEPSEEK_V2 = DEEPSEEK_V2_LITE | {
    "num_hidden_layers": 1,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "rope_parameters": PLAIN_ROPE,
}

VARIANTS = [
    variant("llama3-gguf-bf16", "llama", LLAMA3, "bf16"),
    variant("qwen2-gguf-f16", "qwen2", QWEN2, "f16"),
    variant("qwen3-gguf", "qwen3", QWEN3 | {"num_hidden_layers": 1}, "f32"),
    variant("gemma3-gguf-bf16", "gemma3_text", GGUF_GEMMA3, "bf16"),
    variant("phi3-longrope-gguf-bf16", "phi3", PHI3_LONGROPE, "bf16"),
    variant("gpt-oss-gguf-bf16", "gpt_oss", GGUF_GPT_OSS, "bf16"),
    variant("smollm3-gguf-bf16", "smollm3", GGUF_SMOLLM3, "bf16"),
    variant("granite-gguf-bf16", "granite", GRANITE, "bf16"),
    variant("glm4-gguf-bf16", "glm4", GLM, "bf16"),
    variant("olmo3-gguf-bf16", "olmo3", OLMO3, "bf16"),
    variant("qwen3-moe-gguf-bf16", "qwen3_moe", GGUF_QWEN3_MOE, "bf16"),
    variant("qwen3-gguf-q8", "qwen3", QWEN3, "f32", "Q8_0"),
    variant("qwen3-moe-gguf-q5", "qwen3_moe", GGUF_QWEN3_MOE, "f32", "--tensor-type", "attn_k=q4_0", "--tensor-type",
            "ffn_up_exps=q5_1", "--tensor-type", "attn_v=q4_1", "Q5_0"),
    variant("qwen3-gguf-k", "qwen3", WIDE, "f32", "--tensor-type", "attn_k=q5_k", "--tensor-type", "ffn_up=q3_k",
            "--tensor-type", "ffn_down=q2_k", "--pure", "Q4_K"),
    variant("deepseek-v2-gguf-q8", "deepseek_v2", GGUF_DEEPSEEK_V2, "f32", "Q8_0"),
]


def load_converter(source: pathlib.Path):
    """llama.cpp's package `conversion`, which works on any tokenizer: it knows them by their hash."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    logging.disable(logging.WARNING)
    import conversion
    import conversion.base

    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    return conversion


def convert(conversion, folder: pathlib.Path, outtype: str, target: pathlib.Path) -> None:
    import gguf

    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    model_class = conversion.get_model_class(architecture)
    model_class.set_vocab = conversion.base.TextModel._set_vocab_gpt2
    kind = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16"}[outtype]
    with torch.inference_mode():
        model_class(folder, getattr(gguf.LlamaFileType, kind), target, model_name="tiny").write()


def quantised_values(path: pathlib.Path) -> dict[str, np.ndarray]:
    import gguf

    values = {}
    for tensor in gguf.GGUFReader(path).tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values[tensor.name] = floats.astype(np.float32).reshape(shape)
    return values


def put_back(folder: pathlib.Path, values: dict[str, np.ndarray], config: dict) -> None:
    """The values under the checkpoint's names. No family here has its rows in another order."""
    import gguf
    from safetensors.torch import load_file, save_file

    archs = {"qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "deepseek_v2": "DEEPSEEK2"}
    arch = gguf.MODEL_ARCH[archs[config["model_type"]]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if ".experts." in name and name.endswith("gate_up_proj"):
            parts = [names.get_name(name.replace("gate_up_proj", part)) for part in ("gate_proj", "up_proj")]
            value = np.concatenate([values[part + ".weight"] for part in parts], axis=1)
        elif ".experts." in name and name.split(".experts.")[1][0].isdigit():
            before, after = name.split(".experts.")
            index, part = after.split(".", 1)
            value = values[names.get_name(f"{before}.experts.{part}", (".weight",))][int(index)]
        elif name.endswith("kv_b_proj.weight"):  # stored as two, the keys' part transposed
            keys, heads = (values[names.get_name(name.replace("kv_b", part), (".weight",))] for part in ("k_b", "v_b"))
            value = np.concatenate([keys.transpose(0, 2, 1), heads], axis=1).reshape(tensor.shape)
        else:
            found = names.get_name(name, (".weight", ".bias"))
            value = values[found if found in values else found + ".weight"]
        assert list(value.shape) == list(tensor.shape), name
        tensors[name] = torch.from_numpy(value.copy())
    save_file(tensors, path, {"format": "pt"})


def write(one: GgufVariant, out: pathlib.Path, conversion, quantize: str | None) -> str:
    target = out / one.name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "checkpoint"
        make_checkpoints.write_checkpoint(one.checkpoint, folder)
        config = json.loads((folder / "config.json").read_text())
        converted = pathlib.Path(name) / "model.gguf"
        convert(conversion, folder, one.outtype, converted)
        if one.quantize:
            *options, kind = one.quantize
            arguments = [quantize, *options, str(converted), str(target / "model.gguf"), kind]
            subprocess.run(arguments, check=True, capture_output=True)
            put_back(folder, quantised_values(target / "model.gguf"), config)
        else:
            (target / "model.gguf").write_bytes(converted.read_bytes())
        summary = make_checkpoints.write_golden(one.checkpoint, folder)
        # Arithmetic in bfloat16 is compared on folders; here a format is.
        golden = (folder / "golden.json").read_text()
        dtype = f'"weights_dtype":"{one.checkpoint.dtype}"'
        assert dtype in golden
        (target / "golden.json").write_text(golden.replace(dtype, '"weights_dtype":"gguf"'))
    size = (target / "model.gguf").stat().st_size
    return f"{size // 1024} KiB  {summary}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--quantize")
    parser.add_argument("--out", type=pathlib.Path, default=make_checkpoints.ROOT / "tests/parity/models")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    conversion = load_converter(args.llama_cpp)
    for one in VARIANTS:
        if args.names and one.name not in args.names:
            continue
        if one.quantize and not args.quantize:
            print(f"{one.name}: left out, it needs --quantize")
            continue
        print(f"{one.name:24} {write(one, args.out, conversion, args.quantize)}", flush=True)


if __name__ == "__main__":
    main()
