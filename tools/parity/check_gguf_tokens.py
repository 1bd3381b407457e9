#!/usr/bin/env python3
"""Compares the token ids of GGUF files' tokenizers with llama.cpp's.

    check_gguf_tokens.py --llama-cpp DIR --quire PROGRAM [--llama-server PROGRAM] [--pre PRE] [--files FILE ...] [NAME ...]

DIR is llama.cpp's source, whose folder `models` holds vocabularies of real models (ggml-vocab-NAME.gguf)
and, for most, texts with the ids that its own tests expect of them. Each vocabulary becomes a model of
one small layer, which `quire serve` loads; ids come from POST /tokenize. With llama-server, which serves
the same file, further texts are compared: text_corpus.py's, and random strings from a fixed seed.
--files are whole models, which both serve as they are.
With --pre the vocabularies also take other pre-tokenizers in turn, by their names: "all" are those that
both programs know. Then the names that llama.cpp alone knows are printed.
Prints a line for each vocabulary and returns 1 if any ids differ. llama.cpp leaves out the normalisation to
form C of Qwen's and others' tokenizer.json, which is done here: of texts that it changes, differences are
counted apart. Wants numpy.
"""

import argparse
import contextlib
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.error
import urllib.request

import numpy as np

from text_corpus import CORPUS, TRICKY

# tokenizer.ggml.pre of tokenizers that normalise (src/formats/gguf/pre_tokenizers.cpp).
NORMALISING = {"qwen2", "qwen35", "deepseek-r1-qwen", "megrez", "command-r", "olmo"}
MARK = "\n__ggml_vocab_test__\n"
# What splits words apart, joins them, or is written in several ways.
PIECES = ["a", "Z", "é", "e\u0301", "ß", "Ǆ", "ſ", "你", "ひ", "カ", "한", "नि", "٣", "½", "²", "0", "12", "999", "'s", "'LL", "’t", "'",
          " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u200b", "\u0085", ".", "...", "，", "。", "$", "€", "+", "=", "/", "_", "-",
          "😀", "👩\u200d👧", "\ufe0f", "\u0000", "\u001f", "▁", "Ġ", "<0x0A>", "[INST]", "\U00010400"]


def random_texts(count: int) -> list[str]:
    source = random.Random(7)
    return ["".join(source.choice(PIECES) for _ in range(source.randint(1, 24))) for _ in range(count)]


