"""What a pull fetches, how it goes on after what came in between, and where names are taken."""
import fcntl
import hashlib
import json
import os
import pathlib
import re
import subprocess
import time
import urllib.request

from fake_hub import Repo
from hub_quire import BIN, hub, model_files, quire  # noqa: F401 (fixtures)

NEEDED = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def weights(hub, name="org/tiny"):
    return hub.repos[name].files["model.safetensors"]


def test_only_what_is_needed_in_the_standard_layout(quire, hub):
    folder = quire.pull()
    repo = hub.repos["org/tiny"]
    root = quire.cache / "models--org--tiny"
    assert folder == root / "snapshots" / repo.commit
    assert {path.name for path in folder.iterdir()} == NEEDED
    for path in folder.iterdir():
        assert os.readlink(path) == f"../../blobs/{repo.etag(path.name)}"
        assert path.read_bytes() == repo.files[path.name]
    assert (root / "refs/main").read_text() == repo.commit
    assert {path.name for path in (root / "blobs").iterdir()} == {repo.etag(name) for name in NEEDED}
    assert (quire.cache / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_a_second_pull_asks_one_question(quire, hub):
    first = quire.pull()
    hub.log.clear()
    assert quire.pull() == first
    assert hub.requests() == [("GET", "/api/models/org/tiny/revision/main")]


def test_shards_are_those_of_the_index(quire, hub):
    hub.repos["org/sharded"] = Repo(model_files("qwen3-untied-sharded", **{"model-of-others__safetensors": b"x" * 99}))
    folder = quire.pull("org/sharded")
    shards = set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())
    assert len(shards) > 1 and {path.name for path in folder.glob("*.safetensors")} == shards


def test_revisions_are_branches_tags_and_commits(quire, hub):
    repo = hub.repos["org/tiny"]
    old = repo.commit
    repo.refs.update({"v1.0": old, "refs/pr/1": old})
    folder = quire.pull("org/tiny@refs/pr/1")
    assert (quire.cache / "models--org--tiny/refs/refs/pr/1").read_text() == old
    hub.log.clear()
    assert quire.pull(f"org/tiny@{old}") == folder and hub.requests() == []  # a commit never changes
    repo.commit_files(model_files("qwen3", README__md=b"newer"))
    assert quire.pull() == folder.parent / repo.commit and repo.commit != old
    assert not hub.requests("store")  # the weights are the same


def test_four_at_once(quire, hub):
    index = {"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(8)}}
    files = {f"{i}.safetensors": bytes([i]) * 1000 for i in range(8)}
    small = {name: data for name, data in model_files("qwen3").items() if name in NEEDED - {"model.safetensors"}}
    hub.repos["org/many"] = Repo({**files, **small, "model.safetensors.index.json": json.dumps(index).encode()})
    at_work, most = [0], [0]

    def slow(handler, path):
        if handler.name == "store":
            with hub.lock:
                at_work[0] += 1
                most[0] = max(most[0], at_work[0])
            time.sleep(0.2)
            with hub.lock:
                at_work[0] -= 1
        return False

    hub.fault = slow
    quire.pull("org/many")
    assert most[0] == 4


def test_cut_connections_go_on_where_they_broke_off(quire, hub):
    hub.cut_after = len(weights(hub)) // 3
    folder = quire.pull()
    assert (folder / "model.safetensors").read_bytes() == weights(hub)
    begins = [int(headers.get("Range", "bytes=0-")[6:-1]) for server, _, path, headers in hub.log
              if server == "store" and path.endswith(hub.repos["org/tiny"].etag("model.safetensors"))]
    assert begins == sorted(begins) and len(begins) >= 3 and begins[1] == hub.cut_after


def kill_in_the_middle(quire, hub):
    """A pull that is killed when half of the weights are there."""
    half = len(weights(hub)) // 2

    def hang(handler, path):
        if handler.name != "store":
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(weights(hub))))
        handler.end_headers()
        handler.wfile.write(weights(hub)[:half])
        handler.wfile.flush()
        time.sleep(20)
        return True

    hub.fault = hang
    process = quire.start("pull", "org/tiny")
    partial = quire.cache / "models--org--tiny/blobs" / (hashlib.sha256(weights(hub)).hexdigest() + ".incomplete")
    deadline = time.monotonic() + 20
    while not partial.exists() or partial.stat().st_size < half:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    hub.fault = None
    hub.log.clear()
    return partial, half


def test_a_killed_pull_is_completed_by_the_next(quire, hub):
    partial, half = kill_in_the_middle(quire, hub)
    assert not (quire.cache / "models--org--tiny/refs/main").exists()
    folder = quire.pull()
    assert (folder / "model.safetensors").read_bytes() == weights(hub) and not partial.exists()
    asked = [headers["Range"] for server, _, _, headers in hub.log if server == "store"]
    assert asked == [f"bytes={half}-"]


def test_a_server_without_ranges_and_a_wrong_beginning(quire, hub):
    partial, half = kill_in_the_middle(quire, hub)
    hub.ignores_ranges = True
    assert (quire.pull() / "model.safetensors").read_bytes() == weights(hub)
    # What was there is the beginning of something else: found by the hash, and fetched again.
    hub.ignores_ranges = False
    partial.with_suffix("").unlink()
    partial.write_bytes(b"?" * half)
    (quire.pull())
    assert partial.with_suffix("").read_bytes() == weights(hub)
    # Longer than the file.
    partial.with_suffix("").unlink()
    partial.write_bytes(b"?" * (2 * len(weights(hub))))
    assert (quire.pull() / "model.safetensors").read_bytes() == weights(hub)


