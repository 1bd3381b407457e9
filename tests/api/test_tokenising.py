"""The memory that tokenising takes is part of the account (--max-buffered-bytes). The texts have no place where they may be
cut, and every character is a word of its own, which is what takes most."""
import concurrent.futures
import http.client
import json
import os
import re
import threading

import pytest

from conftest import ROOT, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="reads the memory of its own server")

MIB = 1 << 20
BUFFERED = 256 * MIB
ROUNDS = 2
FITS, TOO_LARGE = "1'" * 60_000, "1'" * 250_000


def read_memory(server):
    text = open(f"/proc/{server.process.pid}/status", encoding="utf-8").read()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) * 1024


@pytest.fixture(scope="module")
def server():
    flags = ("--max-buffered-bytes", "256MiB", "--kv-cache-memory", "64MiB", "--disable-access-log")
    with start_server(*flags, model=ROOT / "models/quire-demo") as started:
        assert started.completion(prompt=["Once upon a time " * 100] * 16, prompt_logprobs=1).status == 200
        yield started


def post_from(server, address, path, body):
    """The status of an answer to a client with this address."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=120, source_address=(address, 0))
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def bodies():
    """Requests that tokenise, by their paths."""
    for text in (TOO_LARGE, FITS, FITS[:60_000]):
        yield "/tokenize", {"prompt": text}
        yield "/tokenize", {"messages": [{"role": "user", "content": text}]}
        yield "/v1/completions", {"prompt": [text] * 4, "truncate_prompt_tokens": 100, "max_tokens": 1}
        yield "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "truncate_prompt_tokens": 100,
                                       "max_tokens": 1}
        yield "/v1/messages/count_tokens", {"model": "quire-demo", "messages": [{"role": "user", "content": text}]}
        yield "/v1/embeddings", {"input": [text, text], "truncate_prompt_tokens": 100}


def test_many_texts_at_once_stay_within_the_account(server):
    base, peak, done = read_memory(server), 0, threading.Event()

    def weigh():
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, read_memory(server))

    scale = threading.Thread(target=weigh)
    scale.start()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(post_from, server, f"127.0.0.{2 + i % 6}", path, body)
                   for i, (path, body) in enumerate(list(bodies()) * ROUNDS)]
        statuses = {answer.result() for answer in answers}
    done.set()
    scale.join()
    print(f"{base / MIB:.0f} MiB at first, {peak / MIB:.0f} at most, statuses {statuses}")
    assert statuses <= {200, 400, 429, 503}
    assert peak <= (base + BUFFERED) * 1.2, f"{peak / MIB:.0f} MiB, {base / MIB:.0f} at first"
    server.wait_until(lambda: server.metric("quire:http_buffered_bytes", 'kind="tokenising"') == 0)


def test_what_fits_alone_is_tokenised(server):
    answer = server.post("/tokenize", {"prompt": FITS})
    assert answer.status == 200 and answer.json()["count"] == len(FITS)


def test_what_can_never_fit_is_refused_before_it_is_taken(server):
    before = read_memory(server)
    answer = server.post("/tokenize", {"prompt": TOO_LARGE})
    assert answer.status == 400 and "--max-buffered-bytes" in answer.error()["message"]
    assert read_memory(server) < before + 32 * MIB


def test_long_prompts_need_no_more_than_a_piece(server):
    """An ordinary text of 1 MB is tokenised where a word of half as much is refused."""
    answer = server.post("/tokenize", {"prompt": "lazy dogs and words " * 50_000})
    assert answer.status == 200 and answer.json()["count"] > 100_000
