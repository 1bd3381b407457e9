"""docs/serving.md: every command of it is run, in its order, by a shell in an empty folder. A hub on loopback has the demo model by
the name that the guide uses; the port 8000 is another one here. What is not run is marked in the guide, in words."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tomllib

import pytest
from conftest import BIN, ROOT, greedy_demo_model, write_adapter

sys.path.append(str(ROOT / "tests/hub"))
from fake_hub import FakeHub, Repo  # noqa: E402

pytestmark = [
    pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own"),
    pytest.mark.skipif(shutil.which("openssl") is None or shutil.which("curl") is None, reason="the guide's commands are these")]
GUIDE = (ROOT / "docs/serving.md").read_text()
MODEL = "Qwen/Qwen3-0.6B"
RUN = ("sh", "python")  # what is run; the other blocks are files
# Why a block may stay unrun: nothing else, and no more than these.
UNRUN = ["systemd", "Docker", "Claude Code", "Docker"]


def blocks():
    """(language, text, reason why it is not run or None) of each fenced block."""
    found = []
    reason = None
    for piece in re.finditer(r"^\*Not run by a test: (?:needs )?([^*.]+)\.\*|^```(\w*)\n(.*?)^```$", GUIDE, re.M | re.S):
        if piece[1]:
            assert reason is None, "a mark without a block"
            reason = piece[1]
        else:
            assert piece[2], f"a block without a language: {piece[3]}"
            found.append((piece[2], piece[3], reason))
            reason = None
    assert reason is None
    return found


def of_language(language):
    return [text for kind, text, _ in blocks() if kind == language]


class Reader:
    """Types what the guide says. A block that ends with `quire serve` is a server, in the place of the one before."""

    def __init__(self, folder, hub):
        self.folder, self.server, self.printed = folder, None, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        programs = folder / "programs"
        programs.mkdir()
        (programs / "quire").symlink_to(BIN.resolve())
        (programs / "python").symlink_to(sys.executable)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("QUIRE_", "HF_", "VLLM_")) and not name.lower().endswith("_proxy")}
        self.environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "cache"),
                            "QUIRE_PORT": str(self.port), "QUIRE_DEVICE": "cpu"}

    def here(self, text):
        return re.sub(r"\b8000\b", str(self.port), text)

    def popen(self, command, **more):
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)

    def run(self, command, text):
        process = self.popen(command)
        printed = process.communicate(timeout=120)[0]
        assert process.returncode == 0, f"{text}\n{printed}"
        self.printed.append(printed)

    def type(self, language, text):
        text = self.here(text)
        if language == "python":
            return self.run([sys.executable, "-c", text], text)
        before, serve, last = text.rpartition("quire serve ")
        if not serve:
            return self.run(["bash", "-euo", "pipefail", "-c", text], text)
        assert last.count("\n") == 1, f"{text}: the server is the last line"
        self.run(["bash", "-euo", "pipefail", "-c", before], before)
        self.serve(f"exec {serve}{last}")

    def serve(self, command):
        self.stop()
        self.server = self.popen(["bash", "-euo", "pipefail", "-c", command])
        log = []
        for line in self.server.stdout:
            log.append(line)
            if "listening on" in line:
                return
        raise AssertionError(f"{command}\n{''.join(log)}")

    def stop(self):
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=60)
            assert self.server.returncode == 0
            self.server = None


@pytest.fixture
def reader(tmp_path):
    model = greedy_demo_model(tmp_path, context=32768)
    hub = FakeHub()
    hub.repos[MODEL] = Repo({path.name: path.read_bytes() for path in model.iterdir()})
    (tmp_path / "home").mkdir()
    write_adapter(tmp_path / "home/adapters/sql", "model.layers.0.mlp.down_proj", 256, 768)
    typist = Reader(tmp_path / "home", hub)
    yield typist
    typist.stop()
    hub.close()


def test_only_what_is_marked_is_not_run():
    assert [reason for kind, _, reason in blocks() if kind in RUN and reason] == UNRUN
    assert not [reason for kind, _, reason in blocks() if kind not in RUN and reason]
    assert {kind for kind, _, _ in blocks()} - set(RUN) == {"nginx", "caddy", "conf", "ini", "yaml", "toml", "json"}


def test_every_command_works(reader):
    for kind, text, reason in blocks():
        if kind in RUN and not reason:
            reader.type(kind, text)
    said = "".join(reader.printed)
    # Three ways to ask: run, curl, the library.
    assert said.count("123 + 456 = 579") == 3, said
    assert "vllm:kv_cache_usage_perc{" in said and '"id":"Qwen/Qwen3-0.6B"' in said.replace(" ", "")


def test_the_service_file_is_one(reader):
    [config] = of_language("conf")
    (reader.folder / "quire.conf").write_text(reader.here(config))
    reader.serve("exec quire serve --config quire.conf")
    with socket.create_connection(("127.0.0.1", reader.port)):
        pass


def test_agents_are_told_this_server():
    [codex] = of_language("toml")
    config = tomllib.loads(codex)
    provider = config["model_providers"][config["model_provider"]]
    assert config["model"] == MODEL and provider["wire_api"] == "responses"
    [opencode] = of_language("json")
    config = json.loads(opencode)
    name, model = config["model"].split("/", 1)
    assert model == MODEL and model in config["provider"][name]["models"]
    for url in (provider["base_url"], config["provider"][name]["options"]["baseURL"]):
        assert url == "http://127.0.0.1:8000/v1"


def test_the_dashboard_asks_for_what_there_is(server):
    assert server.chat(max_tokens=3).status == 200
    there = set(re.findall(r"^([a-z_]+(?::\w+)?)[{ ]", server.get("/metrics").body.decode(), re.M))
    board = json.loads((ROOT / "docs/grafana.json").read_text())
    asked = {name for panel in board["panels"] for target in panel.get("targets", [])
             for name in re.findall(r"\b((?:vllm|quire):\w+|process_\w+|http_\w+)", target["expr"])}
    assert len(asked) > 10 and asked <= there, asked - there
    # So does the guide.
    assert set(re.findall(r"\b((?:vllm|quire):\w+|http_\w+_total)", GUIDE)) <= there


def test_links_lead_somewhere():
    for link in re.findall(r"\]\(([^)#]+)", GUIDE):
        assert (ROOT / "docs" / link).exists(), link
    assert pathlib.Path(ROOT / "docs/grafana.json").exists()
