"""The victim, the probes and the memory that test_neighbour.py watches while an attack goes on."""
import contextlib
import http.client
import json
import multiprocessing
import os
import re
import socket
import threading
import time
import traceback

MIB = 1 << 20


def request_text(path, body=b"", headers=""):
    """The bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_memory(server):
    """The resident bytes of the server's process."""
    text = open(f"/proc/{server.process.pid}/status", encoding="utf-8").read()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * 1024


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class Watch:
    """Asks for 8 tokens every 50 ms and for /health in between, and looks at the memory. `fields`: more of the request."""

    def __init__(self, server, headers, fields=None):
        self.fields = fields or {}
        self.server, self.headers = server, {"Content-Type": "application/json", **headers}
        self.victim, self.health, self.failures, self.peak = [], [], [], 0
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self.ask, self.probe, self.weigh)]

    def ask(self):
        body = json.dumps({"prompt": "What is 12 + 34?", "max_tokens": 8, "ignore_eos": True, "temperature": 0, **self.fields})
        self.repeat(self.victim, "POST", "/v1/completions", body)

    def probe(self):
        self.repeat(self.health, "GET", "/health", None)

    def repeat(self, times, method, path, body):
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=60)
        while not self.stop.is_set():
            start = time.monotonic()
            try:
                connection.request(method, path, body, self.headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.failures.append((path, answer.status))
            except OSError as error:
                self.failures.append((path, repr(error)))
                connection.close()
            times.append(time.monotonic() - start)
            self.stop.wait(max(0.0, 0.05 - (time.monotonic() - start)))
        connection.close()

    def weigh(self):
        while not self.stop.wait(0.05):
            self.peak = max(self.peak, read_memory(self.server))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    @property
    def p99(self):
        return percentile(self.victim, 0.99)

    @property
    def median(self):
        return percentile(self.victim, 0.5)

    @property
    def health_p99(self):
        return percentile(self.health, 0.99)


class Attacker:
    """Sockets that an attack opens; all are closed at its end."""

    def __init__(self, server):
        self.server, self.sockets = server, []
        self.deadline = time.monotonic() + 20  # for waiting on answers

    def open(self):
        """From another address than the victim's."""
        opened = socket.create_connection((self.server.host, self.server.port), 20, ("127.0.0.2", 0))
        self.sockets.append(opened)
        return opened

    def send(self, data):
        """Sends on a connection of its own, or as much as the server takes."""
        opened = self.open()
        with contextlib.suppress(OSError):
            opened.sendall(data)
        return opened

    def send_all(self, data, count):
        """The same from many connections at once."""
        threads = [threading.Thread(target=self.send, args=(data,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def statuses(self):
        """The statuses of all answers; None where there is none in time."""
        return {self.status(opened) for opened in self.sockets}

    def status(self, opened):
        with contextlib.suppress(OSError):
            opened.settimeout(max(0.01, self.deadline - time.monotonic()))
            head = opened.recv(12)
            return int(head[9:12]) if len(head) == 12 else None
        return None

    @staticmethod
    def read_to_end(opened):
        """The bytes of an answer to a request with `Connection: close`."""
        size = 0
        with contextlib.suppress(OSError):
            while data := opened.recv(1 << 16):
                size += len(data)
        return size

    def close(self):
        for opened in self.sockets:
            opened.close()
        self.sockets.clear()


def run_attack(attack, server):
    """Runs an attack in a process of its own that yields to the server, as another machine would: the victim's times
    are not those of this interpreter. Returns what failed in it, or None."""
    def child(pipe):
        os.nice(15)
        attacker = Attacker(server)
        error = None
        try:
            attack(attacker)
            time.sleep(0.5)
        except BaseException:  # pylint: disable=broad-except
            error = traceback.format_exc()
        attacker.close()
        pipe.send(error)

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    try:
        return ours.recv() if ours.poll(60) else "the attack did not end"
    finally:
        process.kill()
        process.join()
