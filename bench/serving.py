#!/usr/bin/env python3
"""The serving workload on this machine, and what single design decisions gain, in one command:

    python3 bench/serving.py --model DIR [--num-prompts 100] [--out DIR]

Starts `quire serve` and runs `quire bench serve` on it for each --max-concurrency: random prompts of 1,024
tokens, 128 produced for each, 10 requests a second, 5 warm-ups. Then `quire bench ablations`. Prints what
these print (vLLM's block of figures) and writes their JSON to --out. On two cores and a model of 0.6 B
parameters 100 prompts take about 7 minutes in all, 40 about 4.
"""

import argparse
import pathlib
import subprocess
import sys
import time

from server import running_server

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", type=pathlib.Path, required=True)
    add("--quire", type=pathlib.Path, default=ROOT / "build/release/bin/quire")
    add("--max-concurrency", default="8,32", help="one run each")
    add("--num-prompts", type=int, default=100)
    add("--input-len", type=int, default=1024)
    add("--output-len", type=int, default=128)
    add("--request-rate", default="10", help="requests a second; inf: all at once")
    add("--num-warmups", type=int, default=5)
    add("--settle", type=float, default=12, help="seconds that the idle server gets to prepare memory")
    add("--rounds", type=int, default=2, help="of the ablations; 0: none")
    add("--out", type=pathlib.Path, help="folder for the JSON files")
    return parser.parse_args()


def load(args: argparse.Namespace, port: int, concurrency: str) -> int:
    """One run of the workload; every run has other prompts, as the server remembers them."""
    command = [args.quire, "bench", "serve", "--port", port, "--model", "default"]
    command += ["--tokenizer", args.model, "--dataset-name", "random", "--ignore-eos"]
    command += ["--random-input-len", args.input_len, "--random-output-len", args.output_len]
    command += ["--num-prompts", args.num_prompts, "--request-rate", args.request_rate]
    command += ["--max-concurrency", concurrency, "--num-warmups", args.num_warmups]
    command += ["--seed", concurrency, "--percentile-metrics", "ttft,tpot,itl,e2el"]
    if args.out:
        command += ["--save-result", "--result-dir", args.out]
        command += ["--result-filename", f"serving-{concurrency}.json"]
    return subprocess.run([str(part) for part in command]).returncode


def ablations(args: argparse.Namespace) -> int:
    command = [args.quire, "bench", "ablations", args.model, "--rounds", args.rounds]
    if args.out:
        command += ["--output-json", args.out / "ablations.json"]
    return subprocess.run([str(part) for part in command]).returncode


def main() -> int:
    args = arguments()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    start = time.monotonic()
    for concurrency in args.max_concurrency.split(","):
        with running_server(args.quire, args.model) as port:
            time.sleep(args.settle)
            print(f"\nat most {concurrency} at once", flush=True)
            failed += load(args, port, concurrency) != 0
    if args.rounds:
        print("\nablations", flush=True)
        failed += ablations(args) != 0
    print(f"{time.monotonic() - start:.0f} seconds in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
