#!/usr/bin/env python3
"""Writes tests/parity/suppressed.json: what transformers' generate() answers where generation_config.json names tokens
that are never to be produced.

Of each checkpoint those that its golden answers have most often are; an id that no token has stands beside them.
"""

import collections
import json

import torch

import golden
import make_checkpoints

# A tied head, one whose logits are capped, one whose logits are scaled, and a plain one.
NAMES = ["qwen3", "gemma2", "granite", "mistral"]
LENGTHS = (1, 17, 300)
ROOT = make_checkpoints.ROOT / "tests/parity"
NO_TOKEN = 100_000
SUPPRESSED = 12


def answer(model: torch.nn.Module, prompt: list[int], suppressed: list[int]) -> dict | None:
    """None if two tokens are nearly as good, if a short loop would hide a mistake, or if nothing that is suppressed was
    ever the best."""
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                         suppress_tokens=suppressed, max_new_tokens=golden.NEW_TOKENS, do_sample=False, eos_token_id=None,
                         output_scores=True, output_logits=True, return_dict_in_generate=True)
    tokens = out.sequences[0, len(prompt):].tolist()
    assert len(tokens) == golden.NEW_TOKENS and not set(tokens) & set(suppressed)
    scores = torch.log_softmax(torch.cat(out.scores).double(), dim=-1)
    values, ids = torch.topk(scores, golden.TOP)
    if float((values[:, :-1] - values[:, 1:])[:, 0].min()) < golden.MIN_MARGIN:
        return None
    best = torch.cat(out.logits).argmax(dim=-1).tolist()
    if len(set(tokens)) < golden.MIN_DISTINCT or not set(best) & set(suppressed):
        return None
    assert ids[:, 0].tolist() == tokens
    return {"prompt": prompt, "tokens": tokens, "logprobs": [round(float(v), 6) for v in values[:, 0]]}


def cases(name: str) -> list[dict]:
    folder = ROOT / "models" / name
    model = make_checkpoints.load(folder, torch.float32)
    goldens = json.loads((folder / "golden.json").read_text())["cases"]
    often = collections.Counter(token for one in goldens for token in one["tokens"]).most_common(SUPPRESSED)
    suppressed = sorted(token for token, _ in often) + [NO_TOKEN]
    found = []
    for length in LENGTHS:
        prompts = (golden.draw_prompt(name, length, attempt) for attempt in range(golden.ATTEMPTS))
        answers = (answer(model, prompt, suppressed) for prompt in prompts)
        found.append({"checkpoint": name, "suppressed": suppressed} | next(filter(None, answers)))
    return found


def main() -> None:
    golden.set_up()
    golden.write_cases(ROOT / "suppressed.json", [one for name in NAMES for one in cases(name)])


if __name__ == "__main__":
    main()
