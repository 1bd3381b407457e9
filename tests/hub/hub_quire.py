"""What the tests of `quire pull` and of models by name have in common: fixtures, and the program with a hub on loopback
(fake_hub.py). No conftest.py: tests/api has one, which is imported by that name."""
import os
import pathlib
import subprocess

import pytest
from fake_hub import FakeHub, Repo

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("QUIRE_BIN", ROOT / "build/release/bin/quire"))
MODELS = ROOT / "tests/parity/models"


def model_files(name, **changed):
    """A tiny checkpoint's files, and what repositories have besides that nobody needs."""
    files = {path.name: path.read_bytes() for path in (MODELS / name).iterdir() if path.is_file()}
    files.update({"README.md": b"# A model\n", ".gitattributes": b"*.safetensors lfs\n", "pytorch_model.bin": b"\x80" * 2000,
                  "original/consolidated.00.pth": b"\x80" * 10, "golden.json": b"{}"})
    files.update({name.replace("__", "."): data for name, data in changed.items()})
    return files


class Quire:
    """Runs the program with a cache of its own and this hub."""

    def __init__(self, hub, home):
        self.hub, self.home = hub, home
        self.cache = home / "hub"

    def environment(self, **more):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) and not name.lower().endswith("_proxy")}
        return {**env, "HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home), **more}

    def start(self, *arguments, preexec_fn=None, **env):
        if not BIN.exists():
            pytest.exit(f"{BIN} is not built: run make build", returncode=1)
        return subprocess.Popen([BIN, *arguments], env=self.environment(**env), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, preexec_fn=preexec_fn)

    def __call__(self, *arguments, **more):
        """(exit status, stdout, stderr)"""
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def pull(self, name="org/tiny", **env):
        """The folder that the pulled model is in."""
        code, out, err = self("pull", name, **env)
        assert code == 0, err
        return pathlib.Path(out.strip())

    def refusal(self, name="org/tiny", **env):
        """What is said about a model that cannot be had: one line."""
        code, out, err = self("pull", name, **env)
        assert code == 1 and out == "" and err.count("quire: ") == 1, (code, out, err)
        return err


@pytest.fixture
def hub():
    hub = FakeHub()
    hub.repos["org/tiny"] = Repo(model_files("qwen3"))
    yield hub
    hub.close()


@pytest.fixture
def quire(hub, tmp_path):
    return Quire(hub, tmp_path / "home")
