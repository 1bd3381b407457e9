#!/usr/bin/env python3
"""Writes the tiny checkpoints in GGUF of tests/parity/models and their golden outputs.

    make_gguf.py --llama-cpp DIR [--quantize PROGRAM] [--llama-server PROGRAM] [--out DIR] [NAME ...]

DIR is llama.cpp's source, whose converter makes the files (bench/peers/install.py unpacks the version
that this was written with); PROGRAM is its llama-quantize, for the quantised ones but those in NVFP4,
which the converter makes of a folder in modelopt's. What the outputs are compared with is transformers on the checkpoint that was converted, or, where a file is quantised, on
the values that the gguf package makes of it. llama-server gives the ids of texts by those that have a family's tokenizer
(gguf_text.py), beside those of transformers.
"""

import argparse
import json
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import gguf_text
import golden
import make_checkpoints
import make_folders
from variants_gguf import CONVERTER_NAMES, GGUF_VARIANTS, GgufVariant


def load_converter(source: pathlib.Path):
    """llama.cpp's package `conversion`, which works on any tokenizer: it knows them by their hash."""
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    logging.disable(logging.WARNING)
    import conversion
    import conversion.base

    # Some families have a class of their own, which adds tokens.
    transformers.AutoTokenizer.from_pretrained = transformers.PreTrainedTokenizerFast.from_pretrained
    return conversion


def convert(conversion, folder: pathlib.Path, one: GgufVariant, target: pathlib.Path) -> None:
    import gguf

    text_model = conversion.base.TextModel
    pre = gguf_text.STYLES[one.text].pre if one.text else "gpt-2"
    text_model.get_vocab_base_pre = lambda self, tokenizer: pre

    config = json.loads((folder / "config.json").read_text())
    architecture = config["architectures"][0]
    if architecture == "GraniteMoeHybridForCausalLM":  # the published word, which the converter knows
        config["layer_types"] = ["attention"] * len(config["layer_types"])
        (folder / "config.json").write_text(json.dumps(config))
    model_class = conversion.get_model_class(CONVERTER_NAMES.get(architecture, architecture))
    model_class.no_mtp = one.checkpoint.extra is None  # of the families that may have such a part
    kind = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16"}[one.outtype]
    with torch.inference_mode():
        # llama.cpp knows by its name that a model is Phi-3, whose tokens take the spaces behind them.
        name = one.name if one.text else "tiny"
        model = model_class(folder, getattr(gguf.LlamaFileType, kind), target, model_name=name)
        if not one.text:
            model.set_vocab = model._set_vocab_gpt2
        model.write()


