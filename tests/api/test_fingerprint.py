"""`system_fingerprint`: what decides the bits of an answer, apart from the request."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import BIN, ROOT, start_server

QUANTISED = ROOT / "tests/parity/models/qwen3-4bit"
MODEL = ROOT / "tests/parity/models/qwen3"
ROUNDED = ROOT / "tests/parity/models/qwen3-w8a8-bf16"


def fingerprint(model=MODEL, *flags, environment=None):
    """What a server that is started for it answers with."""
    before = dict(os.environ)
    os.environ.update(environment or {})
    try:
        with start_server("--disable-access-log", *flags, model=model) as server:
            answer = server.completion(max_tokens=1).json()["system_fingerprint"]
            assert any(f"bits    {answer}\n" == line for line in server.log)
            return answer
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def usual():
    return fingerprint()


def cpu_isas():
    """The names of this machine's instruction sets, as the program lists them."""
    done = subprocess.run([BIN, "run", MODEL, "Hi"], env={**os.environ, "QUIRE_CPU_ISA": "none"}, capture_output=True, text=True,
                          timeout=120)
    return re.search(r"choose one of:(.*)", done.stderr)[1].split()


def test_it_is_in_every_answer(server, client, model):
    whole = server.completion().json()["system_fingerprint"]
    assert re.fullmatch("fp_[0-9a-f]{16}", whole)
    usage = {"include_usage": True}
    for path, body in (("/v1/completions", {"prompt": "Hello"}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})):
        assert server.post(path, {**body, "max_tokens": 3}).json()["system_fingerprint"] == whole
        chunks = server.post(path, {**body, "max_tokens": 3, "stream": True, "stream_options": usage}).events()
        assert len(chunks) > 2 and {chunk["system_fingerprint"] for chunk in chunks} == {whole}
    answer = client.responses.create(model=model, input="Hello", max_output_tokens=3)
    assert answer.model_dump()["system_fingerprint"] == whole
    chat = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=3)
    assert chat.system_fingerprint == whole


def test_it_is_the_same_at_each_start_and_in_another_folder(usual, tmp_path):
    assert fingerprint(MODEL, "--threads", "1", "--block-size", "32") == usual
    shutil.copytree(MODEL, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == usual


def test_one_byte_of_a_weight_makes_another(usual, tmp_path):
    for place in ("first", "last"):
        folder = tmp_path / place
        shutil.copytree(MODEL, folder)
        file = folder / "model.safetensors"
        weights = bytearray(file.read_bytes())
        at = 8 + int.from_bytes(weights[:8], "little") if place == "first" else len(weights) - 2
        weights[at] ^= 1  # the lowest bit of a number
        file.write_bytes(weights)
        assert fingerprint(folder) != usual


def test_what_changes_the_bits_makes_another(usual, tmp_path):
    several = {usual, fingerprint(MODEL, "--kv-cache-dtype", "int8"), fingerprint(MODEL, "--kv-cache-dtype", "fp8"),
               fingerprint(MODEL, "--dtype", "bfloat16")}
    folder = tmp_path / "config"
    shutil.copytree(MODEL, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 2 * config["rms_norm_eps"]}))
    several.add(fingerprint(folder))
    several |= {fingerprint(QUANTISED), fingerprint(QUANTISED, "--quant-activations", "int8")}
    assert len(several) == 7


def test_activations_are_rounded_where_a_config_asks():
    """W8A8: the start says what becomes of them, and the flag decides."""
    said = {"auto": "activations are rounded to 8 bits with a scale for each token, as the config asks",
            "none": "activations stay as they are, where the config asks for rounding them to 8 bits"}
    seen = set()
    for flag, line in said.items():
        with start_server("--disable-access-log", "--quant-activations", flag, model=ROUNDED) as server:
            seen.add(server.completion(max_tokens=8).json()["system_fingerprint"])
            assert sum(line in one for one in server.log) == 1
    assert len(seen | {fingerprint(ROUNDED)}) == 2
    assert fingerprint(QUANTISED) == fingerprint(QUANTISED, "--quant-activations", "none")


def test_instruction_sets_with_the_same_bits_have_the_same():
    seen = {}
    for isa in cpu_isas():
        seen[isa] = fingerprint(environment={"QUIRE_CPU_ISA": isa})
    assert "portable" in seen
    fused = {seen[isa] for isa in seen if isa not in ("portable", "avx512_bf16") and not isa.startswith("neon")}
    assert len(fused) <= 1 and seen["portable"] not in fused
    if "avx512_bf16" in seen:
        assert seen["avx512_bf16"] not in {*fused, seen["portable"]}
        environment = {"QUIRE_CPU_ISA": "avx512_bf16"}
        assert fingerprint(MODEL, "--portable-bits", environment=environment) in fused
