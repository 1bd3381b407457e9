#!/usr/bin/env python3
"""What `--quant-activations int8` costs: the evidence for its default, in docs/benchmarks.md.

    python3 bench/activation_rounding.py [--models models/quire-demo,models/quire-demo-hybrid] [--products]

Log-probabilities: each model writes greedy answers with its own weights. These texts are then scored by
`prompt_logprobs` with the weights as they are (the yardstick), with 8 and with 4 bits and in mxfp4 and nvfp4 (`quire
quantize`), and with these and 8-bit activations. Printed are, over all tokens of the answers:
  - the mean and the 99th percentile of how far a token's log-probability is from the yardstick's;
  - the mean Kullback-Leibler divergence from the yardstick, over its 20 likeliest tokens and all others as one;
  - the share of tokens that were the yardstick's first choice and no longer are.
What activations cost is the difference between two rows of one width: weights cost something, too.

--products (needs numpy): the relative RMS error of a product against float64 on the exact weights, at true shapes,
of what the kernels compute: weights rounded to bfloat16 as linear.h says, or activations rounded to 8 bits by groups
as int8_linear.h says. Activations are normal, or have a few channels that are 30 times as large, as models do.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile
import urllib.request

from server import running_server

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP = 20
PROMPTS = ["Once upon a time", "What is 123 + 456?", "What is 982 - 67?", "My secret word is zorblat7.", "Count from 3 to 12.",
           "Sort these numbers: 9 4 7 1", "What is the capital of France?", "Write a short poem about rain.",
           "What colour is a banana?", "Tell me a story about a fox.", "Reverse this list: red, green, blue",
           "Write a JSON object with a name and an age."]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", default=f"{ROOT / 'models/quire-demo'},{ROOT / 'models/quire-demo-hybrid'}")
    add("--quire", type=pathlib.Path, default=ROOT / "build/release/bin/quire")
    add("--tokens", type=int, default=160, help="of an answer, at most")
    add("--products", action="store_true", help="errors of products instead")
    return parser.parse_args()


def post(port: int, path: str, body: dict) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps({"model": "default", **body}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def write_texts(port: int, tokens: int) -> list[tuple[list[int], int]]:
    """Token ids of prompts with their answers, and how many are the prompt's."""
    texts = []
    for prompt in PROMPTS:
        body = {"messages": [{"role": "user", "content": prompt}], "add_generation_prompt": True}
        ids = post(port, "/tokenize", body)["tokens"]
        answer = post(port, "/v1/completions", {"prompt": ids, "max_tokens": tokens, "temperature": 0, "return_token_ids": True})
        texts.append((ids + answer["choices"][0]["token_ids"], len(ids)))
    return texts


def score(port: int, texts: list[tuple[list[int], int]]) -> list[list[dict[int, float]]]:
    """For each text and token of its answer: log-probabilities of the likeliest tokens and of the one that is there."""
    scores = []
    for ids, prompt in texts:
        answer = post(port, "/v1/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": TOP})
        entries = answer["choices"][0]["prompt_logprobs"][prompt:]
        scores.append([{int(token): value["logprob"] for token, value in entry.items()} for entry in entries])
    return scores


def divergence(reference: dict[int, float], other: dict[int, float]) -> float:
    """KL over the reference's tokens that both list, and all others as one."""
    common = [token for token in reference if token in other]
    rest = [max(1e-9, 1 - sum(math.exp(scores[token]) for token in common)) for scores in (reference, other)]
    inside = sum(math.exp(reference[token]) * (reference[token] - other[token]) for token in common)
    return max(0.0, inside + rest[0] * math.log(rest[0] / rest[1]))


def row(name: str, texts, reference, scores) -> str:
    distances, divergences, changed = [], [], 0
    for (ids, prompt), expected, found in zip(texts, reference, scores):
        for token, a, b in zip(ids[prompt:], expected, found):
            distances.append(abs(a[token] - b[token]))
            divergences.append(divergence(a, b))
            first = max(a, key=a.get)
            changed += b.get(first, -math.inf) < max(b.values())
    distances.sort()
    count = len(distances)
    return (f"| {name} | {sum(distances) / count:.4f} | {distances[int(0.99 * (count - 1))]:.3f} | "
            f"{sum(divergences) / count:.5f} | {100 * changed / count:.2f} % |")


def measure_model(args: argparse.Namespace, model: pathlib.Path) -> None:
    flags = ("--dtype", "bfloat16")
    with running_server(args.quire, model, *flags) as port:
        texts = write_texts(port, args.tokens)
        reference = score(port, texts)
    print(f"\n{model.name}, {sum(len(ids) - prompt for ids, prompt in texts)} tokens\n")
    print("| weights, activations | mean distance | 99th percentile | KL divergence | other first choice |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for weights in ("8 bits", "4 bits", "mxfp4", "nvfp4"):
            target = pathlib.Path(folder) / weights.replace(" ", "-")
            asked = ("--bits", weights[0]) if weights.endswith("bits") else ("--mode", weights)
            subprocess.run([args.quire, "quantize", model, target, *asked], check=True, stdout=subprocess.DEVNULL)
            for activations in ("none", "int8"):
                with running_server(args.quire, target, *flags, "--quant-activations", activations) as port:
                    name = f"{weights}, {'bfloat16' if activations == 'none' else 'int8'}"
                    print(row(name, texts, reference, score(port, texts)), flush=True)


def measure_products() -> None:
    import numpy as np

    def bf16(values):
        bits = np.asarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)

    random = np.random.default_rng(1)
    group = 64
    print("| N x K, activations | bits | weights rounded to bfloat16 | activations rounded to int8 |")
    print("|---|---|---|---|")
    for n, k in ((4096, 1024), (1024, 3072), (2560, 9728)):
        for kind in ("normal", "large channels"):
            x = random.normal(size=(8, k))
            if kind != "normal":
                x[:, random.choice(k, 6, replace=False)] *= 30
            x = bf16(x).astype(np.float64)
            for bits in (8, 4):
                w = random.normal(size=(n, k)).reshape(n, -1, group)
                low, high = w.min(-1, keepdims=True), w.max(-1, keepdims=True)
                scale = bf16((high - low) / (2**bits - 1)).astype(np.float64)
                bias = bf16(low).astype(np.float64)
                codes = np.clip(np.rint((w - bias) / scale), 0, 2**bits - 1)
                exact = (codes * scale + bias).reshape(n, k)
                rounded = bf16(exact).astype(np.float64)
                of_group = x.reshape(8, -1, group)
                step = np.abs(of_group).max(-1, keepdims=True) / 127
                quantised = (np.rint(of_group / step) * step).reshape(8, k)
                truth = x @ exact.T
                error = [np.sqrt(np.mean((y - truth) ** 2) / np.mean(truth**2)) for y in (x @ rounded.T, quantised @ exact.T)]
                print(f"| {n:,} x {k:,}, {kind} | {bits} | {error[0]:.1e} | {error[1]:.1e} |")


def main() -> None:
    args = arguments()
    if args.products:
        return measure_products()
    for model in args.models.split(","):
        measure_model(args, pathlib.Path(model))


if __name__ == "__main__":
    main()
