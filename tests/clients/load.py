"""The same load from aiperf and from `quire bench serve`, in turns against one server; prints what each measured and the ratios.

    build/venv/bin/python tests/clients/load.py [--model DIR] [--requests N] [--concurrency N] [--rounds N] [--threads N]

tests/clients/run.sh makes aiperf's environment. A ratio says something on a quiet machine only: the clients compute beside the server,
so with a small model much of what is measured is theirs: take one of 0.6B parameters or more, and fewer --threads than there are cores."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from conftest import MODEL, ROOT, _api, start_server
from program import ENVIRONMENTS

FIGURES = ("tokens a second", "time to first token, ms", "between tokens, ms")


def aiperf(server, model, load, folder):
    """(figures, requests answered, tokens produced)"""
    command = [ENVIRONMENTS / "load/bin/aiperf", "profile", "--model", pathlib.Path(model).name, "--url", server.url,
               "--endpoint-type", "completions", "--streaming", "--tokenizer", model, "--use-server-token-count", "--ui", "none",
               "--concurrency", load.concurrency, "--request-count", load.requests, "--synthetic-input-tokens-mean", load.input,
               "--synthetic-input-tokens-stddev", 0, "--output-tokens-mean", load.output, "--output-tokens-stddev", 0,
               "--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--random-seed", load.seed,
               "--artifact-dir", folder / "aiperf"]
    run(command, folder)
    found = json.loads((folder / "aiperf/profile_export_aiperf.json").read_text())
    figures = [found[name]["avg"] for name in ("output_token_throughput", "time_to_first_token", "inter_token_latency")]
    return figures, int(found["request_count"]["avg"]), int(found["output_sequence_length"]["avg"] * found["request_count"]["avg"])


def bench_serve(server, model, load, folder):
    command = [_api.BIN, "bench", "serve", "--base-url", server.url, "--tokenizer", model, "--num-prompts", load.requests,
               "--random-input-len", load.input, "--random-output-len", load.output, "--max-concurrency", load.concurrency,
               "--ignore-eos", "--seed", load.seed, "--save-result", "--result-dir", folder, "--result-filename", "bench.json"]
    run(command, folder)
    found = json.loads((folder / "bench.json").read_text())
    # What aiperf calls the time between tokens is a request's mean: vLLM's TPOT.
    return [found[name] for name in ("output_throughput", "mean_ttft_ms", "mean_tpot_ms")], found["completed"], found["total_output_tokens"]


def run(command, folder):
    done = subprocess.run([str(part) for part in command], env={**os.environ, "HOME": str(folder)}, capture_output=True, text=True,
                          timeout=1200)
    assert done.returncode == 0, f"{command[0]}:\n{done.stdout}\n{done.stderr}"


def measure(load):
    """{tool: [(figures, requests, tokens) of each round]}"""
    found = {aiperf: [], bench_serve: []}
    threads = ["--threads", str(load.threads)] if load.threads else []
    with start_server("--disable-access-log", *threads, model=load.model) as server:
        for number in range(load.rounds):
            load.seed = number + 1  # so no round finds another's prompts in the cache
            for tool in found:
                with tempfile.TemporaryDirectory() as folder:
                    found[tool].append(tool(server, load.model, load, pathlib.Path(folder)))
    return found


def report(found):
    """Medians of the rounds, and their ratio, a line each."""
    medians = [[statistics.median(figures[i] for figures, _, _ in rounds) for i in range(len(FIGURES))] for rounds in found.values()]
    yield f"{'':26} {'aiperf':>12} {'bench serve':>12} {'ratio':>7}"
    for name, theirs, ours in zip(FIGURES, *medians):
        yield f"{name:26} {theirs:12.2f} {ours:12.2f} {ours / theirs:7.3f}"


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(ROOT / "models" / MODEL))
    for name, value in (("requests", 200), ("concurrency", 4), ("rounds", 3), ("input", 128), ("output", 64), ("threads", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args(given)


if __name__ == "__main__":
    print("\n".join(report(measure(arguments()))))