def write_model(gguf, vocabulary: pathlib.Path, path: pathlib.Path, pre: str | None = None) -> None:
    """A llama of one layer that has the vocabulary's tokenizer, or that with another pre-tokenizer."""
    width = 32
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = pre if pre and name == "tokenizer.ggml.pre" else field.contents()
        writer.add_key_value(name, value, kind, sub_type=sub_type)
    for key, value in [("block_count", 1), ("context_length", 4096), ("embedding_length", width),
                       ("feed_forward_length", width), ("attention.head_count", 1)]:
        writer.add_uint32("llama." + key, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    tokens = len(reader.fields["tokenizer.ggml.tokens"].data)
    square, norm = np.zeros((width, width), np.float32), np.ones(width, np.float32)
    writer.add_tensor("token_embd.weight", np.zeros((tokens, width), np.float16))
    writer.add_tensor("output_norm.weight", norm)
    for part in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
        writer.add_tensor(f"blk.0.{part}.weight", square)
    for part in ["attn_norm", "ffn_norm"]:
        writer.add_tensor(f"blk.0.{part}.weight", norm)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def post(port: int, body: dict) -> dict:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/tokenize", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextlib.contextmanager
def served(command: list[str], port: int):
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(urllib.error.URLError, ConnectionError):
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                        break
                if process.poll() is not None:
                    log.seek(0)
                    raise RuntimeError(log.read()[-2000:])
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait()


def expected_cases(vocabulary: pathlib.Path) -> list[tuple[str, list[int]]]:
    texts, ids = (vocabulary.with_name(vocabulary.name + ending) for ending in (".inp", ".out"))
    if not texts.exists():
        return []
    # read_text() would make line ends of carriage returns.
    parts = texts.read_bytes().decode().split(MARK)
    lines = ids.read_text().split("\n")[: len(parts)]
    return [(text, [int(x) for x in line.split()]) for text, line in zip(parts, lines, strict=True)]


def names_of_both(llama_cpp: pathlib.Path) -> tuple[list[str], list[str]]:
    """The names of pre-tokenizers that both know, and those that only llama.cpp knows."""
    here = pathlib.Path(__file__).resolve().parents[2] / "src/formats/gguf/pre_tokenizers.cpp"
    ours = set(re.findall(r'(?:\.name = |named\()"([^"]+)"', here.read_text()))
    theirs = set(re.findall(r'tokenizer_pre == +"([^"]+)"', (llama_cpp / "src/llama-vocab.cpp").read_text()))
    return sorted(ours & theirs), sorted(theirs - ours)


def normalises(gguf, model: pathlib.Path) -> bool:
    field = gguf.GGUFReader(model).fields.get("tokenizer.ggml.pre")
    return field is not None and field.contents() in NORMALISING


def check(args: argparse.Namespace, gguf, vocabulary: pathlib.Path, pre: str | None = None) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model.gguf"
        write_model(gguf, vocabulary, model, pre)
        cases = [] if pre else [(text, False, ids) for text, ids in expected_cases(vocabulary)]
        return compare(args, gguf, model, cases)


def compare(args: argparse.Namespace, gguf, model: pathlib.Path, cases: list) -> tuple[str, bool]:
    """`cases`: texts, whether special tokens are added, and their ids; more come from llama-server."""
    with contextlib.ExitStack() as stack:
        port = free_port()
        try:
            stack.enter_context(served([args.quire, "serve", str(model)], port))
        except RuntimeError as error:
            return f"not loaded: {str(error).strip().splitlines()[-1]}", True

        def ids_here(text: str, special: bool) -> list[int]:
            return post(port, {"prompt": text, "add_special_tokens": special})["tokens"]

        if args.llama_server:
            other = free_port()
            stack.enter_context(served([args.llama_server, "-m", str(model), "-c", "512", "-np", "1", "--no-warmup"], other))
            for text in CORPUS + TRICKY + random_texts(args.random):
                for special in (False, True):
                    body = {"content": text, "add_special": special, "parse_special": True}
                    cases.append((text, special, post(other, body)["tokens"]))
        wrong, apart = 0, 0
        forgiving = normalises(gguf, model)
        for text, special, ids in cases:
            found = ids_here(text, special)
            if found == ids:
                continue
            if forgiving and unicodedata.normalize("NFC", text) != text:
                apart += 1
                continue
            wrong += 1
            if wrong <= args.show:
                print(f"  {text!r} special={special}\n    here      {found}\n    llama.cpp {ids}")
        note = f", {apart} that are normalised here" if apart else ""
        return f"{len(cases)} texts, {wrong} differ{note}", wrong == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--quire", required=True)
    parser.add_argument("--llama-server")
    parser.add_argument("--random", type=int, default=300, help="how many random strings")
    parser.add_argument("--show", type=int, default=5, help="how many differences are printed for each")
    parser.add_argument("--pre", help='names of pre-tokenizers with commas between, or "all"')
    parser.add_argument("--files", type=pathlib.Path, nargs="*", default=[], help="GGUF files of whole models")
    parser.add_argument("names", nargs="*", help="only these, such as qwen2")
    args = parser.parse_args()
    sys.path.insert(0, str(args.llama_cpp / "gguf-py"))
    import gguf

    good = True
    others = []
    if args.pre:
        both, only_there = names_of_both(args.llama_cpp)
        print("llama.cpp alone knows " + ", ".join(only_there), flush=True)
        others = both if args.pre == "all" else args.pre.split(",")
    for vocabulary in sorted((args.llama_cpp / "models").glob("ggml-vocab-*.gguf")):
        name = vocabulary.stem.removeprefix("ggml-vocab-")
        if args.names and name not in args.names:
            continue
        text, equal = check(args, gguf, vocabulary)
        good &= equal
        print(f"{name:20} {text}", flush=True)
        for pre in others:
            text, equal = check(args, gguf, vocabulary, pre)
            good &= equal
            print(f"{name + ' ' + pre:40} {text}", flush=True)
    for file in args.files:
        text, equal = compare(args, gguf, file, [])
        good &= equal
        print(f"{file.parent.name:20} {text}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
