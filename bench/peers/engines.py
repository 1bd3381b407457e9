"""The engines under one interface: measure(format, cell) -> figures.

Formats are bf16, 8-bit, 4-bit, and mxfp4 (experts in it, all else bf16). A cell's figures are {"rate": tok/s} and for servers "ttft_ms" too.
Offline, `rate` of a prefill is prompt tokens over the time to the first token of one prompt; of a decode
it is the tokens after each stream's first over the time they took, with all streams decoding. Of a chat's
second turn it is the tokens of its whole prompt over the time to its first token.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import select
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

from install import HERE, LLAMA_CPP_PYTHON, Installation

TIMEOUT = 300  # seconds; a measurement that hangs is a failed one
LONG_TIMEOUT = 1800  # the same with prompts of more than LONG tokens
LONG = 4096
SERVED = ("server", "beside", "turn")
START_TIMEOUT = 120
ANSWER = 64  # tokens of a conversation's first answer


@dataclasses.dataclass(frozen=True)
class Cell:
    # prefill, decode, depth (a decode after a long prompt), server, beside (a server, while a long prompt comes), turn (a
    # chat's second one)
    kind: str
    streams: int
    input: int
    output: int
    requests: int = 0  # of a server, or conversations
    long: int = 0  # tokens of the prompt that comes beside them
    limit: float | None = None  # seconds for a measurement; None: by the lengths of prompts

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.input if self.kind in ('prefill', 'depth', 'turn') else self.streams}"

    @property
    def timeout(self) -> float:
        return self.limit or (LONG_TIMEOUT if max(self.input, self.long) > LONG else TIMEOUT)


class MeasurementError(RuntimeError):
    pass


def run(*command, timeout: float = TIMEOUT) -> str:
    """stdout of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise MeasurementError(f"{command[0]}: exit {done.returncode}: {said}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def settle(pid: int) -> None:
    """Waits until a process has not grown for a second: Quire has the system give it memory for its cache when it is idle,
    llama.cpp before /health."""
    before, now = None, -1
    while now != before:
        before, now = now, int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
        time.sleep(1)


@contextlib.contextmanager
def server(port: int, *command):
    """A server started by `command` that answers /health on `port` and has its memory; stopped at the end."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=log, stderr=subprocess.STDOUT
        )
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while True:
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise MeasurementError(f"{command[0]} did not start: {log.read()[-600:]}")
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                    break
                time.sleep(0.1)
            settle(process.pid)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def load(installed: Installation, port: int, output: int, *flags, timeout: float = TIMEOUT) -> dict:
    """What `quire bench serve` reports about the server on `port`, whosever it is: prompts of token ids, no two alike, and
    answers of `output` tokens. An answer that is shorter fails, as one that does not come."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            *(installed.binary, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--model", "default"),
            *("--tokenizer", installed.checkpoint, "--prompt-token-ids", "--ignore-eos", "--output-len", output, *flags),
            *("--save-result", "--result-dir", folder, "--result-filename", "load.json"),
            timeout=timeout,
        )
        result = json.loads((pathlib.Path(folder) / "load.json").read_text())
    if result["total_output_tokens"] != result["completed"] * output:
        raise MeasurementError(f"{result['total_output_tokens']} tokens came in {result['completed']} answers of {output}")
    return result


def random_ids(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(300, 16000) for _ in range(count)]


def post(port: int, path: str, body: dict, timeout: float) -> dict:
    """The answer of the server on `port`."""
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, kind)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.loads(response.read())


