#!/usr/bin/env python3
"""A recorded agents' session on Quire and on llama-server, each with its own prompt cache: the time to the first token of every turn.

    python3 bench/peers/replay.py --work DIR [--shape qwen3-0.6b|qwen3.5-0.8b] [--scale 0.2] [--turns 40] [--rounds 1]

The session is tests/api/agent_session.py's: 40 turns of a main agent and two sub-agents; --scale 1 begins with 120 KB. bf16, random
weights, one chat template for both, greedy answers of --max-tokens. Each round starts both servers anew, one after the other, and
replays the session on each (`quire replay`); --check sends it to Quire once more without its cache and compares the answers with ==.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from engines import free_port, server
from install import HERE, ROOT, Installation
from run import add_common, cpu_name, locked

SESSION = ROOT / "tests/api/agent_session.py"
TEMPLATE = ROOT / "models/quire-demo/chat_template.jinja"
CONTEXT = 40960


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common(parser)
    add = parser.add_argument
    add("--shape", choices=["qwen3-0.6b", "qwen3.5-0.8b"], default="qwen3-0.6b")
    add("--scale", type=float, default=0.2)
    add("--turns", type=int, default=40)
    add("--max-tokens", type=int, default=8)
    add("--rounds", type=int, default=1)
    add("--check", action="store_true")
    return parser.parse_args()


def make_models(installed: Installation) -> tuple[pathlib.Path, pathlib.Path]:
    file = installed.models / "bf16.gguf"
    installed.make(installed.checkpoint, installed.random_model)
    installed.make(file, lambda part: installed.gguf("bf16", part))
    return installed.checkpoint, file


def commands(args, installed, checkpoint, file) -> dict:
    """{engine: port -> command}. llama-server keeps its defaults: four slots that share one cache, 8 GiB of memory for
    prompts that have left their slot, checkpoints of the states of hybrids."""
    def quire(port):
        flags = ("--port", port, "--threads", args.threads, "--device", "cpu", "--max-model-len", CONTEXT)
        return (args.quire, "serve", checkpoint, *flags, "--chat-template", TEMPLATE, "--disable-access-log")

    def llama(port):
        flags = ("--host", "127.0.0.1", "--port", port, "-t", args.threads, "-tb", args.threads, "-c", CONTEXT)
        return (installed.llama / "llama-server", "-m", file, *flags, "--jinja", "--chat-template-file", TEMPLATE)

    return {"Quire": quire, "llama.cpp": llama}


def replay(args, session: pathlib.Path, port: int, check: bool) -> dict:
    figures = session.with_suffix(".json")
    command = [args.quire, "replay", session, "--base-url", f"http://127.0.0.1:{port}", "--max-tokens", args.max_tokens,
               "--output-json", figures, *(["--check"] if check else [])]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="", flush=True)
    found = json.loads(figures.read_text())
    if found["failed"]:
        sys.exit(f"{found['failed']} turns failed")
    return found


def report(rounds: list[dict]):
    """Medians of the rounds, turn by turn, and what they add up to; lines."""
    engines = list(rounds[0])

    def medians(engine: str) -> list[float]:
        turns = zip(*([turn["ttft_ms"] for turn in found[engine]["details"]] for found in rounds))
        return [statistics.median(values) for values in turns]

    times = {engine: medians(engine) for engine in engines}
    titles = (f"{engine + ' ms':>14} {'cached':>7}" for engine in engines)
    yield " ".join((f"{'turn':>4} {'agent':8} {'prompt':>7}", *titles, f"{'ratio':>7}"))
    for i, turn in enumerate(rounds[0]["Quire"]["details"]):
        cells = (f"{times[engine][i]:14.0f} {rounds[0][engine]['details'][i]['cached_tokens']:7}" for engine in engines)
        ratio = times["llama.cpp"][i] / times["Quire"][i]
        yield " ".join((f"{i + 1:4} {turn['agent']:8} {turn['prompt_tokens']:7}", *cells, f"{ratio:7.1f}"))
    for engine in engines:
        found, own = rounds[0][engine], times[engine]
        yield (f"{engine}: all first tokens {sum(own) / 1e3:.1f} s, the first one {own[0] / 1e3:.2f} s, median of the others "
               f"{statistics.median(own[1:]):.0f} ms, {found['cache_hit_rate']:.1%} of {found['prompt_tokens']} tokens from the cache")
    sums = [sum(times[engine]) for engine in ("llama.cpp", "Quire")]
    yield f"llama.cpp / Quire: {sums[0] / sums[1]:.2f} of all, {sum(times['llama.cpp'][1:]) / sum(times['Quire'][1:]):.2f} without the first"
    if "different_from_cold" in rounds[0]["Quire"]:
        yield f"Quire: {rounds[0]['Quire']['different_from_cold']} of {len(times['Quire'])} turns differ from a cold run"


def main() -> None:
    args = arguments()
    args.quire = args.quire.resolve()
    installed = Installation(args.work, args.quire, args.threads, args.shape)
    installed.packages()
    installed.make(installed.llama, installed.build_llama)
    models = make_models(installed)
    session = args.work / f"session-{args.scale}-{args.turns}.jsonl"
    subprocess.run([sys.executable, SESSION, "--turns", str(args.turns), "--scale", str(args.scale), "--output", session], check=True)
    print(cpu_name(), args.shape, f"scale {args.scale}", flush=True)
    rounds = []
    with locked(args.lock):
        for number in range(args.rounds):
            found = {}
            for engine, command in commands(args, installed, *models).items():
                port = free_port()
                with server(port, *command(port)):
                    print(f"round {number + 1}: {engine}", flush=True)
                    found[engine] = replay(args, session, port, args.check and engine == "Quire" and number == 0)
            rounds.append(found)
    print("\n".join(report(rounds)))


if __name__ == "__main__":
    main()
