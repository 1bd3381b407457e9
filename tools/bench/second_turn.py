#!/usr/bin/env python3
"""Time to the first token of a conversation's second turn, beside a cold prompt of the same length.

    second_turn.py --model DIR [--bin build/release/bin/quire] [--tokens 4096] [--rounds 3] [-- FLAGS..]

Starts a server on the model and talks to it in token ids. Each round is a conversation of its own:
a prompt of --tokens random ids and an answer of --answer tokens, then a second turn of all that and
--more new ids; then a cold prompt of the second turn's length. Prints the best of the rounds, how
much of the second turn came from the cache, and the ratio.
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import socket
import subprocess
import time


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, binary: str, model: str, flags: list[str]):
        self.port = free_port()
        command = [binary, "serve", model, "--port", str(self.port), *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:  # ends when the server does
            if line.startswith("memory"):
                print(line.strip())
            if "http://" in line:
                break

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def cached_tokens(self) -> int:
        found = re.search(r"^vllm:prefix_cache_hits_total\S* (\S+)$", self.get("/metrics"), re.M)
        return int(float(found.group(1)))

    def complete(self, prompt: list[int], max_tokens: int) -> tuple[float, list[int]]:
        """Seconds to the first token, and the answer's ids."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True}
        started = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        first, ids = None, []
        for line in connection.getresponse():
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            first = first or time.perf_counter() - started
            choice = json.loads(line[6:])["choices"][0]
            ids += choice.get("token_ids") or []
        return first, ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--bin", default="build/release/bin/quire")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--more", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="of quire serve, after --")
    args = parser.parse_args()
    vocab = json.loads((pathlib.Path(args.model) / "config.json").read_text())["vocab_size"]
    rng = random.Random(1)
    ids = lambda count: [rng.randrange(256, min(vocab, 16000)) for _ in range(count)]
    server = Server(args.bin, args.model, args.flags)
    best = {"first turn": 1e9, "second turn": 1e9, "cold": 1e9}
    try:
        server.complete(ids(64), 8)
        for _ in range(args.rounds):
            prompt = ids(args.tokens)
            seconds, answer = server.complete(prompt, args.answer)
            best["first turn"] = min(best["first turn"], seconds)
            second = prompt + (answer or ids(args.answer)) + ids(args.more)
            before = server.cached_tokens()
            seconds, _ = server.complete(second, 4)
            cached = server.cached_tokens() - before
            best["second turn"] = min(best["second turn"], seconds)
            seconds, _ = server.complete(ids(len(second)), 4)
            best["cold"] = min(best["cold"], seconds)
    finally:
        server.process.terminate()
        server.process.wait()
    for name, seconds in best.items():
        print(f"{name:12} {1e3 * seconds:9.1f} ms to the first token")
    print(f"second turn: {cached} of {len(second)} tokens from the cache, "
          f"{best['cold'] / best['second turn']:.1f} times sooner than cold")


if __name__ == "__main__":
    main()
