"""API keys: where they come from, whom they let in, and what they keep apart."""
import os
import signal
import subprocess
import threading
import time

import pytest

from conftest import BIN, MODEL, start_server
from test_http import LONG, read_until, request_bytes

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def start_fails(*flags, env=None):
    """What a start says that must fail: with status 1, and before weights are read."""
    done = subprocess.run([BIN, "serve", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 1 and "loaded" not in done.stderr, done.stderr
    return done.stderr


def test_an_empty_key_is_no_key(tmp_path):
    empty, blank = tmp_path / "empty", tmp_path / "blank"
    empty.write_text("# nobody yet\n\n")
    blank.write_text("good\nse cret\n")
    assert "is empty" in start_fails("--api-key", "")
    assert "is empty" in start_fails("--api-key=")
    assert "is empty" in start_fails("--api-key", "secret", "--api-key", "")
    assert "VLLM_API_KEY is empty" in start_fails(env={"VLLM_API_KEY": ""})
    for name in ("API_KEY", "API_KEY_FILE", "SSL_CERTFILE", "CONFIG"):
        assert f"QUIRE_{name} is empty" in start_fails(env={f"QUIRE_{name}": ""})
    config = tmp_path / "quire.conf"
    config.write_text("api-key: ''\n")
    assert "quire.conf:1: the value is empty" in start_fails("--config", config)
    assert "has no key" in start_fails("--api-key-file", empty)
    said = start_fails("--api-key-file", blank)
    assert "line 2" in said and "cret" not in said
    assert str(tmp_path / "missing") in start_fails("--api-key-file", tmp_path / "missing")


def test_keys_of_every_source_count(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("# alice\nalice-key\n")
    two.write_text("bob-key\r\n\n  carol-key  \n")
    flags = ("--api-key-file", one, "--api-key-file", two, "--api-key", "flag-key")
    with start_server(*flags) as server:
        for key in ("alice-key", "bob-key", "carol-key", "flag-key"):
            assert server.get("/v1/models", headers=bearer(key)).status == 200, key
        for key in ("", "#", "alice", "alice-key ", "# alice"):
            assert server.get("/v1/models", headers=bearer(key)).status == (200 if key == "alice-key " else 401), key
        assert not any("alice-key" in line for line in server.log)


def test_sighup_reads_keys_again(tmp_path):
    file = tmp_path / "keys"
    file.write_text("old\nstays\n")
    with start_server("--api-key-file", file) as server:
        def reload(text, expected):
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
            before = sum(expected in line for line in server.log)
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda: sum(expected in line for line in server.log) > before)

        def status(key):
            return server.get("/v1/models", headers=bearer(key)).status

        with server.socket() as connection:
            request = request_bytes("/v1/completions", {**LONG, "stream": True})
            connection.sendall(request.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer old"))
            received = read_until(connection, b"data: ")
            reload("new\nstays\n", "2 API keys")
            assert (status("old"), status("new"), status("stays")) == (401, 200, 200)
            for broken in ("", "# nobody\n", "tw o\n", None):  # the keys stay, and so does the server
                reload(broken, "stay what they were")
                assert (status("old"), status("new"), status("stays")) == (401, 200, 200)
            while b"[DONE]" not in received[-100:]:  # begun with a key that was good then
                more = connection.recv(65536)
                assert more
                received += more
            assert received.count(b'"finish_reason":"length"') == LONG["n"]


def cached_tokens(server, key, **fields):
    answer = server.post("/v1/completions", {"max_tokens": 1, **fields}, headers=bearer(key))
    assert answer.status == 200
    return (answer.json()["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


SECRET = {"prompt": list(range(40, 140))}  # several blocks


def test_a_key_learns_nothing_of_what_another_one_sent(tmp_path):
    file = tmp_path / "keys"
    file.write_text("alice\n")
    with start_server("--api-key-file", file) as server:
        assert cached_tokens(server, "alice", **SECRET) == 0
        file.write_text("alice\nbob\n")  # bob comes while alice's prompts are in the cache
        server.process.send_signal(signal.SIGHUP)
        server.wait_until(lambda: server.get("/v1/models", headers=bearer("bob")).status == 200)
        assert cached_tokens(server, "bob", **SECRET) == 0
        assert cached_tokens(server, "alice", **SECRET) >= 64
        assert cached_tokens(server, "bob", **SECRET) >= 64  # his own
        assert cached_tokens(server, "bob", **SECRET, cache_salt="x") == 0


def test_keys_share_the_cache_if_told():
    with start_server("--api-key", "alice", "--api-key", "bob", "--share-prefix-cache") as server:
        assert cached_tokens(server, "alice", **SECRET) == 0
        assert cached_tokens(server, "bob", **SECRET) >= 64


def test_caps_are_exact_under_load():
    flags = ("--api-key", "alice", "--api-key", "bob", "--max-concurrent-requests-per-key", "3",
             "--max-generations-per-key", "8", "--max-num-seqs", "64", "--min-priority", "0",
             "--scheduling-policy", "priority")
    with start_server(*flags) as server:
        answers, lock, together = [], threading.Lock(), threading.Barrier(20)

        def ask(fields):
            answer = server.post("/v1/completions", {"prompt": "Hello", "ignore_eos": True, **fields},
                                 headers=bearer("alice"))
            with lock:
                answers.append(answer)

        def ask_together():
            together.wait(120)
            ask({"max_tokens": 450, "n": 2})

        threads = [threading.Thread(target=ask_together) for _ in range(20)]
        for thread in threads:
            thread.start()
        peak = 0
        while any(thread.is_alive() for thread in threads):
            peak = max(peak, server.get("/load", headers=bearer("bob")).json()["server_load"])
            answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=bearer("bob"))
            assert answer.status == 200  # the other key's requests are not hers
            time.sleep(0.01)
        statuses = [answer.status for answer in answers]
        assert set(statuses) == {200, 429} and statuses.count(200) >= 3, statuses
        assert peak <= 3 + 1
        for answer in answers:
            if answer.status == 429:
                assert "Retry-After" in answer.headers and "(--max-" in answer.error()["message"]
        del answers[:]
        ask({"max_tokens": 1, "n": 9})
        ask({"max_tokens": 1, "priority": -1})
        assert [(answer.status, answer.error()["param"]) for answer in answers] == [(400, "n"), (400, "priority")]
        assert server.get("/v1/models", headers=bearer("alice")).status == 200


def test_an_open_server_beyond_this_machine_is_said_loudly():
    with start_server("--host", "0.0.0.0") as server:
        assert any("ANYBODY WHO REACHES 0.0.0.0" in line for line in server.log)
    for flags in (("--host", "0.0.0.0", "--api-key", "k"), ()):
        with start_server(*flags) as server:
            assert not any("ANYBODY" in line for line in server.log)
