#!/usr/bin/env python3
"""Writes a GGUF file of a published model's exact shape with random blocks, to measure loading and speed where
llama-quantize is not at hand: of one type, mixed as llama-quantize's Q4_K_M mixes them, or with four types in a layer as
dynamic files have them (dynamic-q4_k: two thirds Q4_K, then Q6_K, IQ4_XS and Q5_K).

    make_random_gguf.py --shape NAME [--mix q4_k_m|q6_k|q8_0|dynamic-q4_k] [--layers N] --out FILE.gguf

--layers cuts the model's depth, for shapes that are too large for a machine (qwen3-30b-a3b, a mixture of 128 experts).
Needs numpy. The tokenizer knows bytes, and names that stand for the rest of the vocabulary; what such a model writes is
noise. Deterministic.
"""

import argparse
import struct

import numpy as np

SHAPES = {
    "qwen3-0.6b": {"hidden": 1024, "middle": 3072, "layers": 28, "heads": 16, "kv_heads": 8},
    "qwen3-4b": {"hidden": 2560, "middle": 9728, "layers": 36, "heads": 32, "kv_heads": 8},
    # "middle" is of an expert. The head is a matrix of its own.
    "qwen3-30b-a3b": {"hidden": 2048, "middle": 768, "layers": 48, "heads": 32, "kv_heads": 4, "experts": 128, "used": 8},
}
HEAD_DIM, VOCABULARY = 128, 151936
F32, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_XS = 0, 8, 12, 13, 14, 23
# Of a block: its weights, its bytes, where its float16 numbers are, and how large they are.
BLOCKS = {
    Q8_0: (32, 34, (0,), 1e-4),
    Q4_K: (256, 144, (0, 2), 1e-5),
    Q5_K: (256, 176, (0, 2), 1e-5),
    Q6_K: (256, 210, (208,), 1e-5),
    IQ4_XS: (256, 136, (0,), 1e-5),
}
# The middle code of types with minima, for whose blocks a random minimum would be one-sided.
MIDDLE = {Q4_K: 7.5, Q5_K: 15.5}
MIXES = ("q4_k_m", "q6_k", "q8_0", "dynamic-q4_k")
U32, FLOAT, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value) -> bytes:
    if kind == STRING:
        return string(key) + struct.pack("<I", STRING) + string(value)
    return string(key) + struct.pack("<I" + {U32: "I", FLOAT: "f", BOOL: "?"}[kind], kind, value)


def array(key: str, kind: int, values) -> bytes:
    data = b"".join(map(string, values)) if kind == STRING else np.array(values, np.int32).tobytes()
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + data


