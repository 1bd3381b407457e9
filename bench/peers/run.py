#!/usr/bin/env python3
"""Quire beside its peers on this machine, in one command:

    python3 bench/peers/run.py --work DIR [--quick] [--only 'PATTERN,...'] [--resume] [--write-docs]

Installs llama.cpp, OpenVINO GenAI, mistral.rs and transformers under DIR, makes the models, then measures cell by
cell and round by round, the engines one after another (A B A B). Raw runs go to DIR/results-SHAPE.json as they
are made, the table to stdout and DIR/table-SHAPE.md. See README.md beside this file.
"""

import argparse
import contextlib
import datetime
import fcntl
import fnmatch
import json
import os
import pathlib
import platform
import sys
import time

import engines as catalogue
from engines import Cell
from install import ROOT, SHAPES, Installation
from report import FORMATS, table, write_docs


def cells(quick: bool) -> list[Cell]:
    """A decode produces one token more than it counts: the first ends the prefill."""
    return [
        Cell("prefill", 1, 512, 1),
        Cell("prefill", 1, 2048, 1),
        *(Cell("decode", streams, 128, 65) for streams in (1, 8, 32)),
        Cell("server", 8, 128, 64, requests=16 if quick else 32),
        Cell("server", 32, 128, 64, requests=32 if quick else 64),
        *([] if quick else [Cell("turn", 1, 2048, 32, requests=3)]),
        *(Cell("depth", 1, length, 33) for length in (8192, 16384) if not quick),
        *(Cell("beside", clients, 128, 64, requests=2 * clients, long=16384) for clients in (8, 32) if not quick),
    ]


