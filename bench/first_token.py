#!/usr/bin/env python3
"""How long a server takes to be there: seconds from the start of its process to /health, and to its first token.

    python3 bench/first_token.py --model DIR [--device cuda] [--rounds 3] [-- FLAG ...]

Starts `quire serve` for each round, with what stands behind `--`, and asks for a completion of 8 tokens as a stream as soon as
/health answers. The files' pages are in memory from the second round on, at the latest.
"""

import argparse
import json
import pathlib
import time
import urllib.request

from server import running_server

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", type=pathlib.Path, required=True)
    add("--quire", type=pathlib.Path, default=ROOT / "build/release/bin/quire")
    add("--device", default="cpu")
    add("--rounds", type=int, default=3)
    add("flags", nargs="*", help="of quire serve, behind --")
    return parser.parse_args()


def wait_for_token(port: int) -> None:
    body = {"model": "default", "prompt": "How do you do?", "max_tokens": 8, "stream": True, "ignore_eos": True}
    url = f"http://127.0.0.1:{port}/v1/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line[len("data: ") :])
                if "error" in event:
                    raise SystemExit(f"the server answered: {event['error']}")
                return
    raise SystemExit("the answer ended without a token")


def main() -> None:
    args = arguments()
    for turn in range(args.rounds):
        begun = time.monotonic()
        with running_server(args.quire, args.model, "--device", args.device, *args.flags) as port:
            ready = time.monotonic() - begun
            wait_for_token(port)
            token = time.monotonic() - begun
        print(f"round {turn + 1}: /health after {ready:.2f} s, first token after {token:.2f} s", flush=True)


if __name__ == "__main__":
    main()