def byte_letters() -> list[str]:
    """What GPT-2's tokenizers write for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def metadata(shape: dict) -> list[bytes]:
    experts = shape.get("experts", 0)
    architecture = "qwen3moe" if experts else "qwen3"
    a, t = architecture + ".", "tokenizer.ggml."
    tokens = byte_letters() + [f"[PAD{i}]" for i in range(256, VOCABULARY - 1)] + ["<|im_end|>"]
    types = [1] * 256 + [5] * (VOCABULARY - 257) + [3]
    of_experts = [
        entry(a + "expert_count", U32, experts),
        entry(a + "expert_used_count", U32, shape.get("used", 0)),
        entry(a + "expert_feed_forward_length", U32, shape["middle"]),
    ]
    return [
        *(of_experts if experts else []),
        entry("general.architecture", STRING, architecture),
        entry("general.name", STRING, "random"),
        entry(a + "block_count", U32, shape["layers"]),
        entry(a + "context_length", U32, 40960),
        entry(a + "embedding_length", U32, shape["hidden"]),
        entry(a + "feed_forward_length", U32, shape["middle"]),
        entry(a + "attention.head_count", U32, shape["heads"]),
        entry(a + "attention.head_count_kv", U32, shape["kv_heads"]),
        entry(a + "attention.key_length", U32, HEAD_DIM),
        entry(a + "attention.value_length", U32, HEAD_DIM),
        entry(a + "attention.layer_norm_rms_epsilon", FLOAT, 1e-6),
        entry(a + "rope.freq_base", FLOAT, 1e6),
        entry(t + "model", STRING, "gpt2"),
        entry(t + "pre", STRING, "qwen2"),
        array(t + "tokens", STRING, tokens),
        array(t + "token_type", I32, types),
        array(t + "merges", STRING, []),
        entry(t + "eos_token_id", U32, VOCABULARY - 1),
        entry(t + "add_bos_token", BOOL, False),
    ]


def kind_of(mix: str, part: str, layer: int, layers: int) -> int:
    """The type of a matrix."""
    if mix in ("q6_k", "q8_0"):
        return {"q6_k": Q6_K, "q8_0": Q8_0}[mix]
    if part == "head":
        return Q6_K
    # As llama-quantize's use_more_bits().
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if mix == "dynamic-q4_k":
        others = {"attn_v": Q6_K, "attn_k": IQ4_XS if layer % 2 else Q4_K, "attn_output": Q4_K if layer % 3 else Q5_K}
        if part in others:
            return others[part]
    return Q6_K if more and part in ("attn_v", "ffn_down", "ffn_down_exps") else Q4_K


def tensors(shape: dict, mix: str):
    """Name, dims (the innermost first) and type of every tensor."""
    hidden, middle, layers = shape["hidden"], shape["middle"], shape["layers"]
    q, kv, experts = shape["heads"] * HEAD_DIM, shape["kv_heads"] * HEAD_DIM, shape.get("experts", 0)
    yield "token_embd.weight", (hidden, VOCABULARY), kind_of(mix, "token_embd" if experts else "head", 0, layers)
    if experts:
        yield "output.weight", (hidden, VOCABULARY), kind_of(mix, "head", 0, layers)
    yield "output_norm.weight", (hidden,), F32
    for i in range(layers):
        for norm, length in (("attn_norm", hidden), ("ffn_norm", hidden), ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM)):
            yield f"blk.{i}.{norm}.weight", (length,), F32
        matrices = {
            "attn_q": (hidden, q),
            "attn_k": (hidden, kv),
            "attn_v": (hidden, kv),
            "attn_output": (q, hidden),
        }
        end, of_all = ("_exps", (experts,)) if experts else ("", ())
        matrices |= {f"ffn_{part}{end}": (hidden, middle, *of_all) for part in ("gate", "up")}
        matrices[f"ffn_down{end}"] = (middle, hidden, *of_all)
        if experts:
            yield f"blk.{i}.ffn_gate_inp.weight", (hidden, experts), F32
        for part, dims in matrices.items():
            yield f"blk.{i}.{part}.weight", dims, kind_of(mix, part, i, layers)


def blocks(chance: np.random.Generator, kind: int, weights: int) -> np.ndarray:
    of_block, size, numbers, least = BLOCKS[kind]
    count = weights // of_block
    data = chance.integers(0, 256, (count, size), np.uint8)
    for at in numbers:
        scale = chance.uniform(least, 3 * least, count).astype(np.float16)
        data[:, at : at + 2] = scale.view(np.uint8).reshape(count, 2)
    if kind in MIDDLE:  # as large as the scale's middle code, or all products point one way
        scale = data[:, 0:2].view(np.float16) * np.float16(MIDDLE[kind])
        data[:, 2:4] = scale.view(np.uint8)
        data[:, 8:12] = data[:, 4:8]  # six bits of each minimum: those of its scale
        data[:, 12:16] = data[:, 12:16] % 16 * 17
    return data


def write(path: str, shape: dict, mix: str) -> None:
    chance = np.random.default_rng(7)
    values, all_tensors = metadata(shape), list(tensors(shape, mix))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(values)) + b"".join(values)
    offset, sizes = 0, []
    for name, dims, kind in all_tensors:
        count = int(np.prod(dims))
        sizes.append(4 * count if kind == F32 else count // BLOCKS[kind][0] * BLOCKS[kind][1])
        header += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += -(-sizes[-1] // 32) * 32
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for (_, dims, kind), size in zip(all_tensors, sizes):
            count = int(np.prod(dims))
            if kind == F32:  # norms are ones; a router must choose
                data = np.ones(count, np.float32) if len(dims) == 1 else chance.standard_normal(count, np.float32) / 45
            else:
                data = blocks(chance, kind, count)
            file.write(data.tobytes() + bytes(-size % 32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--mix", choices=MIXES, default="q4_k_m")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    write(args.out, shape | {"layers": args.layers or shape["layers"]}, args.mix)


if __name__ == "__main__":
    main()
