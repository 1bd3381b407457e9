#!/usr/bin/env python3
"""The same GGUF files in Quire and in llama.cpp, on each instruction set of this machine.

    python3 bench/peers/gguf_files.py --quire BIN --llama DIR --gguf FILE --work DIR [--types q4_k_m,...] [--isas avx2,...]
        [--cells depth-8192,...] [--json FILE] [--deadline SECONDS] [--limit SECONDS]

FILE is a bfloat16 model by make_gguf.py; llama-quantize makes the others from it, in the work folder. --llama is where
the tools of a build with -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON are: the kernels for each instruction set are a
library of their own there, and a run sees one of them alone. Quire is told by QUIRE_CPU_ISA.

`dynamic` stands for files that give parts of a layer other types, as Unsloth's UD-Q4_K_XL does: 4 bits for most, 5 for
what goes down, 6 for values and the table of tokens, 8 for keys.

Cells are run.py's, and count what they count there. The engines take turns in each: Quire, Quire with --quant-activations
int8, which rounds activations as llama.cpp does, and llama.cpp. Each measurement is a line of --json as soon as it is made.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import statistics
import time

import engines
from report import cell_title, figure
from run import cells

TOOLS = ("llama-bench", "llama-batched-bench", "llama-server")
# llama.cpp's library with the instructions that Quire's kernels of that name may use.
VARIANTS = {"amx": "sapphirerapids", "avx512_bf16": "zen4", "avx512_vnni": "icelake", "avx512": "skylakex", "avx2": "haswell"}
DYNAMIC = {"token_embd": "q6_k", "attn_v": "q6_k", "attn_k": "q8_0", "ffn_down": "q5_k"}
TYPES = ("q4_k_m", "q6_k", "q8_0", "dynamic")
CELLS = ("prefill-512", "decode-1", "decode-8", "decode-32")
FIGURES = ("rate", "ttft_ms", "long_ms", "cached_tokens")
ALL_CELLS = {cell.name: cell for cell in cells(quick=False)}
INT8 = "Quire, int8"


@contextlib.contextmanager
def environment(**variables: str):
    """For the programs that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def quantised(args, kind: str) -> pathlib.Path:
    """The file of this type, made unless it is there."""
    if kind == "bf16":
        return args.gguf
    file = args.work / f"{args.gguf.stem}-{kind}.gguf"
    if not file.exists():
        part, flags = file.with_suffix(".part"), []
        if kind == "dynamic":
            flags = [flag for name, type in DYNAMIC.items() for flag in ("--tensor-type", f"{name}={type}")]
        most = "q4_k_m" if kind == "dynamic" else kind
        with environment(LD_LIBRARY_PATH=str(args.llama)):
            engines.run(args.llama / "llama-quantize", *flags, args.gguf, part, most)
        part.rename(file)
    return file


def llama_of(args, isa: str) -> pathlib.Path:
    """A folder with llama.cpp's tools and its kernels for one instruction set."""
    folder = args.work / f"llama-{isa}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        kernels = f"libggml-cpu-{VARIANTS[isa]}.so"
        for file in args.llama.iterdir():
            if file.name in TOOLS or (".so" in file.name and not file.name.startswith("libggml-cpu-")) or file.name == kernels:
                shutil.copy2(file, part)
        if not (part / kernels).exists():
            raise RuntimeError(f"{args.llama} has no {kernels}: build it with -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON")
        part.rename(folder)
    return folder


class Files:
    """The part of an Installation that engines use. A format is a file's type here."""

    def __init__(self, args, isa: str):
        self.binary, self.llama, self.checkpoint = args.quire, llama_of(args, isa), args.checkpoint
        self.formats, self.file = args.types, lambda kind: quantised(args, kind)


class Quire(engines.Quire):
    def model(self, format):
        return self.installed.file(format)


class QuireInt8(Quire):
    flags = engines.QuireInt8.flags


class LlamaCpp(engines.LlamaCpp):
    def file(self, format):
        return self.installed.file(format)


ENGINES = {"Quire": Quire, INT8: QuireInt8, "llama.cpp": LlamaCpp}
ACTIVATIONS = {"Quire": "none", INT8: "int8"}  # --quant-activations of each


