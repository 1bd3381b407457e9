"""A `quire serve` for the scripts beside this file."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

START_TIMEOUT = 120  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running_server(quire: pathlib.Path, model: pathlib.Path, *flags: str):
    """The port of a server that is ready; its model is called "default"."""
    port = free_port()
    usual = ("--port", str(port), "--served-model-name", "default", "--disable-access-log")
    process = subprocess.Popen([str(quire), "serve", str(model), *usual, *flags])
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the server did not start")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            time.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait()
