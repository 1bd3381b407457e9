"""What cannot be had, each with its own sentence, and that a second try completes what the first left behind."""
import hashlib
import json
import pathlib
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest
from fake_hub import FakeHub, Repo
from hub_quire import hub, model_files, quire  # noqa: F401 (fixtures)


def config(**changed):
    files = model_files("qwen3")
    return json.dumps({**json.loads(files["config.json"]), **changed}).encode()


def nothing_of_the_weights(quire, hub):
    assert hub.requests("store") == []
    assert not any(path.stat().st_size > 100_000 for path in quire.cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("files, told", [
    ({"config.json": config(architectures=["GPT2LMHeadModel"])}, ("architecture GPT2LMHeadModel is not supported",)),
    ({"config.json": config(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})},
         ("load_in_8bit",)),
    ({"tokenizer.json": b"{"}, ("tokenizer.json",)),
    ({"tokenizer.json": None}, ("has no tokenizer.json",)),
    ({"config.json": None}, ("has no config.json",)),
    ({"model.safetensors": None}, ("PyTorch pickles", "spaces/safetensors/convert")),
    ({"model.safetensors": None, "model.Q4_K_M.gguf": b"GGUF"}, ("GGUF", "give the file", "quire quantize")),
    ({"model.safetensors": None, "adapter_config.json": b"{}"}, ("adapter", "merge_and_unload")),
])
def test_refused_before_a_byte_of_weights(quire, hub, files, told):
    files = {**hub.repos["org/tiny"].files, **files}
    hub.repos["org/tiny"] = Repo({name: data for name, data in files.items() if data is not None})
    error = quire.refusal()
    assert all(word in error for word in told), error
    nothing_of_the_weights(quire, hub)


def test_no_room_on_the_disk(quire, hub):
    hub.claimed_sizes["model.safetensors"] = 10**15
    error = quire.refusal()
    assert "needs 1000.0 TB more" in error or "needs 1.0 PB more" in error or "needs 1 PB more" in error, error
    assert "HF_HUB_CACHE" in error and "none of it was fetched" in error
    nothing_of_the_weights(quire, hub)
    hub.claimed_sizes.clear()
    quire.pull()


