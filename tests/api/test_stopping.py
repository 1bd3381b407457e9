"""The process ends in time and as documented, whatever state a signal finds it in."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from conftest import BIN, MODEL, ROOT, Server
from test_http import LONG, read_until, request_bytes

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")

# Without a shutdown timeout: what docs/operations.md promises, and some time for a busy machine. Only
# `make test-deep PART=timed` measures it; elsewhere a limit catches what hangs.
TIMED = bool(os.environ.get("QUIRE_DEEP_TESTS"))
LIMIT = 5.0 + 1.0 if TIMED else 120.0
AT_ONCE = 2.0 if TIMED else 120.0
DEMO = ROOT / "models/quire-demo"
STOPPED, FORCED = 0, 128 + signal.SIGTERM


def end(process, signals=(signal.SIGTERM,), limit=LIMIT):
    """Sends the signals; returns the exit status and the seconds until it came."""
    start = time.monotonic()
    for number in signals:
        process.send_signal(number)
    try:
        status = process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        pytest.fail(f"still there {limit} s after the signal")
    seconds = time.monotonic() - start
    print(f"ended {seconds:.2f} s after the signal, with status {status}")
    return status, seconds


@contextlib.contextmanager
def killed_at_the_end(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def server_process(*flags, model=MODEL):
    """Like start_server, for tests that end the process themselves: nothing is promised at the end."""
    process = subprocess.Popen([BIN, "serve", model, "--port", "0", *flags], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    with killed_at_the_end(process):
        for line in process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise RuntimeError("the server did not start")
        yield Server(found[1], process)


def read_log_of(server):
    """Reads the rest of the log in a thread; returns a function that waits for all of it."""
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(server.process.stdout), daemon=True)
    reader.start()

    def text():
        reader.join(120)
        return "".join(lines)
    text.lines = lines
    return text


def full_pipe():
    """The ends of a pipe in which not a byte fits."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETFL, os.O_NONBLOCK)
    for size in (65536, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * size)
    fcntl.fcntl(writing, fcntl.F_SETFL, 0)
    return reading, writing


# --- The states. Each leaves the server in one, keeps it there until the end of `with`, and says which exit
# statuses are right.

@contextlib.contextmanager
def idle(server):
    yield (STOPPED,)


@contextlib.contextmanager
def many_streams(server):
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            connection = stack.enter_context(server.socket())
            connection.sendall(request_bytes("/v1/completions", {**LONG, "stream": True}))
            read_until(connection, b"data: ")
        yield (STOPPED,)


@contextlib.contextmanager
def a_full_queue(server):
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(server.socket())
            connection.sendall(request_bytes("/v1/completions", {**LONG, "n": 64}))
        server.wait_until(lambda: server.metric("vllm:num_requests_waiting") > 64)
        yield (STOPPED,)


@contextlib.contextmanager
def a_client_that_does_not_read(server):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((server.host, server.port))
        connection.sendall(request_bytes("/v1/completions",
                                         {**LONG, "n": 16, "stream": True, "logprobs": 20}))
        time.sleep(0.5)
        yield (STOPPED,)


@contextlib.contextmanager
def half_a_body(server):
    with server.socket() as connection:
        connection.sendall(request_bytes("/v1/completions", {"prompt": "x" * 5000})[:3000])
        time.sleep(0.2)
        yield (STOPPED,)


@contextlib.contextmanager
def half_a_head(server):
    with server.socket() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost:")
        time.sleep(0.2)
        yield (STOPPED,)


@contextlib.contextmanager
def busy_workers(server):
    """Texts of many megabytes for all workers and more of them in the queue."""
    text = "".join(f"word {i % 9973} " for i in range(2_500_000))
    data = request_bytes("/tokenize", {"prompt": text[:31_000_000]})
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(server.socket())
            connection.settimeout(120)
            with contextlib.suppress(OSError):  # or it is refused, which is as good
                connection.sendall(data)
        yield (STOPPED, FORCED)


