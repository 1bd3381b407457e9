"""The line that says what keeps a client's prompts from being found in the prefix cache."""
import contextlib
import time

from conftest import ROOT, start_server

SAID = "the prompts of this client differ"
REST = list(range(100, 150)) * 12  # of every prompt, so that they go on alike behind their beginning


@contextlib.contextmanager
def server_with(*flags):
    with start_server("--api-key", "a", "--api-key", "b", *flags, model=ROOT / "models/quire-demo") as server:
        def ids(text):
            tokens = server.post("/tokenize", {"prompt": text}, headers={"Authorization": "Bearer a"})
            return tokens.json()["tokens"]

        def ask(key, first, **fields):
            body = {"model": "quire-demo", "prompt": ids(first) + REST, "max_tokens": 1, **fields}
            answer = server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}"})
            assert answer.status == 200, answer.body
        yield server, ask


def lines(server, ask):
    """What has been said; the log is written by a thread, so a later request's line comes behind it."""
    before = len(server.log)
    ask("b", "last", cache_salt="another user")
    deadline = time.monotonic() + 60
    while not any("/v1/completions" in line for line in server.log[before:]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [line for line in server.log if SAID in line]


def test_it_speaks_of_one_key_once_and_escapes_what_it_shows():
    with server_with() as (server, ask):
        ask("a", "one")
        ask("b", "two")
        assert lines(server, ask) == []  # two keys
        ask("a", "\x1b[2J")
        ask("a", "four")
        said = lines(server, ask)
        assert len(said) == 1 and "at token 0" in said[0] and "two" not in said[0]
        assert "\x1b" not in said[0] and "[2J" in said[0]


def test_salts_keep_prompts_apart_on_purpose():
    with server_with() as (server, ask):
        for first in ("one", "two", "three"):
            ask("a", first, cache_salt=first)
        assert lines(server, ask) == []


def test_it_can_be_switched_off():
    with server_with("--disable-cache-doctor") as (server, ask):
        ask("a", "one")
        ask("a", "two")
        assert lines(server, ask) == []
