"""`quire replay`: a session of an agent and its sub-agents, what of it the prefix cache finds, and that this changes no bit."""
import io
import json
import os
import re
import shutil
import subprocess
import time

import pytest

import agent_session
from conftest import BIN, ROOT, greedy_demo_model, start_server

BLOCK = 16


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The demo models, with room for an agent's prompts."""
    folders = {}
    for name in ("quire-demo", "quire-demo-hybrid"):
        folder = folders[name] = tmp_path_factory.mktemp("models") / name
        shutil.copytree(ROOT / "models" / name, folder)
        config = json.loads((folder / "config.json").read_text())
        for place in (config, config.get("text_config", {})):
            if "max_position_embeddings" in place:
                place["max_position_embeddings"] = 32768
        (folder / "config.json").write_text(json.dumps(config))
    return folders


@pytest.fixture(scope="module")
def demo(models):
    with start_server("--disable-access-log", model=models["quire-demo"]) as server:
        yield server


def write_session(folder, turns=40, scale=0.01):
    file = folder / "session.jsonl"
    with open(file, "w") as out:
        agent_session.write(out, turns, scale)
    return file


def replay(file, server, *flags, status=0):
    """What it prints, and its figures."""
    figures = file.with_suffix(".json")
    done = subprocess.run([BIN, "replay", file, "--base-url", server.url, "--max-tokens", "12", "--output-json", figures, *flags],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr, json.loads(figures.read_text())


def counted(server):
    return {name: server.metric(f"vllm:{name}_total") for name in ("prompt_tokens", "prefix_cache_hits", "request_success")}


def test_the_session_is_always_the_same():
    first, second = io.StringIO(), io.StringIO()
    for file in (first, second):
        agent_session.write(file, 40, 0.01)
    assert first.getvalue() == second.getvalue()
    lines = [json.loads(line) for line in first.getvalue().splitlines()]
    assert [sum(line["agent"] == name for line in lines) for name in ("main", "search", "test")] == [20, 10, 10]
    billing = {line["body"]["system"][0]["text"] for line in lines if line["agent"] == "main"}
    assert len(billing) == 20


def common_prefix(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def test_a_session_finds_its_prefixes_and_the_bits_of_a_cold_run(demo, tmp_path):
    file = write_session(tmp_path)
    before = counted(demo)
    text, figures = replay(file, demo, "--check")
    after = {name: value - before[name] for name, value in counted(demo).items()}
    assert "Turns equal to a cold run:           40 of 40" in text
    turns = figures["details"]
    assert figures["turns"] == len(turns) == 40 and figures["failed"] == figures["different_from_cold"] == 0
    # What it adds up is what the server counted; the cold run found nothing.
    assert figures["prompt_tokens"] == sum(turn["prompt_tokens"] for turn in turns) == after["prompt_tokens"] / 2
    assert figures["cached_tokens"] == sum(turn["cached_tokens"] for turn in turns) == after["prefix_cache_hits"]
    assert figures["cache_hit_rate"] == figures["cached_tokens"] / figures["prompt_tokens"] > 0.75
    rows = [line.split() for line in text.splitlines() if re.match(r" +\d+  (main|search|test) ", line)]
    assert [int(row[5]) for row in rows] == [turn["cached_tokens"] for turn in turns]
    assert [int(row[0]) for row in rows] == list(range(1, 41)) and all(turn["ttft_ms"] > 0 for turn in turns)


def test_chats_find_all_that_they_have_in_common(demo, tmp_path):
    """Against the tokens themselves: a turn finds every whole block that it shares with an earlier one."""
    file = write_session(tmp_path, turns=24, scale=0.011)
    _, figures = replay(file, demo)
    prompts = []
    for line, turn in zip(map(json.loads, file.read_text().splitlines()), figures["details"]):
        if line["agent"] != "search":
            continue
        body = {key: line["body"][key] for key in ("messages", "tools")}
        ids = demo.post("/tokenize", body).json()["tokens"]
        assert turn["prompt_tokens"] == len(ids)
        shared = max((common_prefix(ids, earlier) for earlier in prompts), default=0)
        if prompts:
            # At most a block more: the first tokens of an answer may be what the history says.
            assert shared // BLOCK * BLOCK <= turn["cached_tokens"] <= shared // BLOCK * BLOCK + BLOCK
        prompts.append(ids)
    assert len(prompts) == 6


def test_agents_at_once_on_a_hybrid(models, tmp_path):
    with start_server("--disable-access-log", "--state-checkpoint-interval", "128", model=models["quire-demo-hybrid"]) as server:
        _, figures = replay(write_session(tmp_path, turns=16), server, "--parallel", "--check")
    assert figures["failed"] == figures["different_from_cold"] == 0
    assert figures["cache_hit_rate"] > 0.5


def test_what_differs_is_said(demo, models, tmp_path):
    file = write_session(tmp_path, turns=4)
    with start_server("--disable-access-log", "--no-enable-prefix-caching", model=models["quire-demo-hybrid"]) as other:
        text, figures = replay(file, demo, "--cold-url", other.url, "--model", "quire-demo", status=1)
    assert figures["different_from_cold"] == 4 and "quire: turn 1 (main): failed when it was cold: HTTP 404" in text
    # A server that has the prompts in its cache is no cold one.
    text, figures = replay(file, demo, "--cold-url", demo.url, status=1)
    assert figures["different_from_cold"] == 4 and "tokens in a cache" in text


def test_another_model_is_not_the_same(demo, models, tmp_path):
    file = write_session(tmp_path, turns=8)
    with start_server("--disable-access-log", "--no-enable-prefix-caching", "--served-model-name", "quire-demo",
                      model=models["quire-demo-hybrid"]) as other:
        text, figures = replay(file, demo, "--cold-url", other.url, status=1)
    # Chats have log probabilities, so that these cannot be equal by chance.
    chats = [number for number, name in enumerate(agent_session.schedule(8), 1) if name == "search"]
    assert len(chats) == 2 <= figures["different_from_cold"]
    for number in chats:
        assert re.search(rf"turn {number} \(search\): (the answer is|other log-probabilities)", text), text


def test_failed_turns_are_named(demo, tmp_path):
    file = tmp_path / "session.jsonl"
    file.write_text('{"path": "/v1/responses", "body": {"input": "Hi", "previous_response_id": "resp_1"}}\n'
                    '{"path": "/v1/messages", "body": {"max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}}\n')
    text, figures = replay(file, demo, status=1)
    assert figures["failed"] == 1 and "failed: HTTP 400" in text and "previous_response_id" in text
    assert figures["details"][1]["prompt_tokens"] > 0
    file.write_text('{"path": "/v1/messages", "body": []}\n')
    done = subprocess.run([BIN, "replay", file, "--base-url", demo.url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "session.jsonl:1: \"body\"" in done.stderr


def test_an_answer_that_ends_at_once_is_one(tmp_path):
    model = greedy_demo_model(tmp_path, eos_token_id=list(range(4096)))  # whatever comes ends it
    with start_server("--disable-access-log", model=model) as server:
        text, figures = replay(write_session(tmp_path, turns=8, scale=0.001), server, "--check")
    assert figures["failed"] == figures["different_from_cold"] == 0, text
    assert figures["mean_ttft_ms"] > 0 and figures["prompt_tokens"] > 8
    assert all(turn["ttft_ms"] == turn["latency_ms"] > 0 and turn["output_tokens"] <= 1 for turn in figures["details"])


@pytest.mark.parametrize("name", ["quire-demo", "quire-demo-hybrid"])
def test_a_retry_finds_what_its_timed_out_request_has_computed(models, name):
    """A client that goes away while its prompt is read, and asks again."""
    flags = ("--disable-access-log", "--max-num-batched-tokens", "32", "--state-checkpoint-interval", "64", "--threads", "1")
    with start_server(*flags, model=models[name]) as server:
        for attempt in range(20):
            prompt = [100 + (attempt * 7 + i * i) % 3000 for i in range(6000)]
            body = json.dumps({"prompt": prompt, "max_tokens": 1}).encode()
            before = server.metric("vllm:request_success_total")
            with server.socket() as socket:
                head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                socket.sendall(head.encode() + body)
                deadline = time.monotonic() + 120
                while server.metric("vllm:kv_cache_usage_perc") == 0 and time.monotonic() < deadline:
                    time.sleep(0.002)
                time.sleep(0.05)  # some chunks more
            server.wait_until(server.is_idle)
            ended = server.metric("vllm:request_success_total") - before
            if ended == server.metric("vllm:request_success_total", 'finished_reason="abort"') == 1:
                break
        else:
            pytest.fail("no request was cancelled in time")
        usage = server.post("/v1/completions", body).json()["usage"]
        assert 64 <= usage["prompt_tokens_details"]["cached_tokens"] < 6000 - BLOCK


@pytest.mark.parametrize("path", ["/dev/zero", "/", "none.jsonl", "a pipe"])
def test_what_is_no_file_is_named(tmp_path, path):
    if path == "a pipe":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    done = subprocess.run([BIN, "replay", path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and done.stderr.startswith(f"quire: {path}: "), done.stderr
