"""What loading a model costs in memory: weights are never there twice, not even one large matrix."""
import json
import os
import pathlib
import re
import shutil
import struct

import pytest

from conftest import ROOT, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")

HIDDEN, VOCAB, MIB = 512, 200_000, 1 << 20
PROGRAM = 48  # MiB: the program, its libraries and the tokenizer take some 40


def write_zeros(folder: pathlib.Path, config: dict, shapes: dict) -> int:
    """A model whose weights are zeros in a file with holes. Returns their bytes."""
    header, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = {"F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I32": 4, "U32": 4}[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "models/quire-demo" / name, folder)
    return at


def llama(hidden: int, intermediate: int, vocab: int, layers: int) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "vocab_size": vocab,
        "num_hidden_layers": layers, "num_attention_heads": 8, "intermediate_size": intermediate, "hidden_act": "silu",
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    }


def matrices(config: dict) -> dict:
    """Names of the layers' matrices, and their outputs and columns."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    parts = {f"self_attn.{x}_proj": (hidden, hidden) for x in "qkvo"}
    parts |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    return {f"model.layers.{i}.{name}": shape for i in range(config["num_hidden_layers"]) for name, shape in parts.items()}


def norms(config: dict) -> dict:
    names = ["model.norm"]
    for i in range(config["num_hidden_layers"]):
        names += [f"model.layers.{i}.input_layernorm", f"model.layers.{i}.post_attention_layernorm"]
    return {name + ".weight": ("BF16", [config["hidden_size"]]) for name in names}


def write_checkpoint(folder: pathlib.Path, words_per_row: int, quantisation: dict) -> int:
    """A model that is nearly all head."""
    config = llama(HIDDEN, HIDDEN, VOCAB, 1)
    shapes = norms(config) | {name + ".weight": ("BF16", list(shape)) for name, shape in matrices(config).items()}
    if quantisation:
        groups = [VOCAB, HIDDEN // 64]
        shapes["model.embed_tokens.weight"] = ("U32", [VOCAB, words_per_row])
        shapes["model.embed_tokens.scales"] = shapes["model.embed_tokens.biases"] = ("BF16", groups)
    else:
        shapes["model.embed_tokens.weight"] = ("BF16", [VOCAB, HIDDEN])
    return write_zeros(folder, config | quantisation, shapes)


# Of folders that were made for GPUs: what the config says, and a layer's tensors of n outputs and k columns.
IN_GROUPS = {"bits": 4, "group_size": 128}
PACKED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
FOLDERS = {
    "awq": (IN_GROUPS | {"quant_method": "awq", "version": "gemm"}, lambda n, k: {
        "qweight": ("I32", [k, n // 8]), "qzeros": ("I32", [k // 128, n // 8]), "scales": ("F16", [k // 128, n])}),
    "gptq": (IN_GROUPS | {"quant_method": "gptq"}, lambda n, k: {
        "qweight": ("I32", [k // 8, n]), "qzeros": ("I32", [k // 128, n // 8]), "scales": ("F16", [k // 128, n])}),
    "compressed-tensors": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized",
         "config_groups": {"group_0": {"targets": ["Linear"], "weights": PACKED}}},
        lambda n, k: {"weight_packed": ("I32", [n, k // 8]), "weight_scale": ("BF16", [n, k // 128])}),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda n, k: {
        "weight": ("F8_E4M3", [n, k]), "weight_scale_inv": ("F32", [n // 128, k // 128])}),
}


def loaded(folder: pathlib.Path) -> tuple[int, float, str]:
    """The process's peak and the weights, in MiB, and all that it said."""
    with start_server("--kv-cache-memory", "1MiB", model=folder) as server:
        log = "".join(server.log)
    return int(re.search(r"at most (\d+) MiB in memory", log)[1]), float(re.search(r"weights (\S+) MiB", log)[1]), log


@pytest.mark.parametrize("bits", [16, 8])
def test_the_head_is_not_in_memory_twice(tmp_path, bits):
    quantisation = {} if bits == 16 else {"quantization": {"group_size": 64, "bits": bits}}
    stored = write_checkpoint(tmp_path, HIDDEN * bits // 32, quantisation)
    peak, weights, log = loaded(tmp_path)
    assert weights == pytest.approx(stored / MIB, rel=0.02)
    assert peak > weights
    assert peak < 1.25 * weights + PROGRAM, log


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_take_little_more_than_their_packed_weights(tmp_path, name):
    quantisation, tensors = FOLDERS[name]
    config = llama(1024, 4096, 8192, 16)
    shapes = norms(config) | {"model.embed_tokens.weight": ("BF16", [8192, 1024])}
    for layer, (n, k) in matrices(config).items():
        shapes |= {f"{layer}.{part}": stored for part, stored in tensors(n, k).items()}
    stored = write_zeros(tmp_path, config | {"quantization_config": quantisation}, shapes)
    peak, weights, log = loaded(tmp_path)
    assert weights == pytest.approx(stored / MIB, rel=0.05), log
    assert peak > weights
    assert peak < 1.1 * weights + PROGRAM, log
