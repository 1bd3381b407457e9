#!/usr/bin/env python3
"""Quire beside transformers and llama.cpp on one NVIDIA GPU: medians, and Quire's ratio to the best peer.

    python3 bench/peers/gpu.py --quire BIN --model DIR --gguf FILE --llama DIR [--rounds 3] [--json FILE]

DIR is a bfloat16 checkpoint (tools/bench/make_random_model.py), FILE the same one by make_gguf.py, --llama where
llama-bench and llama-batched-bench of a build with -DGGML_CUDA=ON are. Needs torch with CUDA and transformers.

Cells: decode-N is the tokens a second of N streams while all of them decode, after prompts of 512 tokens, 128 tokens
each; prefill-2048 one prompt of that length, tokens over the time to its first token. Ids are random and new in each
round; transformers gets those that Quire draws, llama.cpp draws its own.

transformers runs as `generate_batch` does (continuous batching, paged attention by SDPA) with and without CUDA graphs,
and as `generate`; each is a peer of its own. llama.cpp runs with flash attention, CUDA graphs and batches of 2,048.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

STREAMS, INPUT, OUTPUT, PREFILL = (1, 8, 32), 512, 129, 2048
CELLS = tuple(f"decode-{n}" for n in STREAMS) + (f"prefill-{PREFILL}",)
WAYS = ("generate_batch", "generate_batch, CUDA graphs", "generate")
TIMEOUT = 300  # seconds
MANAGER = "_cached_continuous_batching_manager"  # of a model in transformers


def command_output(*command) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def quire(args, seed: int) -> dict[str, float]:
    def rows(*flags):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "bench.json"
            common = ("--device", "cuda", "--kv-cache-memory", "8G", "--seed", seed, "--output-json", report)
            command_output(args.quire, "bench", "throughput", args.model, *common, *flags)
            return json.loads(report.read_text())

    decode = rows("--input-len", INPUT, "--output-len", OUTPUT, "--concurrency", ",".join(map(str, STREAMS)))
    prefill = rows("--input-len", PREFILL, "--output-len", 2, "--concurrency", 1)
    rates = {f"decode-{row['concurrency']}": row["decode_tokens_per_second"] for row in decode}
    return rates | {f"prefill-{PREFILL}": prefill[0]["prefill_tokens_per_second"]}


def llama(args) -> dict[str, float]:
    usual = ("-m", args.gguf, "-ngl", 99, "-b", 2048, "-ub", 2048)
    context = max(STREAMS) * (INPUT + OUTPUT)
    decode = ("-npp", INPUT, "-ntg", OUTPUT - 1, "-npl", ",".join(map(str, STREAMS)), "-c", context)
    out = command_output(args.llama / "llama-batched-bench", *usual, "-fa", "on", *decode, "--output-format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rates = {f"decode-{row['pl']}": row["speed_tg"] for row in rows}
    prefill = ("-fa", "on", "-p", PREFILL, "-n", 0, "-r", 3, "-o", "json")
    rates[f"prefill-{PREFILL}"] = json.loads(command_output(args.llama / "llama-bench", *usual, *prefill))[0]["avg_ts"]
    return rates


def quire_ids(seed: int, count: int, length: int, vocab: int) -> list[list[int]]:
    """Those of `quire bench throughput`: splitmix64, one after another (src/bench/random.h). Its seed is --seed and the
    number of streams."""
    bits = (1 << 64) - 1

    def mix(x):
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & bits
        x = (x ^ x >> 27) * 0x94D049BB133111EB & bits
        return x ^ x >> 31

    start = mix(seed)
    ids = [mix(start + i * 0x9E3779B97F4A7C15 & bits) % vocab for i in range(1, count * length + 1)]
    return [ids[i * length : (i + 1) * length] for i in range(count)]


def decode_rate(times: list[list[float]]) -> float:
    """Tokens a second from when the last stream has its first token to when the first has its last one."""
    begin, end = max(own[0] for own in times), min(own[-1] for own in times)
    rate = 0.0
    for own in times:
        within = [time for time in own if begin <= time <= end]
        rate += (len(within) - 1) / (within[-1] - within[0])
    return rate


class Transformers:
    """Loaded once; run(way, prompts, output) -> for each prompt when its tokens came, in seconds from the start."""

    def __init__(self, model: str):
        import torch
        import transformers

        self.torch, self.lib = torch, transformers
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.bfloat16, device_map="cuda", attn_implementation="sdpa"
        ).eval()
        self.vocab = self.model.config.vocab_size
        self.managers = {}  # of generate_batch, kept for each way
        self.versions = f"transformers {transformers.__version__}, torch {torch.__version__}"

    def run(self, way: str, prompts: list[list[int]], output: int) -> list[list[float]]:
        if way == "generate":
            return self.generate(prompts, output)
        return self.generate_batch(way, prompts, output)

    def generate(self, prompts, output):
        torch, times = self.torch, []

        class Stamps(self.lib.StoppingCriteria):
            def __call__(self, ids, scores, **kwargs):
                torch.cuda.synchronize()
                times.append(time.perf_counter())
                return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

        ids = torch.tensor(prompts, device="cuda")
        start = time.perf_counter()
        with torch.inference_mode():
            self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=output,
                min_new_tokens=output,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                stopping_criteria=[Stamps()],
            )
        return [[stamp - start for stamp in times]] * len(prompts)

    def generate_batch(self, way, prompts, output):
        """What generate_batch() does, but for its manager, which is kept: making it is not measured."""
        self.model.__dict__.pop(MANAGER, None)
        if way in self.managers:
            setattr(self.model, MANAGER, self.managers[way])
        config = self.lib.GenerationConfig(max_new_tokens=output, do_sample=False, eos_token_id=-1, pad_token_id=0)
        batching = self.lib.ContinuousBatchingConfig(
            use_cuda_graph="graphs" in way,
            allow_block_sharing=False,
            max_memory_percent=0.15,
            max_batch_tokens=max(PREFILL, 4096),
            max_requests_per_batch=max(STREAMS),
        )
        with self.model.continuous_batching_context_manager(
            generation_config=config, continuous_batching_config=batching, block=True, timeout=5, persistent_manager=True
        ) as manager:
            start = time.perf_counter()
            manager.add_requests(inputs=prompts, max_new_tokens=output, record_timestamps=True)
            done = []
            while len(done) < len(prompts):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    done.append(result)
                elif result is None and not manager.is_running():
                    raise RuntimeError("the generation thread ended")
        self.managers[way] = getattr(self.model, MANAGER)
        for result in done:
            if result.error or len(result.generated_tokens) != output:
                raise RuntimeError(f"{len(result.generated_tokens)} tokens of {output}: {result.error}")
        return [[stamp - start for stamp in result.timestamps] for result in done]

    def rates(self, way: str, seed: int) -> dict[str, float]:
        if seed == 0:
            self.run(way, quire_ids(12345, 2, 64, self.vocab), 8)  # kernels are loaded
        rates = {}
        for streams in STREAMS:
            prompts = quire_ids(seed + streams, streams, INPUT, self.vocab)
            rates[f"decode-{streams}"] = decode_rate(self.run(way, prompts, OUTPUT))
        times = self.run(way, quire_ids(seed + 1, 1, PREFILL, self.vocab), 2)
        return rates | {f"prefill-{PREFILL}": PREFILL / times[0][0]}


def worker(model: str) -> None:
    """Answers jobs, {"way", "seed"} a line, by rates or {"error"}."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout as they like
    engine = Transformers(model)
    print(json.dumps({"versions": engine.versions}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = engine.rates(job["way"], job["seed"])
        except Exception as error:  # the job fails, the worker lives
            answer = {"error": f"{type(error).__name__}: {error}"[-400:]}
        print(json.dumps(answer), file=answers, flush=True)


class Worker:
    def __init__(self, model: pathlib.Path):
        command = [sys.executable, __file__, "--worker", str(model)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = self.answer()["versions"]

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("transformers: the worker died")
        return json.loads(line)

    def rates(self, way: str, seed: int) -> dict[str, float]:
        print(json.dumps({"way": way, "seed": seed}), file=self.process.stdin, flush=True)
        answer = self.answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()


def report(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Markdown: medians of each engine, and Quire's ratio to the fastest peer of the cell."""
    engines = list(dict.fromkeys(name for one in rounds for name in one))
    medians = {
        name: {cell: statistics.median(one[name][cell] for one in rounds if name in one) for cell in CELLS}
        for name in engines
    }
    lines = ["| engine | " + " | ".join(CELLS) + " |", "|---|" + "---|" * len(CELLS)]
    for name in engines:
        lines.append(f"| {name} | " + " | ".join(f"{medians[name][cell]:,.0f}" for cell in CELLS) + " |")
    peers = [name for name in engines if name != "Quire"]
    if "Quire" in medians and peers:
        ratios = [medians["Quire"][cell] / max(medians[name][cell] for name in peers) for cell in CELLS]
        lines.append("| Quire to the best peer | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        return worker(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--llama", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    transformers = Worker(args.model)
    print(transformers.versions, flush=True)
    engines = {"Quire": lambda seed: quire(args, seed)}
    if args.llama and args.gguf:
        engines["llama.cpp"] = lambda seed: llama(args)
    for way in WAYS:
        engines[f"transformers {way}"] = lambda seed, way=way: transformers.rates(way, seed)
    rounds, failed = [], set()
    for number in range(args.rounds):
        found = {}
        for name, measure in engines.items():
            if name in failed:
                continue
            try:
                found[name] = measure(1000 * number)
                rates = "  ".join(f"{cell} {found[name][cell]:.1f}" for cell in CELLS)
                print(f"round {number + 1}  {name}: {rates}", flush=True)
            except Exception as error:  # this engine is left out, the others go on
                failed.add(name)
                print(f"round {number + 1}  {name} FAILED: {error}", flush=True)
        rounds.append(found)
    transformers.close()
    rounds = [{name: rates for name, rates in one.items() if name not in failed} for one in rounds]
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1))
    print(report(rounds))


if __name__ == "__main__":
    main()