@contextlib.contextmanager
def a_log_that_nobody_reads(server):
    """Lines of more than any pipe holds: the server must go on answering."""
    with server.socket() as connection:
        request = b"GET /" + b"a" * 190 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(100):
            connection.sendall(request * 40)
            received = b""
            while received.count(b"HTTP/1.1 404") < 40:
                received += connection.recv(1 << 16)
        yield (STOPPED,)


@contextlib.contextmanager
def a_grammar_at_work(server):
    with server.socket() as connection:
        grammar = "start: e\ne: e e e | e e | T\nT: /[a-z]/"
        connection.sendall(request_bytes("/v1/completions", {
            **LONG, "n": 8, "structured_outputs": {"grammar": grammar}}))
        time.sleep(0.5)
        yield (STOPPED, FORCED)


STATES = [idle, many_streams, a_full_queue, a_client_that_does_not_read, half_a_body, half_a_head, busy_workers,
          a_log_that_nobody_reads, a_grammar_at_work]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_sigterm_ends_it(state):
    flags = ["--max-num-seqs", "64"]
    with server_process(*flags) as server:
        log = None if state is a_log_that_nobody_reads else read_log_of(server)
        with state(server) as statuses:
            status, _ = end(server.process)
        assert status in statuses, log and log()


def test_sigint_ends_it_too():
    with server_process() as server:
        log = read_log_of(server)
        assert end(server.process, (signal.SIGINT,))[0] == STOPPED, log()


def test_a_second_signal_ends_it_at_once():
    # The demo model takes some seconds: the tiny one may be done before the second signal comes.
    with server_process("--shutdown-timeout", "600", model=DEMO) as server:
        log = read_log_of(server)
        with many_streams(server):
            server.process.send_signal(signal.SIGTERM)
            server.wait_until(lambda: server.get("/health").status == 503)
            assert server.process.poll() is None
            status, seconds = end(server.process, (signal.SIGINT,))
        assert status == 128 + signal.SIGINT and seconds < AT_ONCE, (status, seconds)
        assert "a second signal" in log()