@contextlib.contextmanager
def locked(path: pathlib.Path | None):
    """Holds an exclusive lock on `path`, as flock(1) does."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cpu_name() -> str:
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    units = [unit for unit in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if unit in flags]
    model = f"{facts.get('model name', platform.processor())} (family {facts.get('cpu family')}, "
    return model + f"model {facts.get('model')}; best unit {units[0] if units else 'none'})"


def run_key(run: dict) -> tuple[str, str, str]:
    return run["format"], run["cell"], run["engine"]


class Results:
    """The measurements so far; on disk after every one."""

    def __init__(self, path: pathlib.Path, resume: bool):
        self.path = path
        self.facts = json.loads(path.read_text()) if resume and path.exists() else {}
        # Failed runs are tried again.
        self.runs = [run for run in self.facts.pop("runs", []) if "rate" in run]
        self.seconds = {run_key(run): run["seconds"] for run in self.runs}
        self.find_done()

    def find_done(self) -> None:
        self.done = {(*run_key(run), run["round"]) for run in self.runs}

    def forget(self, matches) -> None:
        """Drops the runs whose engine, format and cell `matches`: they are measured anew."""
        self.runs = [run for run in self.runs if not matches(run)]
        self.find_done()

    def add(self, run: dict) -> None:
        self.runs.append(run)
        self.save()

    def data(self) -> dict:
        return self.facts | {"runs": self.runs}

    def save(self) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data(), indent=1) + "\n")
        part.rename(self.path)


class Comparison:
    def __init__(self, args: argparse.Namespace, installed: Installation):
        self.args, self.installed = args, installed
        options = (installed, args.threads)
        self.engines = [
            catalogue.Quire(*options),
            catalogue.QuireInt8(*options),
            catalogue.LlamaCpp(*options),
            catalogue.LlamaCppAllFourBits(*options),
            catalogue.OpenVino(*options),
            catalogue.Transformers(*options),
            catalogue.MistralRs(*options),
        ]
        self.results = Results(args.work / f"results-{installed.models.name}.json", args.resume or args.redo)
        if args.redo:
            self.results.forget(lambda run: self.named(run["engine"], run["format"], run["cell"]))
        self.broken: set = set()

    def wanted(self, engine, format: str, cell: Cell) -> bool:
        if format not in engine.formats or cell.kind not in engine.kinds:
            return False
        if engine.most_streams and cell.streams > engine.most_streams:
            return False
        return self.named(engine.name, format, cell.name)

    def named(self, engine: str, format: str, cell: str) -> bool:
        """Whether --only names this measurement."""
        short = {catalogue.LlamaCppAllFourBits.name: "q4_0", catalogue.QuireInt8.name: "int8"}
        name = f"{short.get(engine, engine.split()[0].lower())}/{format}/{cell}"
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.args.only.split(","))

    def formats_of(self, engine) -> list[str]:
        all_cells = cells(self.args.quick)
        return [f for f in FORMATS if any(self.wanted(engine, f, cell) for cell in all_cells)]

    def prepare(self) -> None:
        """An engine that cannot be installed is reported and left out; so is a format it lacks."""
        self.installed.common()
        versions = self.results.facts.get("versions", {})
        for engine in self.engines:
            formats = self.formats_of(engine)
            for format in formats:
                try:
                    engine.prepare([format])
                except Exception as error:
                    print(f"peers: no {engine.name} {format}: {error}", file=sys.stderr)
                    self.broken.add((engine.name, format))
            if any((engine.name, format) not in self.broken for format in formats):
                versions[engine.name] = engine.versions()
        self.results.facts = {
            "cpu": cpu_name(),
            "model": f"{self.installed.models.name}, random weights",
            "threads": self.args.threads,
            "date": datetime.date.today().isoformat(),
            "versions": versions,
            "engines": [engine.name for engine in self.engines],
        }

    def measure_once(self, engine, format: str, cell: Cell, round_: int, probe: float) -> None:
        key = {"format": format, "cell": cell.name, "engine": engine.name, "round": round_}
        start = time.time()
        try:
            with locked(self.args.lock):
                found = engine.measure(format, cell)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
            self.broken.add((engine.name, format, cell.name))
        took = time.time() - start
        self.results.add(key | found | {"probe_gbs": probe, "at": start, "seconds": took})
        text = f"{found['rate']:10.1f} tok/s" if "rate" in found else found["error"]
        print(f"{format:6} {cell.name:13} round {round_} {engine.name:15} {text}", flush=True)

    def say_how_long(self) -> None:
        """Prints what the measurements took last time, as far as they are known."""
        todo = [
            (format, cell.name, engine.name)
            for format in FORMATS
            for cell in cells(self.args.quick)
            for engine in self.engines
            if self.wanted(engine, format, cell) and (engine.name, format) not in self.broken
        ]
        known = [self.results.seconds[key] for key in todo if key in self.results.seconds]
        minutes = self.args.rounds * sum(known) / 60
        unknown = len(todo) - len(known)
        print(f"peers: {len(todo)} measurements in each of {self.args.rounds} rounds: about "
              f"{minutes:.0f} minutes" + (f", and {unknown} not timed yet" if unknown else ""))

    def measure(self) -> None:
        self.say_how_long()
        for format in FORMATS:
            for cell in cells(self.args.quick):
                for round_ in range(self.args.rounds):
                    self.measure_round(format, cell, round_)
            for engine in self.engines:
                engine.close()

    def measure_round(self, format: str, cell: Cell, round_: int) -> None:
        todo = [
            engine
            for engine in self.engines
            if self.wanted(engine, format, cell)
            and (format, cell.name, engine.name, round_) not in self.results.done
            and (engine.name, format) not in self.broken
            and (engine.name, format, cell.name) not in self.broken
        ]
        if not todo:
            return
        with locked(self.args.lock):
            probe = catalogue.read_rate(self.installed, self.args.threads)
        for engine in todo:
            self.measure_once(engine, format, cell, round_, probe)


def add_common(parser: argparse.ArgumentParser) -> None:
    """The flags of every command here that measures."""
    cores, add = len(os.sched_getaffinity(0)), parser.add_argument
    add("--work", type=pathlib.Path, required=True, help="folder for packages, models, results")
    add("--quire", type=pathlib.Path, default=ROOT / "build/release/bin/quire")
    add("--threads", type=int, default=cores, help="of every engine; default: one per core")
    add("--lock", type=pathlib.Path, help="hold this file's lock (flock) during each measurement")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_common(parser)
    add("--shape", choices=SHAPES, default="qwen3-0.6b", help="of the random model")
    add("--layers", type=int, help="fewer than the shape has; every engine then gets the same file")
    add("--rounds", type=int, help="repetitions of each cell; default 5, with --quick 2")
    add("--quick", action="store_true", help="two rounds and half the requests")
    add("--only", default="*", help="engine/format/cell patterns: 'quire/*/decode-*,*/bf16/*'")
    add("--resume", action="store_true", help="keep the finished measurements of the last run")
    add("--redo", action="store_true", help="as --resume, but what --only names is measured anew")
    add("--prepare", action="store_true", help="install and make models, measure nothing")
    add("--jobs", type=int, default=os.cpu_count(), help="of the llama.cpp build")
    add("--write-docs", action="store_true", help="put the table into docs/benchmarks.md")
    args = parser.parse_args()
    args.rounds = args.rounds or (2 if args.quick else 5)
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    args = arguments()
    comparison = Comparison(args, Installation(args.work, args.quire, args.jobs, args.shape, args.layers))
    comparison.prepare()
    if args.prepare:
        return 1 if comparison.broken else 0
    try:
        comparison.measure()
    finally:
        for engine in comparison.engines:
            engine.close()
    comparison.results.save()
    section = table(comparison.results.data())
    (args.work / f"table-{comparison.installed.models.name}.md").write_text(section)
    print(section)
    if args.write_docs:
        write_docs(ROOT / "docs/benchmarks.md", args.shape, section)
    return 1 if comparison.broken else 0


if __name__ == "__main__":
    sys.exit(main())
