"""What coding agents sent during a task (tests/api/recorded, written by tests/clients/run.sh --record), sent once more."""
import json

import pytest

import agent_session
from conftest import ROOT, greedy_demo_model, long_demo_model, start_server

RECORDED = ROOT / "tests/api/recorded"


def bodies(name):
    return json.loads((RECORDED / f"{name}.json").read_text())


def turns(name):
    """The two requests of the task that offer tools; OpenCode asks for a title besides."""
    first, second = [body for body in bodies(name) if body.get("tools")]
    return first, second


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with start_server("--disable-access-log", model=greedy_demo_model(tmp_path_factory.mktemp("models"))) as server:
        yield server


def send(demo, path, body):
    """A stream's events."""
    answer = demo.post(path, body)
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream"), answer.body
    return [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: {")]


def test_codex(demo):
    first, second = turns("codex")
    done = send(demo, "/v1/responses", first)[-1]
    assert done["type"] == "response.completed"
    [call] = [item for item in done["response"]["output"] if item["type"] == "function_call"]
    sent_back = second["input"][-2]
    assert (call["name"], json.loads(call["arguments"])) == ("exec_command", {"cmd": "cat notes"})
    assert (sent_back["name"], sent_back["arguments"]) == (call["name"], call["arguments"])
    last = send(demo, "/v1/responses", second)[-1]["response"]
    assert last["output"][-1]["content"][0]["text"] == "The result is 579."
    assert last["usage"]["input_tokens_details"]["cached_tokens"] > 0.9 * done["response"]["usage"]["input_tokens"]


def test_opencode(demo):
    first, second = turns("opencode")
    chunks = send(demo, "/v1/chat/completions", first)
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls") or []]
    assert calls[0]["function"]["name"] == "read" and calls[0]["id"]
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"filePath": "notes"}
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]][-1] == "tool_calls"
    after = send(demo, "/v1/chat/completions", second)
    assert "579" in "".join(choice["delta"].get("content") or "" for chunk in after for choice in chunk["choices"])
    used = chunks[-1]["usage"], after[-1]["usage"]
    assert used[1]["prompt_tokens_details"]["cached_tokens"] > 0.9 * used[0]["prompt_tokens"]


def test_nothing_personal_is_kept():
    for listed in RECORDED.glob("*.json"):
        text = listed.read_text()
        for word in ("/tmp/", "/var/", "/work", "/build/"):
            assert word not in text, (listed, word)


def test_interleaved_sessions_keep_their_prefixes(tmp_path):
    """A main agent and two sub-agents, which start alike nowhere, take turns: each finds what it has sent before."""
    first, _ = turns("codex")
    sizes = {"main": 62_000, "one": 11_000, "two": 12_500}  # bytes of rules: 28,000 and 6,000 to 7,000 tokens
    rules = {name: agent_session.Words(seed).rules(size) for seed, (name, size) in enumerate(sizes.items())}
    with start_server("--disable-access-log", model=long_demo_model(tmp_path)) as server:
        def session(name, turn):
            talk = [{"role": "user", "content": f"{name} {i}"} for i in range(turn)]
            body = {**first, "stream": False, "input": [{"role": "developer", "content": f"You are {name}.\n{rules[name]}"}, *talk]}
            usage = server.post("/v1/responses", {**body, "max_output_tokens": 1}, timeout=600).json()["usage"]
            return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]

        before = {name: session(name, 1)[0] for name in sizes}
        assert 27_000 < before["main"] < 29_000 and all(6_000 < before[name] < 7_200 for name in ("one", "two")), before
        for turn in (2, 3, 4):
            for name in before:
                tokens, cached = session(name, turn)
                assert cached > before[name] - 64, (name, turn)
                before[name] = tokens
        assert server.metric("quire:prefix_cache_evictions_total") == 0


def test_a_broken_off_prompt_is_found_again(tmp_path):
    """An agent that gives up while its prompt is fed, and asks again."""
    first, _ = turns("codex")
    rules = "".join(f"{i}. Keep to the style of what is there.\n" for i in range(300))
    body = {**first, "input": [{"role": "developer", "content": rules}, *first["input"][1:]], "max_output_tokens": 1}
    flags = "--disable-access-log", "--max-num-batched-tokens", "32"  # so the prompt takes some hundred steps
    with start_server(*flags, model=long_demo_model(tmp_path)) as server:
        steps = "vllm:iteration_tokens_total_count"
        sent = json.dumps(body)
        with server.socket() as connection:
            connection.sendall(f"POST /v1/responses HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
                               f"Content-Length: {len(sent)}\r\n\r\n{sent}".encode())
            server.wait_until(lambda: server.metric(steps) >= 8)
        server.wait_until(server.is_idle)
        assert server.metric("vllm:request_success_total", 'finished_reason="abort"') == 1
        usage = server.post("/v1/responses", {**body, "stream": False}).json()["usage"]
        assert 200 < usage["input_tokens_details"]["cached_tokens"] < usage["input_tokens"] - 200
