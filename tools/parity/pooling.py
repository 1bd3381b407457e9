#!/usr/bin/env python3
"""Writes tests/parity/pooling.json: the states behind the last norm, from transformers in float32.

The prompts are those of the checkpoints' golden.json with 1, 17 and 300 ids; of each the state of the
last token and the mean of all.
"""

import json

import torch

import golden
import make_checkpoints

NAMES = ["llama3", "mistral-bf16", "phi3-partial", "qwen2-sliding", "qwen3", "qwen3-bf16"]
NAMES += ["qwen3-moe", "qwen3-next", "qwen35"]
LENGTHS = (1, 17, 300)
ROOT = make_checkpoints.ROOT / "tests/parity"


def states(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """[T, hidden]; what the head makes of them must be the model's logits."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        last = out.hidden_states[-1][0]
        torch.testing.assert_close(model.get_output_embeddings()(last), out.logits[0])
    return last.double()


def rounded(values: torch.Tensor) -> list[float]:
    return [round(float(v), 6) for v in values]


def cases(name: str) -> list[dict]:
    folder = ROOT / "models" / name
    model = make_checkpoints.load(folder, torch.float32)
    found = []
    for one in json.loads((folder / "golden.json").read_text())["cases"]:
        if len(one["prompt"]) not in LENGTHS:
            continue
        all_states = states(model, one["prompt"])
        found.append(
            {
                "checkpoint": name,
                "prompt": one["prompt"],
                "last": rounded(all_states[-1]),
                "mean": rounded(all_states.mean(dim=0)),
            }
        )
    assert len(found) == len(LENGTHS)
    return found


def main() -> None:
    golden.set_up()
    golden.write_cases(ROOT / "pooling.json", [one for name in NAMES for one in cases(name)])


if __name__ == "__main__":
    main()
