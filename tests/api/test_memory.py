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


def write_checkpoint(folder: pathlib.Path, words_per_row: int, quantisation: dict) -> int:
    """A model that is nearly all head. Its weights are zeros in a file with holes. Returns their bytes."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "num_hidden_layers": 1, "num_attention_heads": 8, "intermediate_size": HIDDEN, "hidden_act": "silu",
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    }
    groups = [VOCAB, HIDDEN // 64]
    layer = "model.layers.0."
    shapes = {name: ("BF16", [HIDDEN])
              for name in ("model.norm.weight", layer + "input_layernorm.weight",
                           layer + "post_attention_layernorm.weight")}
    for part in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down"):
        shapes[f"{layer}{part}_proj.weight"] = ("BF16", [HIDDEN, HIDDEN])
    if quantisation:
        shapes["model.embed_tokens.weight"] = ("U32", [VOCAB, words_per_row])
        shapes["model.embed_tokens.scales"] = shapes["model.embed_tokens.biases"] = ("BF16", groups)
    else:
        shapes["model.embed_tokens.weight"] = ("BF16", [VOCAB, HIDDEN])
    header, at = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = {"BF16": 2, "U32": 4}[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(config | quantisation))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "models/quire-demo" / name, folder)
    return at


@pytest.mark.parametrize("bits", [16, 8])
def test_the_head_is_not_in_memory_twice(tmp_path, bits):
    quantisation = {} if bits == 16 else {"quantization": {"group_size": 64, "bits": bits}}
    stored = write_checkpoint(tmp_path, HIDDEN * bits // 32, quantisation)
    with start_server("--kv-cache-memory", "1MiB", model=tmp_path) as server:
        log = "".join(server.log)
    peak = int(re.search(r"at most (\d+) MiB in memory", log)[1])
    weights = float(re.search(r"weights (\S+) MiB", log)[1])
    assert weights == pytest.approx(stored / MIB, rel=0.02)
    assert peak > weights
    # The program, its libraries and the tokenizer are some 40 MiB.
    assert peak < 1.25 * weights + 48, log
