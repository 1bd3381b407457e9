"""Starting and stopping in peace: each test has a server of its own. test_stopping.py has the hard ways."""
import json
import os
import signal
import socket
import subprocess
import threading

import openai
import pytest

from conftest import BIN, MODEL, ROOT, Server, start_server
from test_http import LONG, read_until, request_bytes

DEMO = str(ROOT / "models/quire-demo")
pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")


def test_api_key():
    with start_server("--api-key", "secret", "--api-key", "other") as server:
        assert server.get("/health").status == 200
        for path in ("/v1/models", "/metrics", "/version", "/ping", "/nothing", "/load"):
            assert server.get(path).status == 401, path
        for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
            answer = server.post(path, {})
            assert answer.status == 401 and answer.error()["code"] == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            server.openai("wrong").models.list()
        assert server.openai("secret").models.list().data
        assert server.openai("other").models.list().data
        assert server.get("/v1/models", headers={"X-Api-Key": "secret"}).status == 200


def test_served_model_name_and_root_path():
    with start_server("--served-model-name", "a", "--served-model-name", "b", "--root-path", "/sub") as server:
        assert server.get("/health").status == 200 and server.get("/sub/health").status == 200
        models = server.get("/sub/v1/models").json()["data"]
        assert [model["id"] for model in models] == ["a", "b"]
        assert server.completion(model="b").json()["model"] == "a"
        assert server.completion(model="c").status == 404


def stream_in_background(server, fields):
    """Reads a stream to its end in a thread; returns the thread and the list that gets the bytes."""
    received = []
    connection = server.socket()
    connection.sendall(request_bytes("/v1/completions", {**fields, "stream": True}))
    received.append(read_until(connection, b"data: "))

    def read():
        while b"[DONE]" not in b"".join(received[-2:]) and (more := connection.recv(65536)):
            received.append(more)
        connection.close()

    thread = threading.Thread(target=read)
    thread.start()
    return thread, received


def test_sigterm_with_time_finishes_requests_and_refuses_new_ones():
    # The demo model takes some seconds: the tiny one may be done before the refused request comes.
    with start_server("--shutdown-timeout", "600", model=DEMO) as server:
        thread, received = stream_in_background(server, {**LONG, "n": 64})
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: server.get("/health").status == 503)
        refused = server.completion()
        assert refused.status == 503 and "Retry-After" in refused.headers
        thread.join(300)
        assert server.process.wait(120) == 0
        data = b"".join(received)
        assert data.count(b'"finish_reason":"length"') == 64
        assert b"data: [DONE]" in data


def test_overload_is_refused_quickly():
    # The demo model takes so long for so many tokens that the queue is full while the others are sent.
    fields = {**LONG, "n": 1, "max_tokens": 1500}
    with start_server("--max-num-seqs", "1", "--max-num-queued-reqs", "4", model=DEMO) as server:
        thread, _ = stream_in_background(server, fields)
        streams = [server.socket() for _ in range(4)]
        for connection in streams:
            connection.sendall(request_bytes("/v1/completions", fields))
        server.wait_until(lambda: server.metric("vllm:num_requests_waiting") > 0)
        statuses = []
        for _ in range(10):
            answer = server.completion(n=4)
            statuses.append(answer.status)
            if answer.status == 429:
                assert "Retry-After" in answer.headers
        assert 429 in statuses and set(statuses) <= {200, 429}
        assert server.completion(n=5).status == 400, "more than may ever wait"
        for connection in streams:
            connection.close()
        thread.join(300)


def test_log_cannot_be_forged():
    with start_server() as server:
        server.get("/x%0d%0a%5bforged%5d%20line%1b%5b2J")
        server.wait_until(lambda: any("forged" in line for line in server.log))
        assert not any(line.startswith("[forged]") or "\x1b" in line for line in server.log)


def test_port_in_use_is_said_clearly():
    with start_server() as server:
        with pytest.raises(RuntimeError, match="cannot listen on"):
            with start_server("--port", str(server.port)):
                pass


def test_model_name_is_the_folders():
    with start_server() as server:
        assert server.get("/v1/models").json()["data"][0]["id"] == os.path.basename(MODEL)
        assert json.loads(server.get("/version").body)["version"]


def test_answers_while_the_model_is_loaded():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([BIN, "serve", DEMO, "--device", "cpu", "--port", str(port), "--disable-access-log"],
                          stderr=subprocess.DEVNULL) as process:
        server, seen = Server(f"http://127.0.0.1:{port}", process), []
        try:
            while 200 not in seen:
                assert process.poll() is None
                try:
                    answer = server.get("/health?ready")
                except ConnectionRefusedError:
                    assert not seen  # once it is open, it answers
                    continue
                seen.append(answer.status)
                if answer.status == 503:
                    assert "being loaded" in answer.error()["message"] and "Retry-After" in answer.headers
            assert set(seen) == {503, 200}, seen
            assert server.completion(max_tokens=1).status == 200
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def test_without_standard_files_nothing_else_takes_their_numbers():
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    listening.close()
    process = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" 0<&- 1>&- 2>&-', BIN, "serve", DEMO, "--port", str(port),
                                "--device", "cpu"])
    try:
        server = Server(f"http://127.0.0.1:{port}", process)
        server.wait_until(lambda: is_healthy(server) or process.poll() is not None)
        assert [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)] == ["/dev/null"] * 3
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


def is_healthy(server):
    try:
        return server.get("/health").status == 200
    except OSError:
        return False


def test_user_signals_end_nothing():
    with start_server() as server:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(number)
        assert server.completion().status == 200


def test_metrics_before_the_first_request():
    with start_server() as server:
        assert server.metric("quire:kv_blocks") > 0
        info = server.get("/metrics").body.decode()
        assert 'block_size="16"' in info and 'enable_prefix_caching="True"' in info


def test_few_open_files_leave_room_for_other_clients():
    with start_server(limit="ulimit -n 80") as server:
        assert any("the limit of open files is 80 (ulimit -n)" in line for line in server.log)
        idle = [server.socket() for _ in range(120)]
        with socket.create_connection((server.host, server.port), source_address=("127.0.0.2", 0), timeout=10) as other:
            other.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_until(other, b'"ok"}').startswith(b"HTTP/1.1 200")
        assert server.completion().status == 200
        for connection in idle:
            connection.close()
    result = subprocess.run(["sh", "-c", 'ulimit -n 40; exec "$0" "$@"', BIN, "serve", DEMO, "--port", "0", "--device", "cpu"],
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "a server needs at least" in result.stderr, result.stderr