def measure(args, kind: str, isa: str, name: str, cell: engines.Cell) -> dict:
    """The figures of one engine, or its error; and what it took."""
    quantised(args, kind)
    files, start = Files(args, isa), time.monotonic()
    with environment(QUIRE_CPU_ISA=isa, LD_LIBRARY_PATH=str(files.llama)):
        try:
            found = ENGINES[name](files, args.threads).measure(kind, cell)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
    return found | {"seconds": round(time.monotonic() - start, 1)}


def report(runs: list[dict]) -> str:
    """Markdown: for each type and instruction set the medians of Quire, and in brackets their ratios to llama.cpp's."""
    runs = [run for run in runs if "rate" in run]
    names = [name for name in ALL_CELLS if any(run["cell"] == name for run in runs)]
    lines = ["| file | instruction set | activations | " + " | ".join(map(cell_title, names)) + " |", "|---|---|---|" + "---|" * len(names)]
    for kind, isa in dict.fromkeys((run["type"], run["isa"]) for run in runs):
        here = [run for run in runs if (run["type"], run["isa"]) == (kind, isa)]

        def median(engine, cell):
            found = [run["rate"] for run in here if (run["engine"], run["cell"]) == (engine, cell)]
            return statistics.median(found) if found else float("nan")

        for engine, activations in ACTIVATIONS.items():
            if any(run["engine"] == engine for run in here):
                texts = (f"{figure(median(engine, cell))} ({median(engine, cell) / median('llama.cpp', cell):.2f})" for cell in names)
                lines.append(f"| {kind} | {isa} | {activations} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quire", type=pathlib.Path, required=True)
    add("--llama", type=pathlib.Path, required=True)
    add("--gguf", type=pathlib.Path, required=True)
    add("--work", type=pathlib.Path, required=True)
    add("--checkpoint", type=pathlib.Path, help="what FILE was made from; its tokenizer makes the prompts of server-N and beside-N")
    add("--types", type=names, default=TYPES, help="bf16 is FILE itself")
    add("--isas", type=names, default=["avx512_bf16", "avx512", "avx2"], help=f"of {', '.join(VARIANTS)}")
    add("--cells", type=names, default=CELLS, help=f"of {', '.join(ALL_CELLS)}")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--rounds", type=int, default=2)
    add("--input", type=int, default=128, help="tokens of each prompt before streams decode")
    add("--output", type=int, default=65, help="tokens of each stream, of which the first is not counted")
    add("--activations", type=names, default=list(ACTIVATIONS.values()), help="--quant-activations of Quire's runs")
    add("--limit", type=float, help="seconds for a measurement")
    add("--deadline", type=float, help="seconds after which none is begun")
    add("--json", type=pathlib.Path)
    args = parser.parse_args()
    if not args.checkpoint and any(ALL_CELLS[name].requests and ALL_CELLS[name].kind != "turn" for name in args.cells):
        parser.error("server-N and beside-N need --checkpoint")
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def plan(args):
    """(cell, type, instruction set, round, engine) of each measurement, in order."""
    for isa, name, kind, round_ in itertools.product(args.isas, args.cells, args.types, range(args.rounds)):
        cell = dataclasses.replace(ALL_CELLS[name], limit=args.limit)
        if cell.kind == "decode":
            cell = dataclasses.replace(cell, input=args.input, output=args.output)
        for engine in ENGINES:
            activations = ACTIVATIONS.get(engine)
            if activations is None or activations in args.activations and (activations, kind) != ("int8", "bf16"):
                yield cell, kind, isa, round_, engine


def main() -> None:
    args, runs, start = arguments(), [], time.monotonic()
    for cell, kind, isa, round_, engine in plan(args):
        if args.deadline and time.monotonic() - start > args.deadline:
            print("the deadline is over: the rest is left out", flush=True)
            break
        facts = {"model": args.gguf.stem, "type": kind, "isa": isa, "engine": engine, "cell": cell.name, "threads": args.threads}
        runs.append(facts | {"round": round_} | measure(args, kind, isa, engine, cell))
        found = runs[-1]
        said = found.get("error") or "  ".join(f"{name} {found[name]:,.1f}" for name in FIGURES if name in found)
        print(f"{kind:8} {isa:12} {cell.name:13} {engine:11} {said}  ({found['seconds']} s)", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(found) + "\n")
    print(report(runs))


if __name__ == "__main__":
    main()