def write_modelopt(folder: pathlib.Path, target: pathlib.Path, layers: tuple[str, ...]) -> None:
    """The checkpoint with these layers in modelopt's NVFP4."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    stored = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        if layer.endswith(layers):
            stored |= make_folders.store_nvfp4(layer, tensor.numpy(), divides=False, inputs=True)[0]
        else:
            stored[name] = tensor
    save_file(stored, target / "model.safetensors", {"format": "pt"})
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (target / "hf_quant_config.json").write_text(json.dumps(said))


def quantised_values(path: pathlib.Path) -> dict[str, np.ndarray]:
    """What is in other types than float32, which is as it was. Matrices in NVFP4 have a number each."""
    import gguf

    values = {}
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for tensor in tensors.values():
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            continue
        shape = [int(n) for n in reversed(tensor.shape)]
        floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values[tensor.name] = floats.astype(np.float32).reshape(shape)
        if tensor.tensor_type == gguf.GGMLQuantizationType.NVFP4:
            scales = tensors[tensor.name.replace(".weight", ".scale")].data
            values[tensor.name] *= scales.reshape(-1, *[1] * (len(shape) - 1)) if len(shape) > 2 else scales
    return values


def grouped_heads(name: str, value: np.ndarray, config: dict) -> np.ndarray:
    """Value heads that take turns, in the order of their key heads again."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    width = config["linear_value_head_dim"]
    if name.endswith("out_proj.weight"):
        return value.reshape(-1, heads // keys, keys, width).transpose(0, 2, 1, 3).reshape(value.shape)
    first = 2 * keys * config["linear_key_head_dim"] if "qkv" in name else 0  # rows of q and k
    turned = value[first:].reshape(heads // keys, keys, -1, value.shape[1]).transpose(1, 0, 2, 3)
    return np.concatenate([value[:first], turned.reshape(-1, value.shape[1])])


def halved_heads(value: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of heads in which neighbours rotate, in the order in which halves do."""
    pairs = value.reshape(-1, head_dim // 2, 2, value.shape[1])
    return pairs.swapaxes(1, 2).reshape(value.shape)


def put_back(folder: pathlib.Path, values: dict[str, np.ndarray], config: dict) -> None:
    """The values under the checkpoint's names, in its order."""
    import gguf
    from safetensors.torch import load_file, save_file

    archs = {"qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "deepseek_v2": "DEEPSEEK2", "qwen3_5_text": "QWEN35",
             "llama": "LLAMA", "gemma3_text": "GEMMA3", "phi3": "PHI3", "gpt_oss": "GPT_OSS"}
    arch = gguf.MODEL_ARCH[archs[config["model_type"]]]
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if ".experts." in name and name.endswith("gate_up_proj"):
            parts = [names.get_name(name.replace("gate_up_proj", part)) for part in ("gate_proj", "up_proj")]
            halves = [values[part + ".weight"] for part in parts]
            if config["model_type"] == "gpt_oss":  # transposed, with gates and ups in turn
                value = np.stack(halves, axis=2).reshape(len(halves[0]), -1, halves[0].shape[2]).transpose(0, 2, 1)
            else:
                value = np.concatenate(halves, axis=1)
        elif ".experts." in name and name.endswith("down_proj"):
            value = values[names.get_name(name) + ".weight"]
            value = value.transpose(0, 2, 1) if config["model_type"] == "gpt_oss" else value
        elif ".experts." in name and name.split(".experts.")[1][0].isdigit():
            before, after = name.split(".experts.")
            index, part = after.split(".", 1)
            value = values[names.get_name(f"{before}.experts.{part}", (".weight",))][int(index)]
        elif name.endswith("kv_b_proj.weight"):  # stored as two, the keys' part transposed
            keys, heads = (values[names.get_name(name.replace("kv_b", part), (".weight",))] for part in ("k_b", "v_b"))
            value = np.concatenate([keys.transpose(0, 2, 1), heads], axis=1).reshape(tensor.shape)
        else:
            found = names.get_name(name, (".weight", ".bias")) or ""
            value = values.get(found, values.get(found + ".weight"))
            if value is None:
                continue
            if ".linear_attn." in name:
                value = grouped_heads(name, value, config)
            if config["model_type"] == "llama" and ("q_proj" in name or "k_proj" in name):
                value = halved_heads(value, config["head_dim"])
        assert list(value.shape) == list(tensor.shape), name
        tensors[name] = torch.from_numpy(value.copy())
    save_file(tensors, path, {"format": "pt"})


def write(one: GgufVariant, out: pathlib.Path, conversion, quantize: str | None, llama_server: str | None) -> str:
    target = out / one.name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "checkpoint"
        make_checkpoints.write_checkpoint(one.checkpoint, folder)
        if one.text:
            gguf_text.write_files(one.text, folder)
        config = json.loads((folder / "config.json").read_text())
        converted = pathlib.Path(name) / "model.gguf"
        source = folder
        if one.nvfp4:
            source = pathlib.Path(name) / "modelopt"
            write_modelopt(folder, source, one.nvfp4)
        convert(conversion, source, one, converted)
        if one.quantize:
            *options, kind = one.quantize
            arguments = [quantize, *options, str(converted), str(target / "model.gguf"), kind]
            subprocess.run(arguments, check=True, capture_output=True)
            put_back(folder, quantised_values(target / "model.gguf"), config)
        else:
            (target / "model.gguf").write_bytes(converted.read_bytes())
        if one.nvfp4:
            put_back(folder, quantised_values(target / "model.gguf"), config)
        summary = make_checkpoints.write_golden(one.checkpoint, folder)
        if one.text:
            summary += "  " + gguf_text.write_golden(folder, target / "model.gguf", llama_server, target)
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
    parser.add_argument("--llama-server")
    parser.add_argument("--out", type=pathlib.Path, default=make_checkpoints.ROOT / "tests/parity/models")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    golden.set_up()
    conversion = load_converter(args.llama_cpp)
    for one in GGUF_VARIANTS:
        if args.names and one.name not in args.names:
            continue
        if one.quantize and not args.quantize:
            print(f"{one.name}: left out, it needs --quantize")
            continue
        if one.text and not args.llama_server:
            print(f"{one.name}: left out, it needs --llama-server")
            continue
        print(f"{one.name:24} {write(one, args.out, conversion, args.quantize, args.llama_server)}", flush=True)


if __name__ == "__main__":
    main()
