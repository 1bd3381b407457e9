"""The wheel: `pip install` gives the command, here and on Debian 11 with its pip, and takes all of it away again."""
import shutil
import subprocess
import sys

import pytest
from systems import PACKAGES, System, running

[WHEEL] = PACKAGES.glob("quire-*.whl")


def below(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_here(tmp_path):
    environment = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    before = below(environment)
    pip = [environment / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-index", WHEEL], check=True)
    model = environment / "share/quire/models/quire-demo"
    server = subprocess.Popen([environment / "bin/quire", "serve", model, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    with running(server) as started:
        assert started.answer() == "123 + 456 = 579"
    subprocess.run([*pip, "uninstall", "-y", "quire"], check=True)
    assert not [name for name in below(environment) - before if (environment / name).is_file()]


@pytest.mark.parametrize("how", ["environment", "user"])
def test_on_an_older_system(how):
    system = System("python")
    home = system.root / "tmp/home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    home.chmod(0o777)
    shutil.copy(WHEEL, home / WHEEL.name)
    try:
        if how == "environment":
            system.run("python3", "-m", "venv", "/tmp/home/venv", HOME="/tmp/home")
            system.run("/tmp/home/venv/bin/pip", "install", "--no-index", f"/tmp/home/{WHEEL.name}", HOME="/tmp/home")
            prefix = "/tmp/home/venv"
        else:
            system.run("python3", "-m", "pip", "install", "--user", "--no-index", f"/tmp/home/{WHEEL.name}", HOME="/tmp/home")
            prefix = "/tmp/home/.local"
        with system.server(f"{prefix}/bin/quire", "serve", f"{prefix}/share/quire/models/quire-demo", "--port", "0") as server:
            assert server.answer() == "123 + 456 = 579"
    finally:
        shutil.rmtree(home)
