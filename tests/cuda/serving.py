#!/usr/bin/env python3
"""Serves the demo models on an NVIDIA GPU and asks them: answers are right, and those of requests that share steps are
those of requests alone, to the last bit of their log-probabilities. Needs Python alone.

    tests/cuda/serving.py [QUIRE]    QUIRE: the program (default: build/release/bin/quire)

Ends with 77, and says why, where there is no GPU that can be used. QUIRE_TEST_DEVICE=cpu tries the script itself."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = os.environ.get("QUIRE_TEST_DEVICE", "cuda")
SKIPPED = 77
PROMPTS = [f"What is {a} + {b}?" for a, b in ((123, 456), (7, 5), (99, 1), (250, 250), (31, 400), (808, 91))] + \
          ["What is 600 - 21?", "Sort these words: pear apple fig", "Tell me a story about a cat."]


class Server:
    def __init__(self, url):
        self.url = url

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=120) as answer:
            return answer.read().decode()

    def ask(self, prompt, **more):
        """The message of a chat's answer, and its tokens' log-probabilities."""
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 48, "logprobs": True,
                "top_logprobs": 2, **more}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            choice = json.load(answer)["choices"][0]
        return choice["message"]["content"], choice["logprobs"]


def serve_command(quire, model, *flags):
    return [quire, "serve", ROOT / "models" / model, "--device", DEVICE, "--port", "0", "--disable-access-log", *flags]


@contextlib.contextmanager
def running(quire, model, *flags):
    process = subprocess.Popen(serve_command(quire, model, *flags), stderr=subprocess.PIPE, text=True)
    log = []
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"listening on (http://\S+)", line):
            break
    else:
        text = "".join(log)
        if process.wait() == 1 and "--device cuda: " in text:
            print("skipped:", text.strip().splitlines()[-1])
            sys.exit(SKIPPED)
        sys.exit(f"the server did not start:\n{text}")
    threading.Thread(target=lambda: log.extend(process.stderr), daemon=True).start()
    try:
        yield Server(found[1]), log
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, "".join(log)


def check_device(server, log):
    assert any(line.startswith(DEVICE) for line in log), log
    assert json.loads(server.get("/version"))["device"] == DEVICE
    metrics = server.get("/metrics")
    assert f'quire:device_info{{engine="0"' in metrics and f'device="{DEVICE}"' in metrics
    assert re.search(rf'kernel_runs_total{{.*kernel="linear/{DEVICE}', metrics), "no linear of the device has run"
    assert f"/{'cuda' if DEVICE == 'cpu' else 'cpu'}" not in metrics, "kernels of another device have run"


def check_answers(server, prompts):
    """Each alone, then all at once, some sampled with a seed."""
    asked = [(prompt, {}) for prompt in prompts] + [(prompt, {"temperature": 0.8, "seed": 7}) for prompt in prompts]
    solo = [server.ask(prompt, **more) for prompt, more in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        for _ in range(3):
            together = list(pool.map(lambda one: server.ask(one[0], **one[1]), asked))
            for (prompt, more), alone, shared in zip(asked, solo, together):
                assert alone == shared, f"{prompt} {more}: alone {alone}, beside others {shared}"
    return [content for content, _ in solo[:len(prompts)]]


def check_model(quire, model, *flags):
    with running(quire, model, *flags) as (server, log):
        answers = check_answers(server, PROMPTS)
        assert answers[0].strip() == "123 + 456 = 579", answers[0]
        check_device(server, log)
    print("ok    ", model, *flags)


def check_refused(quire, *flags):
    """What does not fit is refused at the start, with the flag to change."""
    refused = subprocess.run(serve_command(quire, "quire-demo", *flags), stderr=subprocess.PIPE, text=True, timeout=120)
    assert refused.returncode == 1 and flags[0] in refused.stderr, refused
    print("ok     refused:", refused.stderr.strip().splitlines()[-1])


def main():
    quire = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin/quire"
    check_model(quire, "quire-demo")
    check_model(quire, "quire-demo", "--kv-cache-dtype", "int8", "--max-num-batched-tokens", "16")
    check_model(quire, "quire-demo-hybrid", "--kv-cache-memory", "64MiB", "--no-async-scheduling")
    check_refused(quire, "--kv-cache-memory", "4000GiB")
    if DEVICE == "cuda":
        check_refused(quire, "--portable-bits")


if __name__ == "__main__":
    main()
