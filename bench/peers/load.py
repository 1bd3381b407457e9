#!/usr/bin/env python3
"""Streaming load on an OpenAI-compatible server, counted and named as `vllm bench serve` does.

    load.py --base-url http://127.0.0.1:8000 --num-prompts 100 --input-len 1024 --output-len 128 \\
        --request-rate 10 --max-concurrency 8 --num-warmups 5 [--json FILE]

Prompts are lists of random token ids, different for every request and the same for every server. Needs
aiohttp. The exit status is 1 if any request failed.
"""

import argparse
import asyncio
import json
import pathlib
import random
import statistics
import sys
import time

import aiohttp

TOKEN_IDS = (300, 16000)  # real words of the random model's tokenizer


class Answer:
    """One request's times, in seconds; `tokens` as the server's usage counts them."""

    def __init__(self):
        self.error, self.ttft, self.latency, self.tokens, self.gaps = "", 0.0, 0.0, 0, []


def body(args: argparse.Namespace, prompt: list[int]) -> dict:
    return {
        "model": args.model,
        "prompt": prompt,
        "max_tokens": args.output_len,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def events(response: aiohttp.ClientResponse):
    """The JSON of every server-sent event until [DONE]."""
    async for line in response.content:
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            yield json.loads(line[5:])


async def ask(session: aiohttp.ClientSession, args: argparse.Namespace, prompt: list) -> Answer:
    answer = Answer()
    start = last = time.perf_counter()
    try:
        url = args.base_url.rstrip("/") + "/v1/completions"
        async with session.post(url, json=body(args, prompt)) as response:
            if response.status != 200:
                answer.error = f"HTTP {response.status}: {(await response.text())[:200]}"
                return answer
            async for event in events(response):
                if "error" in event:
                    answer.error = str(event["error"])
                    return answer
                now = time.perf_counter()
                # Half a character has no text yet and still counts; the closing event does not.
                for choice in event.get("choices") or []:
                    if choice.get("text") or not choice.get("finish_reason"):
                        if answer.ttft == 0.0:
                            answer.ttft = now - start
                        else:
                            answer.gaps.append(now - last)
                        last = now
                if event.get("usage"):
                    answer.tokens = event["usage"]["completion_tokens"]
        answer.latency = last - start
        if answer.tokens != args.output_len:
            answer.error = f"{answer.tokens} tokens instead of {args.output_len}"
    except (aiohttp.ClientError, OSError, ValueError, KeyError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer


async def load(args: argparse.Namespace) -> tuple[list[Answer], float]:
    """All answers and the seconds from the first request to the last answer; warm-ups uncounted."""
    rng = random.Random(args.seed)
    gate = asyncio.Semaphore(args.max_concurrency or args.num_prompts)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=600)
    # A connection per request: servers may close an idle one just as it is used again.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)

    def prompt() -> list[int]:
        return [rng.randrange(*TOKEN_IDS) for _ in range(args.input_len)]

    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def one(ids: list[int]) -> Answer:
            async with gate:
                return await ask(session, args, ids)

        warm = await asyncio.gather(*(one(prompt()) for _ in range(args.num_warmups)))
        if any(answer.error for answer in warm):
            sys.exit(f"warm-up: {next(a.error for a in warm if a.error)}")
        prompts = [prompt() for _ in range(args.num_prompts)]
        start, tasks = time.perf_counter(), []
        for ids in prompts:
            tasks.append(asyncio.create_task(one(ids)))
            if args.request_rate != float("inf"):
                await asyncio.sleep(rng.expovariate(args.request_rate))
        return await asyncio.gather(*tasks), time.perf_counter() - start


def percentile(values: list[float], share: float) -> float:
    values = sorted(values)
    at = (len(values) - 1) * share
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def summary(args: argparse.Namespace, answers: list[Answer], seconds: float) -> dict:
    good = [answer for answer in answers if not answer.error]
    produced, read = sum(a.tokens for a in good), len(good) * args.input_len
    result = {
        "completed": len(good),
        "failed": len(answers) - len(good),
        "errors": sorted({a.error for a in answers if a.error})[:4],
        "duration": seconds,
        "total_input_tokens": read,
        "total_output_tokens": produced,
        "request_throughput": len(good) / seconds,
        "output_throughput": produced / seconds,
        "total_token_throughput": (produced + read) / seconds,
    }
    series = {
        "ttft": [a.ttft for a in good],
        "tpot": [(a.latency - a.ttft) / (a.tokens - 1) for a in good if a.tokens > 1],
        "itl": [gap for a in good for gap in a.gaps],
    }
    for name, values in series.items():
        if values:
            result[f"mean_{name}_ms"] = statistics.fmean(values) * 1e3
            result[f"median_{name}_ms"] = percentile(values, 0.5) * 1e3
            result[f"p99_{name}_ms"] = percentile(values, 0.99) * 1e3
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="default", help="name in the requests")
    parser.add_argument("--num-prompts", type=int, default=100)
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--request-rate", type=float, default=float("inf"), help="Poisson, per second")
    parser.add_argument("--max-concurrency", type=int, default=0, help="0: no limit")
    parser.add_argument("--num-warmups", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here too")
    args = parser.parse_args()
    result = summary(args, *asyncio.run(load(args)))
    for name, value in result.items():
        print(f"{name:26} {value:.2f}" if isinstance(value, float) else f"{name:26} {value}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
