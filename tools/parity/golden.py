"""The oracle: greedy continuations and log-probabilities from transformers in float32.

Every step runs the whole sequence again without a cache, so that no cache code takes part.
"""

import json
import pathlib
import zlib
from typing import Any

import numpy as np
import torch
import transformers

import tiny_tokenizer

PROMPT_LENGTHS = [1, 15, 16, 17, 300]
NEW_TOKENS = 32
TOP = 5
# A float32 engine that sums in another order moves a log-probability by about 1e-5 here (see
# "rounding" in golden.json), so that a margin of 0.01 cannot flip.
MIN_MARGIN = 0.01
MIN_DISTINCT = 14
ATTEMPTS = 300


def set_up() -> None:
    """One thread, so that sums have one order; transformers says nothing but errors."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def write_cases(file: pathlib.Path, cases: list[dict[str, Any]]) -> None:
    """A line for each; their first key is "checkpoint"."""
    text = json.dumps(cases, separators=(",", ":")).replace('{"checkpoint"', '\n{"checkpoint"')
    file.write_text(text + "\n")


def log_probs(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """[T, V], computed in the model's dtype, log-softmax in float64."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1)


def draw_prompt(name: str, length: int, attempt: int) -> list[int]:
    """Any id but the special ones; `name` is the float32 variant's for a bfloat16 one too."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), length, attempt])
    return [int(i) for i in rng.integers(0, min(tiny_tokenizer.special_ids().values()), length)]


def greedy(model: torch.nn.Module, prompt: list[int]) -> dict[str, Any] | None:
    """None when the path holds a near-tie or a special token, so that the caller draws again."""
    special = set(tiny_tokenizer.special_ids().values())
    ids, chosen, tops, margin = list(prompt), [], [], np.inf
    for _ in range(NEW_TOKENS):
        values, tokens = torch.topk(log_probs(model, ids)[-1], TOP)
        margin = min(margin, float((values[:-1] - values[1:])[0]))
        token = int(tokens[0])
        if margin < MIN_MARGIN or token in special:
            return None
        chosen.append(round(float(values[0]), 6))
        tops.append([[int(t), round(float(v), 6)] for t, v in zip(tokens, values)])
        ids.append(token)
    tokens = ids[len(prompt) :]
    if len(set(tokens)) < MIN_DISTINCT:  # a short loop would hide a wrong position or a lost token
        return None
    return {
        "prompt": prompt,
        "tokens": tokens,
        "logprobs": chosen,
        "top": tops,
        "min_margin": round(margin, 6),
    }


def next_token_log_probs(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """[T-1]: position i holds log p(ids[i+1] | ids[..i])."""
    return log_probs(model, ids)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def case(name: str, model: torch.nn.Module, length: int) -> dict[str, Any]:
    for attempt in range(ATTEMPTS):
        found = greedy(model, draw_prompt(name, length, attempt))
        if found is not None:
            break
    else:
        raise RuntimeError(f"{name}: no clear greedy path for a prompt of {length}")
    if length >= 17:
        values = next_token_log_probs(model, found["prompt"])
        found["prompt_logprobs"] = [round(float(v), 6) for v in values]
    return found


def difference(model: torch.nn.Module, cases: list[dict[str, Any]]) -> float:
    """The largest |log p - golden| over the tokens of `cases`, teacher-forced through `model`."""
    worst = 0.0
    for one in cases:
        values = next_token_log_probs(model, one["prompt"] + one["tokens"])
        golden = torch.tensor(one["logprobs"], dtype=torch.float64)
        worst = max(worst, float((values[-NEW_TOKENS:] - golden).abs().max()))
    return worst


def write(folder: pathlib.Path, head: dict[str, Any], rounding: dict[str, float], cases: list[dict], effect: Any = None) -> str:
    """golden.json, a line for each prompt and each list of its answer. `head`: checkpoint, family, config_keys,
    weights_dtype. Returns a line for people."""
    content = head | {
        "compute_dtype": "float32",
        "transformers": transformers.__version__,
        "rounding": rounding,
        "feature_effect": effect,
        "cases": cases,
    }
    lines = json.dumps(content, separators=(",", ":")).replace('{"prompt"', '\n{"prompt"')
    for key in ('"tokens"', '"logprobs"', '"top"', '"prompt_logprobs"', '"rounded_logprobs"'):
        lines = lines.replace(key + ":", "\n  " + key + ":")
    (folder / "golden.json").write_text(lines + "\n")
    return f"margin {min(one['min_margin'] for one in cases):.4f}  rounding {rounding}"
