#!/usr/bin/env python3
"""Whether Quire and llama.cpp compute the same model: agree.py --work DIR CHECKPOINT

Makes a GGUF of the checkpoint, asks both servers for the token after some random prompts, and prints how far the
log-probabilities of the likeliest tokens are apart, beside how far these differ among themselves. A checkpoint of
float32 compares what is computed, one of bfloat16 also how each engine rounds, which may now and then choose another
expert: so the median counts. Exits with 1 if they do not agree. DIR is that of run.py, which installs llama.cpp there.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import urllib.request

import engines
from install import HERE
from run import add_common

LENGTHS = (1, 2, 7, 33, 130, 300)  # of prompts: inside, at and beyond the edges of blocks and of chunks
TOP = 20
WITHIN = {"float32": 1e-3, "bfloat16": 0.1}  # log-probabilities


def ask(port: int, path: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=engines.TIMEOUT) as answer:
        return json.load(answer)


def of_quire(port: int, prompt: list[int]) -> dict[int, float]:
    body = {"model": "default", "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": TOP}
    choice = ask(port, "/v1/completions", body | {"return_tokens_as_token_ids": True})["choices"][0]
    top = choice["logprobs"]["top_logprobs"][0]
    return {int(token.removeprefix("token_id:")): value for token, value in top.items()}


def of_llama(port: int, prompt: list[int]) -> dict[int, float]:
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": TOP, "cache_prompt": False}
    found = ask(port, "/completion", body)["completion_probabilities"][0]
    return {one["id"]: one["logprob"] for one in found["top_logprobs"]}


def compare(ours: dict[int, float], theirs: dict[int, float]) -> tuple[int, float]:
    """How many of the likeliest are the same, and the largest difference of these."""
    both = ours.keys() & theirs.keys()
    return len(both), max((abs(ours[token] - theirs[token]) for token in both), default=float("inf"))


def agree(found: list[tuple[int, float]], within: float) -> bool:
    """Of what compare() found for each prompt."""
    return statistics.median(far if shared >= TOP / 2 else float("inf") for shared, far in found) <= within


def prompts(vocab_size: int):
    state = 1
    for length in LENGTHS:
        prompt = []
        while len(prompt) < length:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            prompt.append((state >> 33) % vocab_size)
        yield prompt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_common(parser)
    parser.add_argument("checkpoint", type=pathlib.Path, help="as make_gguf.py takes it")
    parser.add_argument("--gguf", type=pathlib.Path, help="of the same model; default: it is made of the checkpoint")
    args = parser.parse_args()
    config = json.loads((args.checkpoint / "config.json").read_text())
    vocab_size, within = config["vocab_size"], WITHIN[config["torch_dtype"]]
    exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off", "-c", 512, "-np", 1, "--cache-ram", 0, "--no-warmup")
    with tempfile.TemporaryDirectory() as folder:
        file = args.gguf or pathlib.Path(folder) / "model.gguf"
        if not args.gguf:
            python = args.work / "venv/bin/python"
            subprocess.run([python, HERE / "make_gguf.py", args.checkpoint, file], check=True)
        port, other = engines.free_port(), engines.free_port()
        quire = (args.quire, "serve", args.checkpoint, "--port", port, "--served-model-name", "default")
        llama = (args.work / "llama.cpp/bin/llama-server", "-m", file, "--host", "127.0.0.1", "--port", other)
        threads = ("-t", args.threads, "-tb", args.threads)
        with engines.server(port, *quire, "--threads", args.threads, "--max-model-len", 512):
            ours = [of_quire(port, prompt) for prompt in prompts(vocab_size)]
        with engines.server(other, *llama, *threads, *exact):
            theirs = [of_llama(other, prompt) for prompt in prompts(vocab_size)]
    for length, one, two in zip(LENGTHS, ours, theirs):
        shared, far = compare(one, two)
        print(f"{length:4} tokens: {shared} of the {TOP} likeliest are the same, apart by at most {far:.2g}; "
              f"the {TOP} differ by {max(one.values()) - min(one.values()):.2g}")
    agreed = agree(list(map(compare, ours, theirs)), within)
    print("the same model" if agreed else "NOT the same model")
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
