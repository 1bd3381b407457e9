"""Attacks beside a victim that asks for 8 tokens every 50 ms. An attack is a function of an Attacker that returns
when it has done what it can; to add one, write the function and name it in ATTACKS. The machine may be shared with
others, so the best of ROUNDS rounds counts."""
import concurrent.futures
import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import re
import resource
import socket
import struct
import time

import pytest
from neighbour import MIB, Watch, read_memory, request_text, run_attack

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("api_conftest", ROOT / "tests/api/conftest.py")
api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(api)

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="reads the memory of its own server")

MODEL = ROOT / "models/quire-demo"
BLOCK_BYTES = 16 * 8 * 2 * 2 * 64 * 2  # of KV: tokens, layers, keys and values, heads, elements, bytes
LONG_PROMPT = 8000  # tokens
READY = (MODEL / "model.safetensors").stat().st_size  # of the KV pool an idle engine touches so much ahead, at most
KEPT = 64 * MIB  # that the allocator may keep after one attack
ROUNDS = 3
# What is promised: the victim's p99 is below the larger of 3 times what it is alone and VICTIM, that of /health below
# HEALTH, in seconds. Where /health alone comes near HEALTH already, the machine is busy with other things: there it may
# take twice as long as alone.
VICTIM, HEALTH = 0.1, 0.05
ATTACKER_KEY, VICTIM_KEY = "attacker", "victim"
DASHES = "-" * 64  # a token, as many vocabularies have one


class Place:
    """A server with a victim. `buffered`: its --max-buffered-bytes."""

    def __init__(self, server, buffered, key=None):
        self.server, self.buffered, self.key = server, buffered, key
        # Pages of the KV cache and of activations are the engine's, and stay once they were used.
        warm = {"prompt": ["Once upon a time " * 100 + str(i) for i in range(40)], "prompt_logprobs": 1, "max_tokens": 1}
        assert server.post("/v1/completions", warm, self.headers()).status == 200
        self.look(2)
        self.first = self.now()

    def headers(self):
        return {"Authorization": f"Bearer {self.key}"}

    def watch(self, fields=None):
        return Watch(self.server, self.headers(), fields)

    def look(self, seconds, fields=None):
        """What the victim sees for some seconds with nobody beside."""
        with self.watch(fields) as alone:
            time.sleep(seconds)
        assert not alone.failures
        return alone

    def touched_kv(self):
        """Bytes of the KV pool that are resident since some request had them."""
        text = self.server.get("/metrics", headers=self.headers()).body.decode()
        return int(re.search(r"^quire:kv_blocks_touched\{.*\} (\d+)$", text, re.M)[1]) * BLOCK_BYTES

    def now(self):
        """Resident bytes, and those of the KV pool."""
        return read_memory(self.server), self.touched_kv()

    def with_growth(self, memory, kv):
        """Resident bytes `memory` when `kv` of the pool were, with what the pool has grown by since then."""
        return memory + self.touched_kv() + READY - kv


@pytest.fixture(scope="module")
def small_memory():
    flags = ("--disable-access-log", "--max-buffered-bytes", "256MiB", "--kv-cache-memory", "64MiB")
    with api.start_server(*flags, model=MODEL) as server:
        yield Place(server, 256 * MIB)


def changed_demo(folder, change, *names):
    """A folder with the demo model, whose files `names` are `change` of what they were."""
    folder.mkdir()
    for file in MODEL.iterdir():
        if file.name in names:
            (folder / file.name).write_text(change(file.read_text()))
        else:
            (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="module")
def default_flags(tmp_path_factory):
    """The demo model, as if it could read LONG_PROMPT tokens."""
    def change(text):
        return json.dumps(json.loads(text) | {"max_position_embeddings": 2 * LONG_PROMPT})

    with api.start_server(model=changed_demo(tmp_path_factory.mktemp("neighbour") / "long", change, "config.json")) as server:
        yield Place(server, 512 * MIB)


@pytest.fixture(scope="module")
def two_keys(tmp_path_factory):
    """The demo model with a token that is DASHES."""
    def change(text):
        assert "</tool_response>" in text
        return text.replace("</tool_response>", DASHES)

    model = changed_demo(tmp_path_factory.mktemp("neighbour") / "dashes", change, "tokenizer.json", "tokenizer_config.json")
    flags = ("--api-key", ATTACKER_KEY, "--api-key", VICTIM_KEY, "--max-num-seqs", "16")
    with api.start_server(*flags, model=model) as server:
        yield Place(server, 512 * MIB, VICTIM_KEY)