def test_a_second_puller_waits_for_the_first(quire, hub):
    lock = quire.cache / ".locks/models--org--tiny" / (hashlib.sha256(weights(hub)).hexdigest() + ".lock")
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = quire.start("pull", "org/tiny")
        line = process.stderr.readline()
        while "another process is fetching model.safetensors" not in line:
            assert line, "it did not wait"
            line = process.stderr.readline()
        assert not hub.requests("store")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_two_pulls_at_once_fetch_once(quire, hub):
    processes = [quire.start("pull", "org/tiny") for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert len(hub.requests("store", "GET")) == 1


def test_busy_hubs_are_left_alone_as_long_as_they_ask(quire, hub):
    refused = []

    def busy(handler, path):
        if len(refused) >= 2:
            return False
        refused.append(time.monotonic())
        handler.answer(429, headers={"Retry-After": "1"})
        return True

    hub.fault = busy
    start = time.monotonic()
    code, out, err = quire("pull", "org/tiny")
    assert code == 0 and time.monotonic() - start >= 2, err
    assert err.count("the hub wants fewer requests (429); going on in 1 s") == 2


def test_lines_when_nobody_watches_and_a_bar_on_a_terminal(quire, hub):
    _, out, err = quire("pull", "org/tiny")
    assert "org/tiny: model.safetensors: 430 kB\n" in err and "\r" not in err and "\x1b" not in err
    hub.repos["org/more"] = Repo(model_files("qwen3", README__md=b"x"))
    hub.repos["org/more"].files["model.safetensors"] += b"\0" * (1 << 20)

    def slow(handler, path):
        if handler.name != "store":
            return False
        data = hub.repos["org/more"].files["model.safetensors"]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for begin in range(0, len(data), 1 << 18):
            handler.wfile.write(data[begin:begin + (1 << 18)])
            handler.wfile.flush()
            time.sleep(0.15)
        return True

    hub.fault = slow
    terminal, other = os.openpty()
    process = subprocess.Popen([BIN, "pull", "org/more"], env=quire.environment(), stdout=subprocess.PIPE, stderr=other)
    os.close(other)
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # closed
        pass
    os.close(terminal)
    assert process.wait(60) == 0
    text = shown.decode()
    assert re.search(r"\rorg/more: \d+ % of 1 MB, \d+ [kM]B/s, \d+ s left \(4 of 5 files\)\x1b\[K", text), text
    assert text.endswith("\r\x1b[K")


def test_names_serve_run_and_quantise(quire, hub, tmp_path):
    code, out, err = quire("run", "org/tiny", "Hello", "--max-tokens", "4", "--device", "cpu")
    assert code == 0 and "model   org/tiny (Qwen3ForCausalLM" in err, err
    offline = quire("run", "org/tiny", "Hello", "--max-tokens", "4", "--device", "cpu", HF_HUB_OFFLINE="1")
    assert offline[:2] == (0, out)
    code, out, err = quire("quantize", "org/tiny", str(tmp_path / "small"), "--group-size", "32")
    assert code == 0 and not any(path.is_symlink() for path in (tmp_path / "small").iterdir()), err
    process = quire.start("serve", "org/tiny@main", "--port", "0", "--device", "cpu")
    try:
        while not (found := re.search(r"listening on (\S+)", line := process.stderr.readline())):
            assert line
        with urllib.request.urlopen(found[1] + "/v1/models") as answer:
            assert json.load(answer)["data"][0]["id"] == "org/tiny"
    finally:
        process.terminate()
        process.communicate()


def test_bench_takes_a_tokenizer_by_name(quire, hub):
    code, out, err = quire("bench", "serve", "--model", "org/tiny", "--port", "1", "--num-prompts", "1")
    assert code != 0 and "Connection refused" in err, err
    assert not hub.requests("store") or all("safetensors" not in path for _, path in hub.requests("hub"))
    folder = quire.cache / "models--org--tiny/snapshots" / hub.repos["org/tiny"].commit
    assert {path.name for path in folder.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    code, out, err = quire("bench", "latency", "org/tiny", "--input-len", "4", "--output-len", "2", "--batch-size", "1",
                           "--num-iters", "1", "--num-iters-warmup", "0", "--device", "cpu")
    assert code == 0, err


def test_what_is_in_the_cache_will_do_when_the_hub_is_away(quire, hub):
    quire.pull()
    hub.close()
    code, out, err = quire("run", "org/tiny", "Hello", "--max-tokens", "2", "--device", "cpu")
    assert code == 0 and "cannot be reached" in err and "taking what is in the cache" in err
    assert "cannot be reached" in quire.refusal()  # a pull is to ask
    # Without a name server each question fails before a connection.
    code, out, err = quire("run", "org/tiny", "Hello", "--max-tokens", "2", "--device", "cpu",
                           HF_ENDPOINT="http://nosuch.invalid")
    assert code == 0 and "cannot be reached" in err and "taking what is in the cache" in err, err


def test_a_folder_comes_before_a_name(quire, hub, tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/tiny").symlink_to(pathlib.Path(__file__).resolve().parents[1] / "parity/models/qwen3")
    done = subprocess.run([BIN, "run", "org/tiny", "Hello", "--max-tokens", "2", "--device", "cpu"], cwd=tmp_path,
                          env=quire.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and hub.requests() == [], done.stderr
