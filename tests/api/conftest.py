"""Tests of a running server. They use QUIRE_BASE_URL (http://HOST:PORT) if it is set; otherwise they start
QUIRE_BIN (build/release/bin/quire) on QUIRE_TEST_MODEL (a tiny checkpoint of the repository)."""
import contextlib
import http.client
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
import urllib.parse

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("QUIRE_BIN", ROOT / "build/release/bin/quire"))
MODEL = os.environ.get("QUIRE_TEST_MODEL", str(ROOT / "tests/parity/models/qwen3"))

# A shell's background command ignores it, and what it starts would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        """The error object; fails unless it has the form that OpenAI's clients read."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert (error["code"] is None or isinstance(error["code"], str)) and error["message"]
        return error

    def events(self):
        """The JSON events of a stream, which must end with [DONE]."""
        lines = [line[6:] for line in self.body.decode().split("\n\n") if line.startswith("data: ")]
        assert lines and lines[-1] == "[DONE]", self.body[-200:]
        return [json.loads(line) for line in lines[:-1]]


class Server:
    def __init__(self, url, process=None, log=None):
        self.url, self.process, self.log = url, process, log
        address = urllib.parse.urlparse(url)
        self.host, self.port = address.hostname, address.port

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Response(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, headers=None, **more):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        return self.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})}, **more)

    def completion(self, **fields):
        return self.post("/v1/completions", {"prompt": "Hello", "max_tokens": 16, "ignore_eos": True, **fields})

    def chat(self, **fields):
        messages = [{"role": "user", "content": "Hello"}]
        return self.post("/v1/chat/completions",
                         {"messages": messages, "max_tokens": 16, "ignore_eos": True, **fields})

    def socket(self):
        return socket.create_connection((self.host, self.port), timeout=120)

    def metric(self, name, labels=""):
        """The sum of a metric's samples whose labels contain `labels`."""
        text = self.get("/metrics").body.decode()
        samples = re.findall(rf"^{re.escape(name)}(\{{[^}}]*\}})? (\S+)$", text, re.M)
        assert samples, f"no metric {name}"
        return sum(float(value) for given, value in samples if labels in given)

    def wait_until(self, condition, seconds=120):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.02)

    def is_idle(self):
        return self.metric("vllm:num_requests_running") == 0 and self.metric("vllm:num_requests_waiting") == 0

    def openai(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=120)


@contextlib.contextmanager
def start_server(*flags, model=MODEL, limit="true"):
    """A server of our own, stopped at the end. `limit`: a command of the shell that starts it."""
    if not BIN.exists():
        pytest.exit(f"{BIN} is not built: run make build", returncode=1)
    port = () if "--port" in flags else ("--port", "0")
    # Several servers at a time, each of which would take most of a GPU's memory.
    device = () if "--device" in flags else ("--device", "cpu")
    process = subprocess.Popen(["sh", "-c", f'{limit}; exec "$0" "$@"', BIN, "serve", model, *port, *device, *flags],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = []
    for line in process.stdout:
        log.append(line)
        if found := re.search(r"listening on (https?://\S+)", line):
            break
    else:
        raise RuntimeError("the server did not start:\n" + "".join(log))
    reader = threading.Thread(target=lambda: log.extend(process.stdout), daemon=True)
    reader.start()
    try:
        yield Server(found[1], process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, "".join(log)


def write_adapter(folder, module, outputs, inputs, rank=2):
    """A LoRA adapter for one linear layer, as PEFT saves them; its numbers are small and differ."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}))
    header, data = {}, b""
    for name, shape in (("lora_A", [rank, inputs]), ("lora_B", [outputs, rank])):
        count = shape[0] * shape[1]
        values = struct.pack(f"<{count}f", *[(i * 37 % 101 - 50) / 2000 for i in range(count)])
        header[f"base_model.model.{module}.{name}.weight"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def greedy_demo_model(folder, context=2048, **generation):
    """The demo model for clients that send no temperature: it takes the likeliest token."""
    model = folder / "quire-demo"
    shutil.copytree(ROOT / "models/quire-demo", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": context}))
    (model / "generation_config.json").write_text(json.dumps({"temperature": 0.0, **generation}))
    return model


def long_demo_model(folder):
    """With room for an agent's prompt. What it says so far out makes no sense, so its answers are short."""
    return greedy_demo_model(folder, context=65536, max_new_tokens=40)


@pytest.fixture(scope="session")
def server():
    if url := os.environ.get("QUIRE_BASE_URL"):
        yield Server(url.rstrip("/"))
    else:
        with start_server("--disable-access-log") as started:
            yield started


@pytest.fixture(scope="session")
def client(server):
    return server.openai()


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def max_len(client):
    return client.models.list().data[0].max_model_len