def large_texts(attacker):
    """Twelve texts of 31 MB for /tokenize."""
    body = b'{"prompt": "' + b"lazy dogs and words " * (31_000_000 // 20) + b'"}'
    attacker.send_all(request_text("/tokenize", body), 12)
    assert attacker.statuses() <= {400, 429, 503, None}


def texts_within_limits(attacker):
    """As much to tokenise as is let in."""
    body = b'{"prompt": "' + b"lazy dogs and words " * (4_000_000 // 20) + b'"}'
    attacker.send_all(request_text("/tokenize", body), 12)
    assert attacker.statuses() <= {200, 400, 429, 503, None}


def gone_clients(attacker):
    """Eight times 12 MB, and nobody waits for the answers."""
    body = b'{"truncate_prompt_tokens": 100, "prompt": "' + b"lazy dogs and words " * 600_000 + b'"}'
    attacker.send_all(request_text("/v1/completions", body), 8)
    attacker.close()


def endless_words(attacker):
    """Texts that the tokenizer has to take in one go."""
    body = json.dumps({"prompt": "a" * 500_000}).encode()
    attacker.send_all(request_text("/tokenize", body), 24)
    assert attacker.statuses() <= {200, 400, 429, 503, None}


def unfinished_bodies(attacker):
    """110 bodies of 31 MiB that never end."""
    piece = b"x" * (31 * MIB - 100)
    attacker.send_all(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
                      b"Content-Length: " + str(31 * MIB).encode() + b"\r\n\r\n" + piece, 110)
    held = attacker.server.metric("quire:http_buffered_bytes", 'kind="bodies"')
    assert held <= 256 * MIB


def many_values(attacker):
    """Documents that are ten times as large when they are parsed."""
    body = b'{"prompt": [' + b"1," * 12_000_000 + b"1]}"
    attacker.send_all(request_text("/v1/completions", body), 12)
    assert attacker.statuses() <= {400, 429, 503, None}


def large_answers(attacker):
    """Log-probabilities of every token of 64 prompts, for two clients."""
    body = {"prompt": ["Once upon a time " * 100] * 64, "prompt_logprobs": 20, "max_tokens": 1, "temperature": 0}
    text = request_text("/v1/completions", json.dumps(body).encode(), "Connection: close\r\n")
    attacker.send_all(text, 2)
    sizes = [attacker.read_to_end(opened) for opened in attacker.sockets]
    assert max(sizes) > 10 * MIB, sizes  # answered whole
    assert attacker.server.metric("quire:http_buffered_bytes", 'kind="answers"') <= 256 * MIB


def answers_that_cannot_fit(attacker):
    body = {"prompt": ["Once upon a time " * 100] * 64, "n": 16, "prompt_logprobs": 20, "logprobs": 20,
            "max_tokens": 1000}
    opened = attacker.send(request_text("/v1/completions", json.dumps(body).encode(), "Connection: close\r\n"))
    opened.settimeout(20)
    answer = opened.recv(1 << 16)
    assert b" 400 " in answer[:20] and b"64 prompts x `n` of 16" in answer, answer


def idle_sockets(attacker):
    """More connections than the server takes, a quarter with a head that never ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for i in range(4500):
        opened = attacker.open()
        if i % 4 == 0:
            opened.sendall(b"GET /health HTTP/1.1\r\nHost:")
    assert attacker.server.get("/health").status == 200


def heads_of_many_headers(attacker):
    """As many connections as there may be, each with a head of 3,000 short headers that never ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(2000):
        attacker.send(b"GET /health HTTP/1.1\r\nHost: h\r\n" + b"a:b\r\n" * 3000)
    time.sleep(2)


def requests_sent_ahead(attacker):
    """A thousand connections of another address without a key, each with as many requests as fit into its socket."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(1000):
        opened = attacker.open()
        opened.setblocking(False)
        with contextlib.suppress(OSError):
            opened.send(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n" * 3000)
    time.sleep(4)


def posts_sent_ahead(attacker):
    """The same by a key, with requests that workers answer."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    opened = [attacker.open() for _ in range(1000)]
    for connection in opened:
        connection.setblocking(False)
    request, end = by_key({"prompt": 5}), time.monotonic() + 6  # a 400
    while time.monotonic() < end:
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.send(request * 100)
            with contextlib.suppress(OSError):
                connection.recv(1 << 16)


def many_pairs(attacker):
    """Small bodies with as many documents as may be, each of which becomes a prompt, from eight connections."""
    body = by_key({"query": "q", "documents": ["d"] * 2048}, "/v1/rerank")
    assert len(body) < 16 << 10
    for _ in range(4):
        attacker.deadline = time.monotonic() + 4
        attacker.send_all(body, 8)
        assert attacker.statuses() <= {200, 429, None}
        attacker.close()


def texts_before_a_long_one(attacker):
    """As much to tokenise as is let in, beside a victim whose own body is large."""
    body = by_key({"prompt": "lazy dogs and words " * (4_000_000 // 20)}, "/tokenize")
    for _ in range(2):
        attacker.send_all(body, 8)
        assert attacker.statuses() <= {200, 400, 429, 503, None}
        attacker.close()


texts_before_a_long_one.victim_asks = {"prompt": "lazy dogs and words " * 6000, "truncate_prompt_tokens": 100}


def resets_at_once(attacker):
    """Requests from twelve connections at a time that are reset as soon as their answers have begun, each with a prompt of its own."""
    numbers = itertools.count()

    def begin_and_reset():
        while time.monotonic() < end:
            body = {"prompt": f"{next(numbers)} times upon a time " * 20, "max_tokens": 1000, "n": 4, "ignore_eos": True, "stream": True}
            with socket.create_connection((attacker.server.host, attacker.server.port), 20, ("127.0.0.2", 0)) as opened:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                opened.sendall(by_key(body))
                assert opened.recv(9) == b"HTTP/1.1 "

    end = time.monotonic() + 8
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        for ended in [threads.submit(begin_and_reset) for _ in range(12)]:
            ended.result()
    assert next(numbers) > 100


def ambiguous_grammars(attacker):
    """64 answers in a grammar whose every mask is slower than the one before."""
    body = {"prompt": "Once", "max_tokens": 200, "n": 64, "guided_grammar": "start: e\ne: e e e | e e | T\nT: /[a-z ]/\n"}
    for _ in range(2):
        attacker.deadline = time.monotonic() + 25
        attacker.send(request_text("/v1/completions", json.dumps(body).encode()))
        assert attacker.statuses() == {400}  # over its budget of processor time
        attacker.close()


def long_prompt(max_tokens):
    """A body with a prompt that no other has."""
    first = time.monotonic_ns()
    return json.dumps({"prompt": [(first + k * k) % 4000 for k in range(LONG_PROMPT)], "max_tokens": max_tokens}).encode()


def long_prompts(attacker):
    """LONG_PROMPT tokens, eight times, and what is not read after some seconds is given up. An idle server takes the first
    in whole chunks, so one request may wait for one; it must be one among a hundred."""
    for _ in range(16):
        attacker.send(request_text("/v1/completions", long_prompt(8)))
    attacker.deadline = time.monotonic() + 15
    assert attacker.statuses() <= {200, None}


def queue_of_one_key(attacker):
    """256 requests at once; those that are still waiting after some seconds are given up."""
    body = {"prompt": "Once upon a time " * 50, "max_tokens": 100, "ignore_eos": True}
    text = request_text("/v1/completions", json.dumps(body).encode(), f"Authorization: Bearer {ATTACKER_KEY}\r\n")
    attacker.send_all(text, 256)
    attacker.deadline = time.monotonic() + 5
    assert attacker.statuses() <= {200, None}


def metrics_all_the_time(attacker):
    """64 connections that read /metrics as fast as they can: it is rendered on the threads for sockets."""
    request = f"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ATTACKER_KEY}\r\n\r\n".encode()
    opened = [attacker.open() for _ in range(64)]
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for connection in opened:
            connection.sendall(request * 5)
        for connection in opened:
            connection.settimeout(20)
            answers = 0
            while answers < 5:
                received = connection.recv(1 << 18)
                assert received
                answers += received.count(b"HTTP/1.1 200")


def by_key(body, path="/v1/completions"):
    return request_text(path, json.dumps(body).encode(), f"Authorization: Bearer {ATTACKER_KEY}\r\n")


def dear_schemas(attacker):
    """Small bodies, each a schema that takes 0.1 s to compile or is refused by then, from twelve connections at once."""
    text = {"type": "string"}
    wide = {"properties": {f"p{i}": text for i in range(2200)}}
    objects = {f"o{k}": {"type": "object", "properties": {f"q{k}_{i}": text for i in range(260)}} for k in range(8)}
    merged = {"$defs": {"a": {"properties": {f"p{i}": text for i in range(500)}}},
              "anyOf": [{"allOf": [{"$ref": "#/$defs/a"}, {"properties": {f"x{i}": text}}]} for i in range(50)]}
    for _ in range(4):
        for schema in (wide, {"type": "object", "properties": objects}, merged):
            body = by_key({"prompt": "Once", "max_tokens": 1, "guided_json": schema})
            assert len(body) < 64 << 10
            attacker.deadline = time.monotonic() + 20
            attacker.send_all(body, 12)
            assert attacker.statuses() <= {200, 400, 429, 503}
            attacker.close()


def endless_compilation(attacker):
    """Grammars that would take minutes or gigabytes to compile: types that are compared, definitions that are copied, large
    classes of characters."""
    compared = {"type": ["object"] * 3000, "patternProperties": {f"^p{i:04}": True for i in range(100)}}
    copied = {"$defs": {"any": {}, "a": {"enum": list(range(10000))}},
              "anyOf": [{"$ref": "#/$defs/a", "allOf": [{"$ref": "#/$defs/any"}]}] * 2000}
    for fields in ({"guided_json": compared}, {"guided_json": copied}, {"guided_regex": "\\w" * 400_000}):
        attacker.deadline = time.monotonic() + 40
        attacker.send_all(by_key({"prompt": "Once", "max_tokens": 1, **fields}), 6)
        assert attacker.statuses() <= {400, 429, 503}
        attacker.close()


def names_that_collide(count, salts):
    """For each salt `count` names, a power of two, that are all in one bucket of an object of so many members in Boost.JSON.
    Only the last bits of the salt count. The hash is FNV-1a, which can be run backwards."""
    prime = 0x100000001B3
    inverse = pow(prime, -1, count)
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    endings = {}  # that lead from a state to 0
    for word in itertools.product(letters, repeat=3):
        state = 0
        for letter in reversed(word):
            state = state * inverse % count ^ letter
        endings[state] = bytes(word)
    for salt in salts:
        names = []
        for word in itertools.product(letters, repeat=3):
            state = (0xCBF29CE484222325 + salt) % count
            for letter in word:
                state = (state ^ letter) * prime % count
            if (ending := endings.get(state)) and len(names) < count:
                names.append((bytes(word) + ending).decode())
        assert len(names) == count
        yield names


def colliding_names(attacker):
    """Objects whose names all have one hash: every name is compared with every other one, which takes seconds. The last
    twelve bits of the salt are those of large pieces of memory, which begin 16 bytes behind a page's beginning; the next
    three are guessed."""
    for names in names_that_collide(1 << 15, [16 + 4096 * page for page in range(8)]):
        body = json.dumps({"prompt": "x", "z": dict.fromkeys(names, 1)}).encode()
        text = request_text("/v1/completions", body, f"Authorization: Bearer {ATTACKER_KEY}\r\n")
        for _ in range(2):
            attacker.send(text)
    attacker.deadline = time.monotonic() + 20
    assert attacker.statuses() <= {400, 429, 503}


def multiplied_references(attacker):
    """Tools whose arguments' schemas refer to each other a million times."""
    many = {"anyOf": [{"$ref": "#/d"}] * 1200}
    schema = {"type": "object", "d": many, "properties": {f"p{i}": {"$ref": "#/d"} for i in range(1500)}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "tools": [tool]}
    attacker.deadline = time.monotonic() + 40
    attacker.send_all(by_key(body, "/v1/chat/completions"), 12)
    assert attacker.statuses() <= {200, 400, 429, 503}


def grammar_bytes(server):
    text = server.get("/metrics", headers={"Authorization": f"Bearer {VICTIM_KEY}"}).body.decode()
    return float(re.search(r'^quire:http_buffered_bytes\{[^}]*kind="grammars"[^}]*\} (\S+)$', text, re.M)[1])


def growing_grammars(attacker):
    """Grammars of some bytes whose automata grow with every mask."""
    body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "temperature": 1,
            "guided_regex": ".*a.{20}|.*b.{21}|.*c.{22}|.*d.{23}|.*e.{24}"}
    attacker.send_all(by_key(body), 250)
    held = []
    for _ in range(30):
        time.sleep(0.5)
        held.append(grammar_bytes(attacker.server))
    assert MIB < max(held) <= 256 * MIB, held


def slow_masks(attacker):
    """Four times 64 answers in a grammar whose masks become slower, beside a victim with a grammar of its own."""
    body = {"prompt": "Once", "max_tokens": 200, "n": 64, "guided_grammar": "start: e\ne: e e e | e e | T\nT: /[a-z ]/\n"}
    for _ in range(2):
        attacker.deadline = time.monotonic() + 25
        attacker.send_all(by_key(body), 4)
        assert attacker.statuses() <= {400}
        attacker.close()


def long_stop_strings(attacker):
    """Four times 64 answers that are dashes, as 16 long stop strings are but for their ends."""
    stops = ["-" * 2000 + f"b{i}" for i in range(15)] + ["-" * 4095 + "b"]
    answer = attacker.server.post("/tokenize", {"prompt": DASHES}, {"Authorization": f"Bearer {ATTACKER_KEY}"})
    [token] = answer.json()["tokens"]
    body = {"prompt": "Once", "max_tokens": 1900, "n": 64, "stream": True, "ignore_eos": True, "temperature": 0,
            "skip_special_tokens": False, "stop": stops, "logit_bias": {str(token): 100}}
    attacker.send_all(by_key(body), 4)
    assert attacker.statuses() == {200}
    time.sleep(12)


slow_masks.victim_asks = {"guided_json": {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"}}}}


ATTACKS = {
    "small_memory": [large_texts, texts_within_limits, gone_clients, endless_words, unfinished_bodies, many_values,
                     large_answers, answers_that_cannot_fit, idle_sockets, heads_of_many_headers],
    "default_flags": [ambiguous_grammars, long_prompts, texts_within_limits],
    "two_keys": [queue_of_one_key, requests_sent_ahead, posts_sent_ahead, many_pairs, texts_before_a_long_one, resets_at_once, metrics_all_the_time, dear_schemas, endless_compilation, multiplied_references, colliding_names,
                 growing_grammars, slow_masks, long_stop_strings],
}


def run_round(place, attack):
    """What was felt, as sentences; none if nothing was."""
    fields = getattr(attack, "victim_asks", None)
    server, alone = place.server, place.look(2, fields)
    limit = max(3 * alone.p99, VICTIM)
    before = place.now()
    with place.watch(fields) as watch:
        error = run_attack(attack, server)
    assert error is None, error
    base, before = place.with_growth(*place.first), place.with_growth(*before)
    # The allocator keeps more or less of what it once had, from attack to attack. What adds up stays within what requests may hold.
    most_after = min(before * 1.1 + KEPT, base * 1.1 + place.buffered)
    felt = []
    if watch.p99 > limit:
        felt.append(f"the victim's p99 is {watch.p99:.3f} s (limit {limit:.3f}, alone {alone.p99:.3f})")
    if watch.health_p99 > max(HEALTH, 2 * alone.health_p99):
        felt.append(f"/health takes {watch.health_p99:.3f} s (alone {alone.health_p99:.3f})")
    if watch.failures:
        felt.append(f"failures: {watch.failures[:5]}")
    # What the allocator kept before is not there for large bodies, which are mapped on their own.
    if watch.peak > (max(base, before) + place.buffered) * 1.2:
        felt.append(f"{watch.peak / MIB:.0f} MiB resident during the attack, {base / MIB:.0f} at first")
    deadline = time.monotonic() + 10
    while (after := read_memory(server)) > most_after and time.monotonic() < deadline:
        time.sleep(0.1)
    if after > most_after:
        felt.append(f"{after / MIB:.0f} MiB resident 10 s after, {before / MIB:.0f} before, {base / MIB:.0f} at first")
    print(f"{attack.__name__}: p99 {watch.p99 * 1e3:.0f} ms ({alone.p99 * 1e3:.0f} alone), median {watch.median * 1e3:.0f} ms "
          f"({alone.median * 1e3:.0f}), /health {watch.health_p99 * 1e3:.0f} ms ({alone.health_p99 * 1e3:.0f}), {base / MIB:.0f} MiB at first, "
          f"{watch.peak / MIB:.0f} at most, {after / MIB:.0f} after")
    return felt


@pytest.mark.parametrize("place, attack", [(place, attack) for place, attacks in ATTACKS.items() for attack in attacks],
                         ids=lambda value: getattr(value, "__name__", value))
def test_nobody_else_feels_it(request, place, attack):
    place = request.getfixturevalue(place)
    for _ in range(ROUNDS):
        felt = run_round(place, attack)
        if not felt:
            return
    assert not felt, felt
