#!/usr/bin/env python3
"""Exports a checkpoint to OpenVINO: make_openvino.py CHECKPOINT OUT bf16|int8|int4

int8 is symmetric per channel, int4 symmetric in groups of 128 over all layers: what OpenVINO's own
documentation recommends for CPUs. Runs with the packages of requirements-export.txt in front of the
others (optimum-intel wants an older transformers than the one that is measured) and offline.
"""

import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

QUANTIZATION = {
    "int8": {"bits": 8, "sym": True},
    "int4": {"bits": 4, "sym": True, "group_size": 128, "ratio": 1.0},
}


def main() -> None:
    source, out, kind = sys.argv[1:]
    import openvino
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    from transformers import AutoTokenizer

    if kind in QUANTIZATION:
        how = {"quantization_config": OVWeightQuantizationConfig(**QUANTIZATION[kind])}
    else:
        how = {"load_in_8bit": False}
    model = OVModelForCausalLM.from_pretrained(source, export=True, compile=False, **how)
    model.save_pretrained(out)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(out)
    folder = pathlib.Path(out)
    for name, part in zip(
        ("tokenizer", "detokenizer"), convert_tokenizer(tokenizer, with_detokenizer=True)
    ):
        openvino.save_model(part, folder / f"openvino_{name}.xml")


if __name__ == "__main__":
    main()
