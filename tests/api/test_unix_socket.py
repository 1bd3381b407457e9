"""A server on a Unix socket: its file, its clients, two servers for one path."""
import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading

import httpx2 as httpx  # the one that openai brings
import pytest

from conftest import BIN, MODEL, ROOT

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")


def command(path, *flags, model=MODEL):
    return [BIN, "serve", model, "--device", "cpu", "--uds", path, *flags]


@contextlib.contextmanager
def serving(path, *flags, end=signal.SIGTERM, code=0):
    process = subprocess.Popen(command(path, *flags), stderr=subprocess.PIPE, text=True)
    log = []
    for line in process.stderr:
        log.append(line)
        if f"listening on unix:{path}" in line:
            break
    else:
        raise RuntimeError("".join(log))
    reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
    reader.start()
    try:
        yield log
    finally:
        process.send_signal(end)
        assert process.wait(120) == code
        reader.join(60)


def start_fails(path, *flags):
    done = subprocess.run(command(path, *flags), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "loaded" not in done.stderr, done.stderr
    return done.stderr


def client(path):
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any.name.example")


def test_serves_and_leaves_nothing(tmp_path):
    path = tmp_path / "quire.sock"
    with serving(path) as log:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with client(path) as one, client(path) as other:
            assert one.get("/health").status_code == other.get("/health").status_code == 200
            answer = one.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 4, "ignore_eos": True})
            assert answer.json()["usage"]["completion_tokens"] == 4
        if shutil.which("curl"):
            done = subprocess.run(["curl", "-sS", "--unix-socket", path, "http://localhost/health"], capture_output=True, text=True)
            assert done.stdout == '{"status":"ok"}', done
    peers = set(re.findall(r" (unix:\d+:\d+) GET", "".join(log)))
    assert len(peers) >= 2 and {peer.split(":")[1] for peer in peers} == {str(os.getuid())}, log
    assert list(tmp_path.iterdir()) == []


def test_permissions(tmp_path):
    with serving(tmp_path / "s", "--uds-mode", "600"):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    for wrong in ("8", "rw", "7777", "-1"):
        assert "--uds-mode" in start_fails(tmp_path / "s", f"--uds-mode={wrong}"), wrong


def test_one_path_one_server(tmp_path):
    path = tmp_path / "quire.sock"
    with serving(path):
        assert "another server has it" in start_fails(path)
        with client(path) as one:
            assert one.get("/health").status_code == 200
    with socket.socket(socket.AF_UNIX) as foreign:  # a program that knows nothing of locks
        foreign.bind(str(path))
        foreign.listen()
        assert "another program listens there" in start_fails(path) and path.exists()
    with serving(path):  # it has gone and left its socket
        pass
    with serving(path, end=signal.SIGKILL, code=-signal.SIGKILL):
        pass
    assert path.exists()
    with serving(path), client(path) as one:
        assert one.get("/health").status_code == 200
    assert not path.exists()


def test_what_is_no_socket_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    assert "no socket" in start_fails(path) and path.read_text() == "precious"
    (tmp_path / "link").symlink_to(path)
    assert "no socket" in start_fails(tmp_path / "link") and path.read_text() == "precious"
    assert "No such file" in start_fails(tmp_path / "none" / "s")
    assert "1 to 107 bytes" in start_fails(tmp_path / ("x" * 108))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "link"]


def test_somebodys_file_with_the_locks_name_stays(tmp_path):
    path, lock = tmp_path / "s", tmp_path / "s.lock"
    for text in ("precious", "The lock", "The lock of a server's Unix socket (quire serve --uds)\n and more"):
        lock.write_text(text)
        assert f"{lock} is a file of somebody's" in start_fails(path)
        assert lock.read_text() == text and not path.exists()
    lock.unlink()
    lock.mkdir()
    assert f"{lock}: Is a directory" in start_fails(path) and lock.is_dir()
    lock.rmdir()
    lock.symlink_to(tmp_path / "elsewhere")
    assert f"{lock}: Too many levels of symbolic links" in start_fails(path) and lock.is_symlink()
    lock.unlink()
    lock.touch()  # an earlier release's
    with serving(path):
        assert lock.read_text().startswith("The lock of")
        lock.unlink()
        lock.write_text("precious")
    assert lock.read_text() == "precious" and not path.exists()


def test_another_servers_socket_stays(tmp_path):
    path = tmp_path / "s"
    with serving(path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(path))
    assert path.exists()


def test_ended_while_starting(tmp_path):
    path = tmp_path / "s"
    process = subprocess.Popen(command(path, model=ROOT / "models/quire-demo"), stderr=subprocess.PIPE, text=True)
    while not path.exists():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
    process.stderr.close()
