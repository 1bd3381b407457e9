#!/usr/bin/env python3
"""A serving workload on one engine: by default 100 prompts of 1,024 tokens, 128 produced for each, 10
requests a second, 5 warm-ups, at most 8 and then 32 at once.

    python3 bench/peers/serving.py --work DIR [--engine quire|llama.cpp] [--format bf16|8-bit|4-bit]

Uses what run.py installed under DIR. One report per concurrency, the figures of `quire bench serve`, goes
to DIR/serving.jsonl too.
"""

import argparse
import json
import sys

from engines import LlamaCpp, Quire
from install import Installation
from report import FORMATS
from run import add_common, locked


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_common(parser)
    add("--engine", choices=["quire", "llama.cpp"], default="quire")
    add("--format", choices=FORMATS, default="bf16")
    add("--max-concurrency", default="8,32", help="one run each")
    add("--num-prompts", type=int, default=100)
    add("--input-len", type=int, default=1024)
    add("--output-len", type=int, default=128)
    add("--request-rate", type=float, default=10)
    add("--num-warmups", type=int, default=5)
    return parser.parse_args()


def main() -> int:
    args = arguments()
    installed = Installation(args.work, args.quire, args.threads)
    installed.common()
    engine = (Quire if args.engine == "quire" else LlamaCpp)(installed, args.threads)
    engine.prepare([args.format])
    failed = 0
    for concurrency in (int(text) for text in args.max_concurrency.split(",")):
        names = ("num_prompts", "input_len", "request_rate", "num_warmups")
        flags = [part for name in names for part in (f"--{name}".replace("_", "-"), getattr(args, name))]
        with locked(args.lock):
            lengths = (args.input_len, args.output_len)
            result = engine.serve(
                args.format, concurrency, lengths, *flags, "--max-concurrency", concurrency
            )
        failed += result["failed"]
        facts = {"engine": engine.name, "format": args.format, "max_concurrency": concurrency}
        print(json.dumps(facts | result, indent=1), flush=True)
        with (args.work / "serving.jsonl").open("a") as file:
            file.write(json.dumps(facts | result) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