def large_model(target, vocab=600_000):
    """The tiny model with an embedding of many rows of zeros, which takes no room on the disk."""
    shutil.copytree(MODEL, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "vocab_size": vocab}))
    weights = target / "model.safetensors"
    with open(weights, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    embedding = header["model.embed_tokens.weight"]
    begin, end_of_old = embedding["data_offsets"]
    assert begin == 0 and embedding["dtype"] == "F32"
    size = 4 * vocab * config["hidden_size"]
    for entry in header.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [offset + size - end_of_old for offset in entry["data_offsets"]]
    embedding.update(shape=[vocab, config["hidden_size"]], data_offsets=[0, size])
    text = json.dumps(header).encode()
    with open(weights, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.seek(size, os.SEEK_CUR)
        file.write(data[end_of_old:])
    return target


def wait_until_signals_are_taken(process):
    """Until SIGTERM waits for the thread that takes it: it is blocked in the others. While a thread is made, all signals
    are, for a moment."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        blocked = int(re.search(r"SigBlk:\s*(\w+)", status).group(1), 16)
        if blocked >> (signal.SIGTERM - 1) & 1 and not blocked >> (signal.SIGUSR1 - 1) & 1:
            return
        time.sleep(0.001)
    raise AssertionError("SIGTERM was never blocked")


def test_while_loading(tmp_path):
    """Weights that take a while: the first signal ends it, and it never gets to listen."""
    model = large_model(tmp_path / "model")
    for _ in range(20):
        process = subprocess.Popen([BIN, "serve", model, "--port", "0"], stderr=subprocess.PIPE, text=True)
        with killed_at_the_end(process):
            wait_until_signals_are_taken(process)
            status, seconds = end(process)
            log = process.stderr.read()
        assert status == STOPPED and seconds < AT_ONCE, (status, seconds, log)
        if "listening" not in log:  # else a busy machine has sent the signal too late
            return
    pytest.fail("it was always loaded before it was stopped")


def test_while_starting_with_a_log_that_nobody_reads():
    reading, writing = full_pipe()
    process = subprocess.Popen([BIN, "serve", MODEL, "--port", "0"], stderr=writing)
    with killed_at_the_end(process):
        wait_until_signals_are_taken(process)
        time.sleep(1.0)  # it waits to say what it has loaded
        assert process.poll() is None
        assert end(process)[0] == STOPPED
    os.close(reading)
    os.close(writing)


def test_while_a_failed_start_waits_to_say_why():
    reading, writing = full_pipe()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = subprocess.Popen([BIN, "serve", MODEL, "--port", str(taken.getsockname()[1])], stderr=writing)
        with killed_at_the_end(process):
            time.sleep(1.5)
            assert process.poll() is None
            assert end(process)[0] in (STOPPED, -signal.SIGTERM)
    os.close(reading)
    os.close(writing)


def test_running_requests_are_told():
    """Answers that are cut say so: 503 if nothing was sent, an error event in a stream; never a 200 that looks whole."""
    # So few at a time that both are still at it when the signal comes.
    with server_process("--max-num-seqs", "8", model=DEMO) as server:
        read_log_of(server)
        with server.socket() as stream, server.socket() as whole:
            stream.sendall(request_bytes("/v1/completions", {**LONG, "n": 64, "stream": True}))
            received = read_until(stream, b"data: ")
            whole.sendall(request_bytes("/v1/completions", {**LONG, "n": 64}))
            server.wait_until(lambda: server.metric("vllm:num_requests_running")
                              + server.metric("vllm:num_requests_waiting") >= 100)
            assert end(server.process)[0] == STOPPED
            answer = b"".join(iter(lambda: whole.recv(65536), b""))
            received += b"".join(iter(lambda: stream.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: " in answer, answer[:300]
        assert b'"abort"' not in received and b"shutting down" in received and b"[DONE]" in received


def test_a_log_that_nobody_reads_stops_nobody():
    """4,000 requests into an unread pipe; what was dropped is counted, and said when somebody reads."""
    def said_in(text):
        return [int(n) for n in re.findall(r"(\d+) lines of the log were dropped", text)]

    with server_process() as server:
        with a_log_that_nobody_reads(server):
            assert server.completion().status == 200
            server.wait_until(lambda: server.metric("quire:log_lines_dropped_total") > 0)
            dropped = server.metric("quire:log_lines_dropped_total")
            log = read_log_of(server)
            server.wait_until(lambda: server.get("/health").status == 200)
            server.wait_until(lambda: sum(said_in("".join(log.lines))) >= dropped)
            assert end(server.process)[0] == STOPPED
        assert 0 < dropped <= sum(said_in(log()))


def test_a_port_in_use_is_found_before_weights_are_read():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        found = subprocess.run([BIN, "serve", MODEL, "--port", port], capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in found.stderr and "loaded" not in found.stderr


COMMANDS = {
    "run": ["run", DEMO, "Tell me a story.", "--max-tokens", "400", "--temperature", "1"],
    "chat": ["run", DEMO],
    "quantize": ["quantize", DEMO, "TMP/out"],
    "bench": ["bench", "throughput", DEMO, "--num-prompts", "2000"],
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("name", COMMANDS)
def test_other_commands_end_too(name, number, tmp_path):
    command = [str(part).replace("TMP", str(tmp_path)) for part in COMMANDS[name]]
    process = subprocess.Popen([BIN, *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    with killed_at_the_end(process):
        time.sleep(0.3)
        status, seconds = end(process, (number,))
        assert seconds < AT_ONCE
        # Killed by the signal, or 128 + its number; these two may have been faster.
        assert status in (-number, 128 + number) or (name in ("run", "quantize") and status == 0), status
