"""Model folders that change, lie or are too large, and `quire quantize` that is stopped: the process ends with a
sentence or does its work; no signal ends it, and nothing is left behind."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest

from conftest import BIN, MODEL, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts programs of its own")

# Untied, so that the embedding is not part of the head; a few megabytes, so that loading takes a while.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536,
    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 4096,
    "max_position_embeddings": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
RUN = ("--max-tokens", "2", "Hello")


def tensors(config):
    """Name and shape of every tensor."""
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (q, hidden)
        yield layer + "self_attn.k_proj.weight", (kv, hidden)
        yield layer + "self_attn.v_proj.weight", (kv, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, q)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield layer + "mlp.gate_proj.weight", (middle, hidden)
        yield layer + "mlp.up_proj.weight", (middle, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, middle)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def header_of(shapes):
    """The header of a safetensors file of bfloat16 tensors, and the bytes of data that it announces."""
    header, at = {}, 0
    for name, shape in shapes:
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text, at


def write_model(folder, config=CONFIG, data=None):
    """A model folder; `data(size)` makes the bytes of all weights."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(MODEL) / name, folder)
    (folder / "config.json").write_text(json.dumps(config))
    header, size = header_of(tensors(config))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(header)
        if data:
            file.write(data(size))
        else:
            file.truncate(len(header) + size)  # a hole: takes no room
    return folder


