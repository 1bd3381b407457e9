#!/usr/bin/env python3
"""What a long prompt does to the chats beside it, and they to it:

    python3 bench/long_prompt.py --model DIR [--prompts 8000,16000,32000] [--streams 16] [--out FILE]

Starts `quire serve` with its default flags (more after `--`) and, for each prompt length, measures
  - the prompt alone: its time to the first token;
  - the inter-token latency of `--streams` chats, for `--before` seconds: each asks again as soon as it has an
    answer of `--answer` tokens, so that their contexts are as long at any time;
  - the same while the prompt is fed, and the time to the first token of a short prompt that comes
    a second after it;
  - the same again for `--before` seconds afterwards.
With `--answer 8192` an answer lasts: its own context grows meanwhile, and a token of it takes longer than before with
or without the prompt.
Prints p50 and p99, and what the prompt's feeding takes alone and in company. Prompts are random token ids, all
different, so that no cached prefix helps. A model of the shape that is meant comes from
tools/bench/make_random_model.py. Two cores and 0.6 B parameters take some minutes a length.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import random
import socket
import sys
import threading
import time

from server import running_server

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHORT_PROMPT = 32  # tokens


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", type=pathlib.Path, required=True)
    add("--quire", type=pathlib.Path, default=ROOT / "build/release/bin/quire")
    add("--prompts", default="8000,16000,32000", help="lengths in tokens")
    add("--streams", type=int, default=16)
    add("--answer", type=int, default=256, help="tokens of a chat's answers")
    add("--before", type=float, default=15, help="seconds of measuring before the prompt comes")
    add("--most", type=float, default=600, help="seconds after which a prompt is given up")
    add("--vocabulary", type=int, default=4000, help="token ids are below this")
    add("--out", type=pathlib.Path, help="JSON file")
    add("flags", nargs="*", help="more flags of quire serve, after --")
    return parser.parse_args()


class Stream(threading.Thread):
    """One request over its own connection; `times` gets the arrival of every token."""

    def __init__(self, port: int, prompt: list[int], max_tokens: int):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.body = json.dumps({"model": "default", "prompt": prompt, "max_tokens": max_tokens, "stream": True,
                                "ignore_eos": True, "temperature": 0, "return_token_ids": True})
        self.times: list[float] = []
        self.started = time.monotonic()
        self.error = ""
        self.start()

    def run(self):
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            self.connection.request("POST", "/v1/completions", self.body, {"Content-Type": "application/json"})
            response = self.connection.getresponse()
            if response.status != 200:
                self.error = response.read().decode()
                return
            for line in response:
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())

    def first_token(self, most: float) -> float:
        """Seconds until it came."""
        deadline = self.started + most
        while not self.times and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.times[0] - self.started if self.times else float("inf")

    def stop(self):
        with contextlib.suppress(OSError, AttributeError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(5)


class Chat(threading.Thread):
    """Asks again and again; `streams` are its answers so far."""

    def __init__(self, port: int, prompt: list[int], first_tokens: int, max_tokens: int):
        super().__init__(daemon=True)
        self.port, self.prompt, self.max_tokens = port, prompt, max_tokens
        self.streams = [Stream(port, prompt, first_tokens)]
        self.stopped = False
        self.start()

    def run(self):
        while not self.stopped:
            self.streams[-1].join()
            if self.streams[-1].error or not self.streams[-1].times:
                return
            self.streams.append(Stream(self.port, self.prompt, self.max_tokens))

    def stop(self):
        self.stopped = True
        self.streams[-1].stop()
        self.join(5)
        self.streams[-1].stop()


def gaps(chats: list[Chat], begin: float, end: float) -> list[float]:
    """Inter-token latencies in seconds, ascending, of the tokens that came in the interval."""
    found = []
    for stream in [stream for chat in chats for stream in chat.streams]:
        times = list(stream.times)
        found += [b - a for a, b in zip(times, times[1:]) if begin < b <= end]
    return sorted(found)


def quantile(values: list[float], q: float) -> float:
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def measure(args: argparse.Namespace, port: int, length: int, rng: random.Random) -> dict:
    def prompt(tokens: int) -> list[int]:
        return [rng.randrange(10, args.vocabulary) for _ in range(tokens)]

    alone = Stream(port, prompt(length), 1).first_token(args.most)
    short_alone = Stream(port, prompt(SHORT_PROMPT), 1).first_token(args.most)
    # Their first answers end at different times.
    chats = [Chat(port, prompt(SHORT_PROMPT), max(2, args.answer * (i + 1) // args.streams), args.answer)
             for i in range(args.streams)]
    for chat in chats:
        if chat.streams[0].first_token(args.most) == float("inf"):
            sys.exit("a chat did not begin: " + chat.streams[0].error)
    time.sleep(2)
    begin = time.monotonic()
    time.sleep(args.before)
    arrived = time.monotonic()
    before = gaps(chats, begin, arrived)
    long = Stream(port, prompt(length), 1)
    time.sleep(1)
    short = Stream(port, prompt(SHORT_PROMPT), 1)
    short_beside = short.first_token(args.most)
    company = long.first_token(args.most)
    fed = arrived + min(company, args.most)
    during = gaps(chats, arrived, fed)
    time.sleep(1 + args.before)
    after = gaps(chats, fed + 1, fed + 1 + args.before)
    for each in [*chats, long, short]:
        each.stop()
    result = {"prompt_tokens": length, "alone_s": alone, "company_s": company,
              "alone_tokens_per_s": length / alone, "company_tokens_per_s": length / company,
              "short_ttft_alone_s": short_alone, "short_ttft_s": short_beside}
    for name, values in (("before", before), ("during", during), ("after", after)):
        result[name] = {"p50_ms": 1000 * quantile(values, 0.5), "p99_ms": 1000 * quantile(values, 0.99),
                        "tokens": len(values)}
    return result


def show(result: dict) -> None:
    before, during, after = result["before"], result["during"], result["after"]
    print(f"\nprompt of {result['prompt_tokens']} tokens")
    for q in ("p50_ms", "p99_ms"):
        print(f"  inter-token latency {q[:3]}  {before[q]:8.1f} ms before, {during[q]:8.1f} ms during"
              f"  ({during[q] / before[q]:.2f} x), {after[q]:8.1f} ms after ({during[q] / after[q]:.2f} x)")
    print(f"  short prompt's first token  {result['short_ttft_alone_s']:8.2f} s alone, "
          f"{result['short_ttft_s']:8.2f} s behind it")
    print(f"  feeding                     {result['alone_tokens_per_s']:8.0f} tokens/s alone, "
          f"{result['company_tokens_per_s']:8.0f} in company", flush=True)


def main() -> None:
    args = arguments()
    results = []
    rng = random.Random(1)
    with running_server(args.quire, args.model, *args.flags) as port:
        Stream(port, [rng.randrange(10, args.vocabulary) for _ in range(600)], 32).join()
        for length in map(int, args.prompts.split(",")):
            results.append(measure(args, port, length, rng))
            show(results[-1])
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
