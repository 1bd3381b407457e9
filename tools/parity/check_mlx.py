#!/usr/bin/env python3
"""Loads what `quire quantize` wrote with mlx-lm, and compares with Quire's greedy tokens.

    pip install 'mlx[cpu]' mlx-lm
    quire quantize SRC DST --bits 4 --group-size 64
    quire serve DST --port 8000 --dtype float32 &
    check_mlx.py DST http://127.0.0.1:8000 "A prompt" "Another"

mlx-lm runs in float32 on the dequantised weights, because its quantised matrix product on x86 sums
in the activations' dtype. Tokens must agree until one whose two best candidates are closer than
--margin; log-probabilities until there within --tolerance.
"""

import argparse
import json
import urllib.request

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache


def quire_answer(url: str, ids: list[int], tokens: int) -> list[float]:
    body = {"prompt": ids, "max_tokens": tokens, "temperature": 0, "logprobs": 1}
    body |= {"return_token_ids": True, "ignore_eos": True}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["logprobs"]


def mlx_answer(model, ids: list[int], tokens: int):
    cache, step = make_prompt_cache(model), mx.array([ids])
    for _ in range(tokens):
        logits = model(step, cache=cache)[0, -1].astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits)
        best = mx.argsort(-logprobs)[:2].tolist()
        yield best[0], logprobs[best[0]].item(), logprobs[best[0]].item() - logprobs[best[1]].item()
        step = mx.array([[best[0]]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("url")
    parser.add_argument("prompts", nargs="+")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--margin", type=float, default=1e-3)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    args = parser.parse_args()
    model, tokenizer = load(args.model)
    to_float = lambda a: a.astype(mx.float32) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(to_float, model.parameters()))
    for prompt in args.prompts:
        ids = tokenizer.encode(prompt)
        answer = quire_answer(args.url, ids, args.tokens)
        worst, same = 0.0, 0
        ours = zip(answer["tokens"], answer["token_logprobs"])
        for (text, logprob), (token, expected, margin) in zip(ours, mlx_answer(model, ids, args.tokens)):
            if text != tokenizer.decode([token]):
                assert margin < args.margin, f"{prompt!r}: token {same} differs, margin {margin:.3f}"
                break
            worst, same = max(worst, abs(logprob - expected)), same + 1
        assert worst <= args.tolerance, f"{prompt!r}: a log-probability is {worst:.4f} off"
        print(f"{prompt!r}: {same} tokens alike, log-probabilities within {worst:.4f}")


if __name__ == "__main__":
    main()