def random_weights(size):
    """Small bfloat16 numbers."""
    low = random.Random(7).randbytes(size // 2)
    out = bytearray(size)
    out[0::2] = low
    out[1::2] = bytes([0x3c, 0xbc]) * (size // 4)
    return bytes(out)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("files") / "pristine", data=random_weights)


def run(*command, **more):
    return subprocess.run([BIN, *map(str, command)], capture_output=True, text=True, timeout=120, **more)


def assert_sentence(result, *words):
    """Exit 1 and one line that says why."""
    assert result.returncode == 1, result
    lines = [line for line in result.stderr.splitlines() if line.startswith("quire: ")]
    assert len(lines) == 1 and "unexpected" not in lines[0], result.stderr
    for word in words:
        assert re.search(word, lines[0]), lines[0]
    return lines[0]


def same_end(status, out, err, again):
    """Whether a run ended as another one did: the same text, and the same error if any."""
    errors = [[line for line in text.splitlines() if line.startswith("quire: ")] for text in (err, again.stderr)]
    return (status, out, errors[0]) == (again.returncode, again.stdout, errors[1])


def truncate(weights, chance):
    os.truncate(weights, chance.randrange(os.path.getsize(weights)))


def overwrite(weights, chance):
    with open(weights, "r+b") as file:
        file.seek(chance.randrange(4096, os.path.getsize(weights)))
        file.write(b"\x7f" * 100_000)


def replace(weights, chance):
    """By a file that is cut, as an interrupted download leaves it."""
    other = weights.with_suffix(".new")
    shutil.copy(weights, other)
    truncate(other, chance)
    os.replace(other, weights)


class Moments:
    """Random moments in the life of processes that are as fast as the machine is just now: what came too late makes the
    next ones earlier."""

    def __init__(self, chance):
        self.chance, self.latest = chance, 1.0

    def wait(self):
        time.sleep(self.chance.uniform(0, self.latest))

    def learn(self, too_late):
        self.latest = max(0.001, self.latest * 0.9) if too_late else min(60, self.latest * 1.1)


def test_files_that_change_while_they_are_loaded(pristine, tmp_path):
    """At 100 random moments: the answer of the model before or after the change, or a sentence."""
    expected = run("run", pristine, *RUN)
    assert expected.returncode == 0, expected.stderr
    chance = random.Random(11)
    moments = Moments(chance)
    failures = 0
    for i in range(1000):
        if i >= 100 and failures > 12:  # fewer: the changes came too late to show anything
            return
        folder = tmp_path / "model"
        shutil.copytree(pristine, folder)
        process = subprocess.Popen([BIN, "run", folder, *RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        moments.wait()
        (truncate, truncate, overwrite, replace)[i % 4](folder / "model.safetensors", chance)
        out, err = process.communicate(timeout=120)
        loaded = process.returncode == 0 or "loaded in" in err
        moments.learn(too_late=loaded)
        if loaded:  # the changed model may have no answer: what `overwrite` writes makes logits that are not finite
            assert out == expected.stdout or same_end(process.returncode, out, err, run("run", folder, *RUN)), i
        else:
            failures += 1
            assert_sentence(subprocess.CompletedProcess([], process.returncode, out, err), "/model/model.safetensors: ")
        shutil.rmtree(folder)
    pytest.fail(f"only {failures} changes came in time to show anything")


def test_files_that_change_while_they_are_served(pristine, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(pristine, folder)
    weights = folder / "model.safetensors"
    with start_server("--no-enable-prefix-caching", model=folder) as server:
        texts = [f"word {i} of the embedding" for i in range(8)]

        def answers():
            return [server.completion(prompt=text, max_tokens=4, temperature=0).json()["choices"][0]["text"] for text in texts]

        before = answers()
        overwrite(weights, random.Random(1))
        assert answers() == before
        os.truncate(weights, 0)
        assert answers() == before
        weights.unlink()
        assert answers() == before


def test_a_cut_file_is_named(pristine, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(pristine, folder)
    truncate(folder / "model.safetensors", random.Random(3))
    assert_sentence(run("run", folder, *RUN), "/model/model.safetensors: ")


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_quantize_killed_at_random_moments_leaves_nothing(pristine, tmp_path):
    target = tmp_path / "q"
    assert run("quantize", pristine, target).returncode == 0
    complete = files_of(target)
    assert sorted(os.listdir(tmp_path)) == ["q"]
    chance = random.Random(5)
    moments = Moments(chance)
    partial = 0
    for i in range(1000):
        if i >= 50 and partial > 5:
            break
        shutil.rmtree(target, ignore_errors=True)
        process = subprocess.Popen([BIN, "quantize", pristine, target], stdout=subprocess.DEVNULL)
        moments.wait()
        process.kill()
        process.wait()
        left = set(os.listdir(tmp_path)) - {"q"}
        assert left <= {".q.quire-partial", ".q.quire-lock"}
        partial += ".q.quire-partial" in left
        moments.learn(too_late=target.exists())
        assert not target.exists() or files_of(target) == complete
    assert partial > 5
    shutil.rmtree(target, ignore_errors=True)
    assert run("quantize", pristine, target).returncode == 0
    assert files_of(target) == complete
    assert sorted(os.listdir(tmp_path)) == ["q"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_quantize_removes_its_folder_when_it_is_stopped(pristine, tmp_path, stop):
    target = tmp_path / "q"
    stopped = 0
    for i in range(100):
        if i >= 5 and stopped > 0:
            return
        process = subprocess.Popen([BIN, "quantize", pristine, target], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while not (tmp_path / ".q.quire-partial").exists() and process.poll() is None:
            assert time.monotonic() < deadline
        process.send_signal(stop)
        _, err = process.communicate(timeout=120)
        if process.returncode == 0:  # it was done before it saw the signal
            shutil.rmtree(target)
        else:
            stopped += 1
            assert process.returncode == 128 + stop and "stopped; nothing was written" in err
        assert os.listdir(tmp_path) == []
    pytest.fail("it was always done before it could be stopped")


def stop_at_work(process, partial):
    """Stops a `quire quantize` that has begun to write; False if it was done before."""
    while not partial.exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{process.pid}/stat")
    while process.poll() is None and stat.read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    return partial.exists()


def test_two_that_quantize_to_one_place(pristine, tmp_path):
    target = tmp_path / "q"
    for _ in range(100):
        first = subprocess.Popen([BIN, "quantize", pristine, target], stdout=subprocess.DEVNULL)
        try:
            stopped = stop_at_work(first, tmp_path / ".q.quire-partial")
            if stopped:
                assert_sentence(run("quantize", pristine, target), "another process is writing there")
        finally:
            first.send_signal(signal.SIGCONT)
        assert first.wait(120) == 0
        assert sorted(os.listdir(tmp_path)) == ["q"]
        if stopped:
            return
        shutil.rmtree(target)
    pytest.fail("it was always done before it could be stopped")


def test_a_model_that_does_not_fit_is_refused_unread(tmp_path):
    """900 GiB of holes."""
    config = CONFIG | {"hidden_size": 16384, "intermediate_size": 131072, "num_hidden_layers": 64,
                       "num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128, "vocab_size": 65536}
    folder = write_model(tmp_path / "huge", config)
    began = time.monotonic()
    line = assert_sentence(run("run", folder, *RUN), r"/huge: needs \d{3,}\.\d GiB of memory", r"\.\d GiB are free",
                           r"`quire quantize --bits 4` makes it about \d+\.\d GiB")
    assert time.monotonic() - began < 120  # far below what reading it would take
    needs, fours = float(re.search(r"needs (\S+) GiB", line)[1]), float(re.search(r"about (\S+) GiB", line)[1])
    size = os.path.getsize(folder / "model.safetensors") / 2**30
    assert size < needs < 1.2 * size and 0.25 * size < fours < 0.5 * size


def test_a_bad_tokenizer_is_said_before_all_weights_are_read(tmp_path):
    """Both are read at the same time. Seen by the memory: a large model's weights never are in it."""
    config = {**CONFIG, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16}
    folder = write_model(tmp_path / "model", config)
    size = (folder / "model.safetensors").stat().st_size
    (folder / "tokenizer.json").write_text("{")
    for _ in range(5):
        process = subprocess.Popen([BIN, "run", folder, *RUN], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        log = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
        assert process.returncode == 1 and "tokenizer.json" in log.splitlines()[-1], log
        if usage.ru_maxrss * 1024 < size / 2:  # else a busy machine was late
            return
    pytest.fail(f"{usage.ru_maxrss} KiB in memory")


def test_absurd_numbers_in_the_config_end_in_a_sentence(pristine, tmp_path):
    for key in ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                "head_dim", "vocab_size", "max_position_embeddings"):
        for value in (2**24, 2**31 - 1, 10**30, 0):
            folder = tmp_path / "model"
            shutil.copytree(pristine, folder)
            (folder / "config.json").write_text(json.dumps(CONFIG | {key: value}))
            result = run("run", folder, *RUN)
            if not (key == "max_position_embeddings" and result.returncode == 0):
                assert_sentence(result, "/model")
            shutil.rmtree(folder)


def test_strings_of_a_checkpoint_reach_the_terminal_escaped(pristine, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(pristine, folder)
    evil = "\x1b[2J\x1b]0;owned\x07\nquire: all is well\r"
    (folder / "config.json").write_text(json.dumps(CONFIG | {"architectures": [evil]}))
    line = assert_sentence(run("run", folder, *RUN), "is not supported")
    assert r"\x1b[2J" in line and "\x1b" not in line
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header, size = header_of([*tensors(CONFIG), (evil, (2,))])
    with open(folder / "model.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    assert "\x1b" not in assert_sentence(run("run", folder, *RUN), "does not use", re.escape(r"\x1b[2J"))
    shutil.copy(pristine / "model.safetensors", folder)
    (folder / "chat_template.jinja").write_text("{{ raise_exception(%s) }}" % json.dumps(evil))
    assert "\x1b" not in assert_sentence(run("run", folder, *RUN), re.escape(r"\x1b[2J"))


def test_what_a_model_writes_does_not_act_on_the_terminal(tmp_path):
    """Nearly every token of this vocabulary begins with ESC."""
    folder = write_model(tmp_path / "model", CONFIG | {"vocab_size": 64, "num_hidden_layers": 1}, data=random_weights)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    vocab = {"h": 0} | {"\u011b" + chr(ord("!") + i): i for i in range(1, 64)}  # U+011B stands for byte 0x1b
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    (folder / "tokenizer_config.json").unlink()
    command = ("run", folder, "--max-tokens", "8", "h")
    piped = run(*command)
    assert piped.returncode == 0 and "\x1b" in piped.stdout, piped
    ours, theirs = os.openpty()
    process = subprocess.Popen([BIN, *map(str, command)], stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not more:
            break
        shown += more
    assert process.wait(120) == 0
    os.close(ours)
    assert b"\x1b" not in shown and shown.decode().rstrip() == piped.stdout.replace("\x1b", r"\x1b").rstrip()