FULL_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
// The disk has room for 200,000 bytes of whatever is called *.incomplete and not small.
ssize_t write(int fd, const void* data, size_t size) {
  static ssize_t (*real)(int, const void*, size_t);
  static size_t written;
  if (!real) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = 0;
  if (!strstr(path, ".incomplete")) return real(fd, data, size);
  if (written + size > 200000) { errno = ENOSPC; return -1; }
  written += size;
  return real(fd, data, size);
}
"""


def test_a_disk_that_becomes_full(quire, hub, tmp_path):
    source, library = tmp_path / "full.c", tmp_path / "full.so"
    source.write_text(FULL_DISK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    error = quire.refusal(LD_PRELOAD=str(library))
    assert "is full: model.safetensors needs" in error and "the same command goes on from there" in error, error
    partial = next(quire.cache.rglob("*.incomplete"))
    assert 0 < partial.stat().st_size <= 200_000
    hub.log.clear()
    quire.pull()
    [ranged] = [headers.get("Range") for server, _, _, headers in hub.log if server == "store"]
    assert ranged and ranged != "bytes=0-"


def test_a_file_that_may_not_grow(quire, hub):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    code, out, err = quire("pull", "org/tiny", preexec_fn=limit)
    assert code == 1 and "cannot write: File too large" in err, err
    quire.pull()


def test_nobody_may_read_it_or_it_is_not_there(quire, hub):
    error = quire.refusal("org/absent")
    assert "there is no model org/absent" in error and "(401)" in error and "set HF_TOKEN" in error
    error = quire.refusal("org/absent", HF_TOKEN="hf_good")
    assert "there is no model org/absent" in error and "(404)" in error
    error = quire.refusal("org/tiny@v9")
    assert "has no branch, tag or commit v9 (404)" in error
    hub.repos["org/secret"] = Repo(model_files("qwen3"), private=True)
    assert "there is no model org/secret" in quire.refusal("org/secret")
    quire.pull("org/secret", HF_TOKEN="hf_good")
    code, out, err = quire("run", "org/absent", "Hello")
    assert code == 1 and "there is no folder org/absent either" in err


def test_gated(quire, hub):
    hub.repos["org/gated"] = Repo(model_files("qwen3"), gated=True)
    page = hub.url + "/org/gated"
    error = quire.refusal("org/gated")
    assert f"org/gated is gated: ask for access at {page}, then set HF_TOKEN" in error, error
    error = quire.refusal("org/gated", HF_TOKEN="hf_stranger")
    assert f"ask for access at {page} with the account of the token that is in HF_TOKEN" in error, error
    (quire.home / "token").write_text("hf_good\n")
    quire.pull("org/gated")


def test_a_token_that_is_none(quire, hub):
    error = quire.refusal(HF_TOKEN="hf_expired")
    assert "does not take the token of HF_TOKEN (401)" in error
    assert "hf_expired" not in error


def test_busy_for_too_long(quire, hub):
    def busy(handler, path):
        handler.answer(429, headers={"Retry-After": "100000"})
        return True

    hub.fault = busy
    assert "wants fewer requests (429)" in quire.refusal()


def test_broken_hubs_and_what_is_none(quire, hub):
    def answering(status, body=b"", **headers):
        def fault(handler, path):
            handler.answer(status, body, headers)
            return True
        return fault

    hub.fault = answering(503, b"", **{"Retry-After": "0"})
    assert "answers with status 503; try again later" in quire.refusal()
    for status, body in ((200, b"<html>hello"), (200, b'{"sha": "main"}'), (200, b"[]"), (204, b"")):
        hub.fault = answering(status, body)
        assert "check HF_ENDPOINT" in quire.refusal()
    hub.fault = answering(302, Location="/login", **{"Content-Length": "0"})
    assert "redirects without end" in quire.refusal()
    hub.fault = None
    quire.pull()


def test_nobody_there(quire, hub):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert "cannot be reached" in quire.refusal(HF_ENDPOINT=url)
    for url in ("http://nosuch.invalid", "http://256.1.1.1", "http://[::1"):
        assert "cannot be reached" in quire.refusal(HF_ENDPOINT=url), url
    error = quire.refusal(HF_ENDPOINT=hub.url.replace("http:", "https:"))
    assert "cannot prove who it is" in error or "cannot be reached" in error, error


def test_a_silent_connection_counts_as_cut(quire, hub):
    asleep = []

    def silent(handler, path):
        if handler.name == "store" and not asleep:
            asleep.append(1)
            time.sleep(4)
        return False

    hub.fault = silent
    quire.pull(HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert asleep and len(hub.requests("store")) == 2


def test_a_connection_that_breaks_off_again_and_again(quire, hub):
    hub.cut_after = 0
    error = quire.refusal()
    assert "the connection to http://127.0.0.1" in error and "broke off" in error
    hub.cut_after = None
    quire.pull()


def test_what_is_not_what_the_hub_named(quire, hub):
    good = hub.repos["org/tiny"].files["model.safetensors"]
    hub.altered["model.safetensors"] = good[:-1] + bytes([good[-1] ^ 1])
    error = quire.refusal()
    expected = hashlib.sha256(good).hexdigest()
    assert "model.safetensors is not what" in error and f"not {expected}" in error
    assert not any(expected in path.name for path in (quire.cache / "models--org--tiny/blobs").iterdir())
    for other in (good + b"x", b"" + good[: len(good) // 2]):
        hub.altered["model.safetensors"] = other
        assert "model.safetensors" in quire.refusal()
    hub.altered.clear()
    quire.pull()


def test_a_small_file_that_is_not_what_the_hub_named(quire, hub):
    def altered(handler, path):
        if not path.endswith("/tokenizer_config.json") or "resolve-cache" not in path:
            return False
        repo = hub.repos["org/tiny"]
        data = repo.files["tokenizer_config.json"]
        handler.answer(200, data[:-1] + b" ", {"X-Repo-Commit": repo.commit, "ETag": f'"{repo.etag("tokenizer_config.json")}"'})
        return True

    hub.fault = altered
    assert "tokenizer_config.json is not what" in quire.refusal()
    hub.fault = None
    quire.pull()


def test_names_and_hashes_that_lead_out_of_the_cache(quire, hub, tmp_path):
    outside = tmp_path / "outside.safetensors"
    index = {"weight_map": {"a": "../../../../../outside.safetensors"}}
    files = {name: data for name, data in model_files("qwen3").items() if name != "model.safetensors"}
    hub.repos["org/evil"] = Repo({**files, "model.safetensors.index.json": json.dumps(index).encode()})
    hub.more_names = ["../../../../../outside.safetensors", "/etc/passwd", "a/../../b"]
    assert "is no plain file name" in quire.refusal("org/evil")
    assert not outside.exists()

    def bad_etag(handler, path):
        if not path.endswith("config.json") or "resolve" not in path:
            return False
        handler.answer(200, b"{}", {"X-Repo-Commit": "0" * 40, "ETag": '"../../../../outside"'})
        return True

    hub.fault = bad_etag
    assert "neither a sha256 nor a sha1" in quire.refusal()

    def bad_commit(handler, path):
        handler.answer(200, {"sha": "../../../outside", "siblings": []})
        return True

    hub.fault = bad_commit
    assert "does not say which commit" in quire.refusal()
    inside = {path for path in tmp_path.rglob("*")} - {tmp_path / "home"}
    assert all(pathlib.Path(tmp_path / "home") in path.parents for path in inside), inside


def test_the_token_goes_to_the_hub_alone(quire, hub):
    quire.pull(HF_TOKEN="hf_good")
    tokens = {server: {headers.get("Authorization") for s, _, _, headers in hub.log if s == server}
              for server in ("hub", "store")}
    assert tokens == {"hub": {"Bearer hf_good"}, "store": {None}}
    assert not any("hf_good" in path.read_text(errors="replace") for path in quire.home.rglob("*") if path.is_file())


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/x", "http://169.254.169.254/latest/meta-data", "http://[::1]/x",
                                    "http://10.0.0.7/x", "http://localhost:1/x", "file:///etc/passwd",
                                    "http://user:word@cdn.example/x"])
def test_a_public_hub_cannot_send_into_this_network(quire, hub, target):
    """The hub is a name that everybody knows, reached through a proxy, which is this server."""
    asked = []

    def proxy(handler, path):
        asked.append(handler.path)
        if not handler.path.startswith("http://hub.example/"):
            handler.answer(200, b"secret")
        elif "/resolve/" in handler.path and handler.path.endswith("/model.safetensors"):
            repo = hub.repos["org/tiny"]
            size = {"X-Linked-Size": str(len(repo.files["model.safetensors"]))}
            handler.answer(302, headers={"Location": target, "X-Repo-Commit": repo.commit, **size,
                                         "X-Linked-ETag": f'"{repo.etag("model.safetensors")}"'})
        else:
            return False
        return True

    hub.fault = proxy
    error = quire.refusal(HF_ENDPOINT="http://hub.example", http_proxy=hub.url)
    assert "nothing was fetched from there" in error, error
    assert all(path.startswith("http://hub.example/") for path in asked)


def test_offline_says_what_is_missing(quire, hub):
    assert "is not in" in quire.refusal(HF_HUB_OFFLINE="1") and hub.requests() == []
    folder = quire.pull()
    (folder / "model.safetensors").unlink()
    assert "model.safetensors is missing" in quire.refusal(HF_HUB_OFFLINE="1")


def test_an_interrupt_ends_a_pull_at_once(quire, hub):
    started = threading.Event()

    def hang(handler, path):
        if handler.name == "store":
            started.set()
            time.sleep(20)
        return False

    hub.fault = hang
    process = quire.start("pull", "org/tiny", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert started.wait(20)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT and time.monotonic() - start < 2
    hub.fault = None
    quire.pull()


def test_names_that_are_none(quire, hub):
    for name in ("tiny", "org/tiny/more", "../org/tiny", "org/tiny@", "org/tiny@../x"):
        assert "is no model's name" in quire.refusal(name)
    assert hub.requests() == []


def test_variables_that_cannot_be_meant(quire, hub):
    assert "HF_ENDPOINT" in quire.refusal(HF_ENDPOINT="huggingface.co")
    assert "HF_TOKEN" in quire.refusal(HF_TOKEN="hf_a b")


def test_another_hub_is_another_address(quire, hub, tmp_path):
    other = FakeHub()
    try:
        other.repos["org/there"] = Repo(model_files("qwen3"))
        quire.pull("org/there", HF_ENDPOINT=other.url + "/")
    finally:
        other.close()
