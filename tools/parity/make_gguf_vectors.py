#!/usr/bin/env python3
"""Writes src/ops/linear/gguf/gguf_vectors.h: blocks of GGUF's formats and what the `gguf` package dequantises them to.

    make_gguf_vectors.py [--out FILE]

Needs gguf and numpy of requirements.txt. Codes and small scales are random bytes; float16 scales are random, too, of
both signs and as small as denormals. Deterministic.
"""
import argparse
import pathlib
import textwrap

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "src/ops/linear/gguf/gguf_vectors.h"

# Type, and where its float16 scales begin in a block.
FORMATS = [("Q4_0", [0]), ("Q4_1", [0, 2]), ("Q5_0", [0]), ("Q5_1", [0, 2]), ("Q8_0", [0]),
           ("Q2_K", [80, 82]), ("Q3_K", [108]), ("Q4_K", [0, 2]), ("Q5_K", [0, 2]), ("Q6_K", [208]),
           ("IQ4_NL", [0]), ("IQ4_XS", [0]), ("MXFP4", []), ("NVFP4", [])]
SCALES = [0.0123, -3.7, 1.3e-6]  # of one block after the other


def blocks_of(name, halves):
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    rng = np.random.default_rng([ord(c) for c in name])
    count = 3 if weights < 256 else 1
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i in range(count):
        for at in halves:
            scale = np.float16(SCALES[i] * (1 + rng.random()))
            blocks[i, at:at + 2] = np.frombuffer(scale.tobytes(), np.uint8)
        if name == "MXFP4":
            blocks[i, 0] = 120 + i
        if name == "NVFP4":
            blocks[i, :4] &= 0x7F  # scales have no sign
            blocks[i, i] = (0x7F, 0, 5)[i]  # 0, twice, and one with the least exponent
    return blocks


def literal(data):
    lines = textwrap.wrap(data.tobytes().hex(), 92)
    return "\n".join(f'     "{line}"' for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    args = parser.parse_args()
    text = ["#pragma once", '#include "ops/linear/gguf/gguf_format.h"', "",
            "// Made by tools/parity/make_gguf_vectors.py.", "namespace quire::ops::testing {", "",
            "// Blocks, and the float32 values that the `gguf` package dequantises them to (little endian):",
            "// both in hexadecimal.", "struct GgufVector {", "  GgufFormat format;",
            "  const char *blocks, *values;", "};", "inline constexpr GgufVector kGgufVectors[] = {"]
    for name, halves in FORMATS:
        kind = GGMLQuantizationType[name]
        blocks = blocks_of(name, halves)
        values = quants.dequantize(blocks, kind).astype("<f4")
        assert np.isfinite(values).all(), name
        text += [f"    // {name}", f"    {{static_cast<GgufFormat>({int(kind)}),",
                 literal(blocks) + ",", literal(values) + "},"]
    text += ["};", "", "}  // namespace quire::ops::testing", ""]
    args.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