def first_token(port: int, prompt: list[int], timeout: float) -> tuple[float, int]:
    """Seconds from the request to its only token, and how many of the prompt's tokens the server had kept."""
    body = {"model": "default", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    start = time.monotonic()
    usage = post(port, "/v1/completions", body, timeout)["usage"]
    took = time.monotonic() - start
    if usage["prompt_tokens"] < len(prompt):
        raise MeasurementError(f"the prompt of {len(prompt)} tokens counted as {usage['prompt_tokens']}")
    return took, (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


class LongPrompt:
    """Sends one prompt of `tokens` random ids to the server on `port` after a while, for one token; `seconds()` it took."""

    AFTER = 2.0  # seconds, when the clients beside it are at work

    def __init__(self, port: int, tokens: int, timeout: float = LONG_TIMEOUT):
        self.port, self.prompt, self.timeout = port, random_ids(random.Random(tokens), tokens), timeout
        self.sent, self.took, self.error = False, None, None
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()

    def send(self) -> None:
        time.sleep(self.AFTER)
        self.sent = True
        try:
            self.took, _ = first_token(self.port, self.prompt, self.timeout)
        except Exception as error:
            self.error = error

    def seconds(self) -> float:
        self.thread.join()
        if self.error:
            raise MeasurementError(f"the long prompt: {self.error}")
        return self.took


def read_rate(installed: Installation, threads: int) -> float:
    """GB/s at which this machine reads memory now, as Quire's roofline has it: one probe for all engines."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "roofline.json"
        run(installed.binary, "bench", "roofline", "--threads", threads, "--output-json", report)
        return json.loads(report.read_text())["roofline"]["read_bytes_per_second"] / 1e9


class Engine:
    name: str
    load_flags: tuple = ()  # of a server whose prompts never repeat
    formats: tuple[str, ...] = ("bf16", "8-bit", "4-bit", "mxfp4")
    kinds: tuple[str, ...] = ("prefill", "decode")
    most_streams: int | None = None

    def __init__(self, installed: Installation, threads: int):
        self.installed, self.threads = installed, threads
        self.formats = tuple(format for format in self.formats if format in installed.formats)

    def prepare(self, formats: list[str]) -> None:
        """Installs the engine and makes its models of these formats."""

    def versions(self) -> str:
        raise NotImplementedError

    def measure(self, format: str, cell: Cell) -> dict:
        if cell.kind not in SERVED:
            return {"rate": self.offline_rate(format, cell)}
        if cell.kind == "turn":
            return self.second_turn(format, cell)
        limits = ("--num-prompts", cell.requests, "--max-concurrency", cell.streams)
        lengths = ("--input-len", cell.input, "--num-warmups", 1)
        flags = (*limits, *lengths)
        result = self.serve(format, cell.streams, (cell.input, cell.output), *flags, long=cell.long, timeout=cell.timeout)
        figures = {"rate": result["output_throughput"], "ttft_ms": result["mean_ttft_ms"]}
        return figures | ({"long_ms": result["long_ms"]} if cell.long else {})

    def serve(self, format: str, streams: int, lengths: tuple[int, int], *flags, long: int = 0, timeout: float = TIMEOUT) -> dict:
        """Starts the server for `streams` sequences of so many tokens, in and out, and loads it: flags of `bench serve`.
        While it is loaded, a prompt of `long` tokens comes."""
        port = free_port()
        with server(port, *self.server_command(format, port, streams, sum(lengths), long), *self.load_flags):
            beside = LongPrompt(port, long, timeout) if long else None
            result = load(self.installed, port, lengths[1], *flags, timeout=timeout)
            if beside and not beside.sent:
                raise MeasurementError("the load was over before the long prompt came")
            return result | ({"long_ms": 1e3 * beside.seconds()} if beside else {})

    def second_turn(self, format: str, cell: Cell) -> dict:
        """Conversations one after another: a prompt and its answer, `cell.input` tokens together, then all of that and a
        message of `cell.output` tokens, whose first token is timed. The median of them."""
        port, draw, found = free_port(), random.Random(0), []
        with server(port, *self.server_command(format, port, 1, cell.input + cell.output, 0)):
            end = time.monotonic() + cell.timeout
            for _ in range(cell.requests):
                prompt = random_ids(draw, cell.input - ANSWER)
                history = prompt + self.answer(port, prompt, max(end - time.monotonic(), 1))
                if len(history) != cell.input:
                    raise MeasurementError(f"asked for {ANSWER} tokens, got {len(history) - len(prompt)}")
                found.append(first_token(port, history + random_ids(draw, cell.output), max(end - time.monotonic(), 1)))
        seconds = statistics.median(took for took, _ in found)
        kept = min(cached for _, cached in found)
        return {"rate": (cell.input + cell.output) / seconds, "ttft_ms": 1e3 * seconds, "cached_tokens": kept}

    def answer(self, port: int, prompt: list[int], timeout: float) -> list[int]:
        """The ids of ANSWER tokens."""
        raise NotImplementedError

    def offline_rate(self, format: str, cell: Cell) -> float:
        raise NotImplementedError

    def server_command(self, format: str, port: int, streams: int, length: int, long: int) -> tuple:
        raise NotImplementedError

    def close(self) -> None:
        """Frees what measure() kept loaded."""


class Quire(Engine):
    name = "Quire"
    kinds = ("prefill", "decode", "depth", *SERVED)
    flags = ("--device", "cpu")

    def prepare(self, formats):
        for bits in (8, 4):
            if f"{bits}-bit" in formats:
                self.installed.make(
                    self.model(f"{bits}-bit"),
                    lambda part, bits=bits: self.installed.quire(bits, part),
                )

    def versions(self):
        commit = subprocess.run(
            ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True
        )
        return f"Quire {commit.stdout.strip() or 'unknown'}"

    def model(self, format: str) -> pathlib.Path:
        quantised = format in ("8-bit", "4-bit")
        return self.installed.models / f"quire-{format}" if quantised else self.installed.checkpoint

    def server_command(self, format, port, streams, length, long):
        flags = ("--port", port, "--threads", self.threads, "--max-num-seqs", streams + bool(long))
        quiet = ("--served-model-name", "default", "--disable-access-log")
        return (self.installed.binary, "serve", self.model(format), *self.flags, *flags, *quiet)

    def offline_rate(self, format, cell):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "bench.json"
            # One step takes all prompts, so that the streams of a decode start, and end, together.
            budget = max(2048, cell.streams * cell.input if cell.streams > 1 else 0)
            run(
                *(self.installed.binary, "bench", "throughput", self.model(format), *self.flags, "--threads", self.threads),
                *("--input-len", cell.input, "--output-len", max(cell.output, 2)),
                *("--concurrency", cell.streams, "--max-num-batched-tokens", budget),
                *("--output-json", report),
                timeout=cell.timeout,
            )
            row = json.loads(report.read_text())[0]
        key = "prefill" if cell.kind == "prefill" else "decode"
        if row[f"{key}_tokens_per_second"] is None:
            raise MeasurementError(f"{cell.name} was too short to measure")
        return row[f"{key}_tokens_per_second"]

    def answer(self, port, prompt, timeout):
        body = {"prompt": prompt, "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return post(port, "/v1/completions", body | {"model": "default"}, timeout)["choices"][0]["token_ids"]


class QuireInt8(Quire):
    """With activations rounded to 8 bits, as llama.cpp, OpenVINO and mistral.rs round them for weights of few bits."""

    name = "Quire, int8 activations"
    formats = ("8-bit", "4-bit")
    flags = (*Quire.flags, "--quant-activations", "int8")


class LlamaCpp(Engine):
    name = "llama.cpp"
    kinds = ("prefill", "decode", "depth", *SERVED)
    # The file of a checkpoint with experts in mxfp4 holds them so.
    files = {"bf16": "bf16", "8-bit": "q8_0", "4-bit": "q4_0", "mxfp4": "bf16"}
    # Prompts of a load never repeat, so the host-side prompt cache could only cost time.
    load_flags = ("--cache-ram", 0)

    def prepare(self, formats):
        self.installed.make(self.installed.llama, self.installed.build_llama)
        for kind in dict.fromkeys(["bf16"] + [self.files[format] for format in formats]):
            self.installed.make(
                self.installed.models / f"{kind}.gguf",
                lambda part, kind=kind: self.installed.gguf(kind, part),
            )

    def versions(self):
        return f"llama.cpp of llama-cpp-python {LLAMA_CPP_PYTHON}, native build"

    def file(self, format: str) -> pathlib.Path:
        return self.installed.models / f"{self.files[format]}.gguf"

    def offline_rate(self, format, cell):
        model = ("-m", self.file(format), "-t", self.threads)
        if cell.kind == "prefill":
            flags = ("-p", cell.input, "-n", 0, "-r", 1, "-o", "json")
            return json.loads(run(self.installed.llama / "llama-bench", *model, *flags, timeout=cell.timeout))[0]["avg_ts"]
        lengths = ("-npp", cell.input, "-ntg", cell.output - 1, "-npl", cell.streams)
        context = ("-c", cell.streams * (cell.input + cell.output), "-tb", self.threads)
        # Its flash attention makes prompts faster, and decode slower: after 2,048 tokens by 0.7.
        attention = ("-fa", "off") if cell.kind == "depth" else ()
        tool = self.installed.llama / "llama-batched-bench"
        out = run(tool, *model, *lengths, *context, *attention, "--output-format", "jsonl", timeout=cell.timeout)
        return json.loads([line for line in out.splitlines() if line[:1] == "{"][-1])["speed_tg"]

    def server_command(self, format, port, streams, length, long):
        # A long prompt needs one cache for all slots: else each would have an equal part of it.
        flags = ("-np", streams + bool(long), "--host", "127.0.0.1", "--port", port)
        context = streams * (length + 64) + (long + 64 if long else 0)
        threads = ("-t", self.threads, "-tb", self.threads, "-c", context, *(("--kv-unified",) if long else ()))
        return (self.installed.llama / "llama-server", "-m", self.file(format), *threads, *flags)

    def answer(self, port, prompt, timeout):
        body = {"prompt": prompt, "n_predict": ANSWER, "temperature": 0, "ignore_eos": True, "return_tokens": True}
        return post(port, "/completion", body, timeout)["tokens"]


class LlamaCppAllFourBits(LlamaCpp):
    """The same with a head of 4 bits, too, which llama-quantize keeps in Q6_K where it is the table of tokens."""

    name = "llama.cpp, all of it q4_0"
    formats = ("4-bit",)
    files = {"4-bit": "q4_0-head"}


class Worker(Engine):
    """An engine inside worker.py: loaded once per format, stopped (SIGSTOP) while others measure."""

    kind: str

    def __init__(self, installed: Installation, threads: int):
        super().__init__(installed, threads)
        self.process, self.format = None, None

    def model(self, format: str) -> pathlib.Path:
        raise NotImplementedError

    def versions(self):
        package = {"openvino": "openvino-genai"}.get(self.kind, self.kind)
        code = f"from importlib.metadata import version as v; print(v('{package}'), v('torch'))"
        version, torch = run(self.installed.python, "-c", code).split()
        return f"{self.name} {version}" + (f" with torch {torch}" if self.kind == "transformers" else "")

    def answer(self) -> dict:
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.close()
            raise MeasurementError(f"{self.name}: the worker " + ("died" if ready else "hangs"))
        result = json.loads(line)
        if "error" in result:
            raise MeasurementError(f"{self.name}: {result['error']}")
        return result

    def start(self, format: str) -> None:
        self.close()
        command = (self.installed.python, HERE / "worker.py", self.kind, self.model(format))
        self.process = subprocess.Popen(
            [str(part) for part in (*command, self.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(self.threads)},
        )
        self.format = format
        self.answer()

    def offline_rate(self, format, cell):
        if self.format != format:
            self.start(format)
        os.kill(self.process.pid, signal.SIGCONT)
        job = {"streams": cell.streams, "input": cell.input, "output": cell.output}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        seconds = self.answer()
        os.kill(self.process.pid, signal.SIGSTOP)
        if cell.kind == "prefill":
            return cell.streams * cell.input / seconds["first"]
        return cell.streams * (cell.output - 1) / seconds["rest"]

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process, self.format = None, None


class OpenVino(Worker):
    name, kind = "OpenVINO GenAI", "openvino"
    formats = ("bf16", "8-bit", "4-bit")
    files = {"bf16": "bf16", "8-bit": "int8", "4-bit": "int4"}

    def model(self, format):
        return self.installed.models / f"openvino-{self.files[format]}"

    def prepare(self, formats):
        installed = self.installed
        if all(self.model(format).exists() for format in formats):
            return
        installed.make(installed.work / "export-packages", installed.export_packages)
        for format in formats:
            installed.make(
                self.model(format),
                lambda part, format=format: installed.openvino(self.files[format], part),
            )


class Transformers(Worker):
    name, kind = "transformers", "transformers"
    formats = ("bf16",)

    def model(self, format):
        return self.installed.checkpoint


class MistralRs(Worker):
    """On llama.cpp's files. It chooses its instructions itself."""

    name, kind = "mistral.rs", "mistralrs"
    formats = ("bf16", "8-bit", "4-bit")
    most_streams = 1

    def model(self, format):
        return LlamaCpp(self.installed, self.threads).file(format)

    def prepare(self, formats):
        LlamaCpp(self.installed, self.threads).prepare(formats)
