#!/usr/bin/env python3
"""The same GGUF files in Quire and in llama.cpp, on each instruction set of this machine.

    python3 bench/peers/gguf_files.py --quire BIN --llama DIR --gguf FILE --work DIR [--types q4_k_m,...] [--isas avx2,...]

FILE is a bfloat16 model by make_gguf.py; llama-quantize makes the others from it, in the work folder. --llama is where
the tools of a build with -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON are: the kernels for each instruction set are a
library of their own there, and a run sees one of them alone. Quire is told by QUIRE_CPU_ISA.

`dynamic` stands for files that give parts of a layer other types, as Unsloth's UD-Q4_K_XL does: 4 bits for most, 5 for
what goes down, 6 for values and the table of tokens, 8 for keys.

Cells: prefill-512 is one prompt's tokens over the time to its first token; decode-N the tokens a second of N streams while
all of them decode, after prompts of 128 tokens (--input), 63 tokens each (--output, less one). The engines take turns in each round: Quire, Quire with
--quant-activations int8, which rounds activations as llama.cpp does, and llama.cpp.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

STREAMS, PREFILL = (1, 8, 32), 512
CELLS = (f"prefill-{PREFILL}",) + tuple(f"decode-{n}" for n in STREAMS)
TOOLS = ("llama-bench", "llama-batched-bench")
# llama.cpp's library with the instructions that Quire's kernels of that name may use.
VARIANTS = {"amx": "sapphirerapids", "avx512_bf16": "zen4", "avx512_vnni": "icelake", "avx512": "skylakex", "avx2": "haswell"}
DYNAMIC = {"token_embd": "q6_k", "attn_v": "q6_k", "attn_k": "q8_0", "ffn_down": "q5_k"}
TYPES = ("q4_k_m", "q6_k", "q8_0", "dynamic")
TIMEOUT = 300  # seconds
ACTIVATIONS = {"Quire": "none", "Quire, int8": "int8"}  # --quant-activations of each


def command_output(*command, **environment) -> str:
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def quantised(args, kind: str) -> pathlib.Path:
    """The file of this type, made unless it is there."""
    file = args.work / f"{args.gguf.stem}-{kind}.gguf"
    if not file.exists():
        part, flags = file.with_suffix(".part"), []
        if kind == "dynamic":
            flags = [flag for name, type in DYNAMIC.items() for flag in ("--tensor-type", f"{name}={type}")]
        most = "q4_k_m" if kind == "dynamic" else kind
        command_output(args.llama / "llama-quantize", *flags, args.gguf, part, most, LD_LIBRARY_PATH=str(args.llama))
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


def quire(args, isa: str, model: pathlib.Path, seed: int, activations: str) -> dict[str, float]:
    def rows(*flags):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "bench.json"
            common = ("--device", "cpu", "--threads", args.threads, "--seed", seed, "--output-json", report)
            common += ("--quant-activations", activations)
            command_output(args.quire, "bench", "throughput", model, *common, *flags, QUIRE_CPU_ISA=isa)
            return json.loads(report.read_text())

    streams = ",".join(map(str, STREAMS))
    # One step takes all prompts, so that the streams start, and end, together.
    budget = ("--max-num-batched-tokens", max(STREAMS) * args.input)
    decode = rows("--input-len", args.input, "--output-len", args.output, "--concurrency", streams, *budget)
    prefill = rows("--input-len", PREFILL, "--output-len", 2, "--concurrency", 1)
    rates = {f"decode-{row['concurrency']}": row["decode_tokens_per_second"] for row in decode}
    return rates | {f"prefill-{PREFILL}": prefill[0]["prefill_tokens_per_second"]}


def llama(args, isa: str, model: pathlib.Path) -> dict[str, float]:
    tools = llama_of(args, isa)
    own = {"LD_LIBRARY_PATH": str(tools)}
    usual = ("-m", model, "-t", args.threads)
    lengths = ("-npp", args.input, "-ntg", args.output - 1, "-npl", ",".join(map(str, STREAMS)))
    context = ("-c", max(STREAMS) * (args.input + args.output), "-tb", args.threads)
    out = command_output(tools / "llama-batched-bench", *usual, *lengths, *context, "--output-format", "jsonl", **own)
    rates = {f"decode-{row['pl']}": row["speed_tg"] for row in map(json.loads, (l for l in out.splitlines() if l[:1] == "{"))}
    prefill = command_output(tools / "llama-bench", *usual, "-p", PREFILL, "-n", 0, "-r", 2, "-o", "json", **own)
    return rates | {f"prefill-{PREFILL}": json.loads(prefill)[0]["avg_ts"]}


def report(runs: list[dict]) -> str:
    """Markdown: for each type and instruction set the medians of Quire, and in brackets their ratios to llama.cpp's."""
    lines = ["| file | instruction set | activations | " + " | ".join(CELLS) + " |", "|---|---|---|" + "---|" * len(CELLS)]
    for kind, isa in dict.fromkeys((run["type"], run["isa"]) for run in runs):
        def median(engine, cell):
            found = [run["rates"][cell] for run in runs if (run["type"], run["isa"], run["engine"]) == (kind, isa, engine)]
            return statistics.median(found) if found else float("nan")

        for engine, activations in ACTIVATIONS.items():
            if not any((run["type"], run["isa"], run["engine"]) == (kind, isa, engine) for run in runs):
                continue
            cells = (f"{median(engine, cell):,.1f} ({median(engine, cell) / median('llama.cpp', cell):.2f})" for cell in CELLS)
            lines.append(f"| {kind} | {isa} | {activations} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quire", type=pathlib.Path, required=True)
    add("--llama", type=pathlib.Path, required=True)
    add("--gguf", type=pathlib.Path, required=True)
    add("--work", type=pathlib.Path, required=True)
    add("--types", default=",".join(TYPES))
    add("--isas", default="avx512_bf16,avx512,avx2", help=f"of {', '.join(VARIANTS)}")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--rounds", type=int, default=2)
    add("--input", type=int, default=128, help="tokens of each prompt before streams decode")
    add("--output", type=int, default=64)
    add("--activations", default="none,int8", help="--quant-activations of Quire's runs")
    add("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    runs = []
    for kind, isa, round_ in itertools.product(args.types.split(","), args.isas.split(","), range(args.rounds)):
        model = quantised(args, kind)
        for engine in (*(name for name, kind in ACTIVATIONS.items() if kind in args.activations.split(",")), "llama.cpp"):
            own = engine in ACTIVATIONS
            rates = quire(args, isa, model, 1000 * round_, ACTIVATIONS[engine]) if own else llama(args, isa, model)
            runs.append({"type": kind, "isa": isa, "engine": engine, "rates": rates})
            said = "  ".join(f"{cell} {rates[cell]:.1f}" for cell in CELLS)
            print(f"{kind:8} {isa:12} {engine:11} {said}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(runs, indent=1) + "\n")
    print(report(runs))


if __name__ == "__main__":
    main()
