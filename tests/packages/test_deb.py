"""The .deb: installed, served as its unit says, purged without a trace; the unit as far as it can be looked at without a
running systemd."""
import pathlib
import re
import shutil
import subprocess

import pytest
from systems import PACKAGES, VERSION, System

DEB = PACKAGES / f"quire_{VERSION}_amd64.deb"
UNIT = "usr/lib/systemd/system/quire.service"
SYSTEMS = ["bullseye", "bookworm", "trixie"]


def unit_lines(text, key):
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(f"{key}=")]


def files_of(system):
    """What a package may leave, without what dpkg writes about itself."""
    skipped = ("proc", "dev", "sys", "tmp", "var/lib/dpkg", "var/log", "var/cache/debconf")
    found = set()
    for folder in system.root.iterdir():
        if folder.name not in skipped and not folder.is_symlink():
            found |= {path.relative_to(system.root).as_posix() for path in folder.rglob("*")}
    return {name for name in found if not name.startswith(skipped)}


@pytest.fixture
def installed(request):
    system = System(request.param)
    shutil.copy(DEB, system.root / "tmp/quire.deb")
    system.run("dpkg", "--purge", "quire", user="0:0")  # what a run that was cut off has left
    before = files_of(system)
    try:
        system.run("dpkg", "--force-unsafe-io", "--install", "/tmp/quire.deb", user="0:0")
        yield system
    finally:
        cache = system.root / "var/cache/private/quire/hub"  # as the service makes it
        cache.mkdir(parents=True, exist_ok=True)
        (system.root / "var/cache/quire").symlink_to("private/quire")
        system.run("dpkg", "--purge", "quire", user="0:0")
    left = files_of(system) - before - {"var/cache/private"}
    assert not left and before <= files_of(system), left


@pytest.mark.parametrize("installed", SYSTEMS, indirect=True)
def test_the_service_answers(installed):
    unit = (installed.root / UNIT).read_text()
    [command] = unit_lines(unit, "ExecStart")
    environment = dict(line.split("=", 1) for line in unit_lines(unit, "Environment"))
    with installed.server(*command.split(), QUIRE_PORT="0", **environment) as server:
        assert server.answer() == "123 + 456 = 579"
        assert pathlib.Path(f"/proc/{server.process.pid}/comm").read_text() == "quire\n"
    assert "http://127.0.0.1:8000" in (installed.run("quire", "--help"))
    assert installed.run("dpkg", "--verify", "quire", user="0:0") == ""
    assert installed.run("dpkg-query", "-W", "-f", "${Conffiles}", "quire").split()[0] == "/etc/quire.conf"


@pytest.mark.parametrize("installed", ["bookworm"], indirect=True)
def test_an_upgrade_keeps_the_configuration(installed):
    config = installed.root / "etc/quire.conf"
    config.write_text(config.read_text() + "max-model-len: 64\n")
    installed.run("dpkg", "--force-unsafe-io", "--force-confold", "--install", "/tmp/quire.deb", user="0:0")
    assert config.read_text().endswith("max-model-len: 64\n")


@pytest.fixture
def unit(tmp_path):
    """The unit of the package, with a program that this machine has in the place of Quire's."""
    subprocess.run(["dpkg-deb", "-x", DEB, tmp_path], check=True)
    text = (tmp_path / UNIT).read_text()
    changed = tmp_path / "quire.service"
    changed.write_text(text.replace("/usr/bin/quire", "/usr/bin/env"))
    return changed


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")


@needs_systemd
def test_the_unit_is_one(unit):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    about_it = [line for line in done.stderr.splitlines() if "quire" in line]
    assert done.returncode == 0 and not about_it, done.stderr


@needs_systemd
def test_the_unit_is_locked_up(unit):
    """systemd's own measure: 0 is closed, 10 open; what the network needs is more than 1."""
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", unit],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert float(re.search(r"Overall exposure level for \S+: (\S+)", done.stdout)[1]) <= 2.0


def allowed_calls(filters):
    """The system calls of a unit's SystemCallFilter lines, by systemd-analyze's lists."""
    told = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], check=True, capture_output=True, text=True).stdout
    sets, name = {}, None
    for line in re.sub(r"\x1b\[[0-9;]*m", "", told).splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = set()
        elif name and line.strip() and not line.lstrip().startswith("#"):
            sets[name].add(line.strip())

    def calls(name):
        return set().union(*(calls(entry) if entry.startswith("@") else {entry} for entry in sets[name]))

    allowed = set()
    for line in filters:
        for name in line.lstrip("~").split():
            allowed = allowed - calls(name) if line.startswith("~") else allowed | calls(name)
    return allowed


@needs_systemd
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
@pytest.mark.parametrize("installed", ["trixie"], indirect=True)
def test_the_units_filters_let_it_work(installed, unit, tmp_path):
    """The calls of a server that answers are allowed, and none asks for memory that may be written and run."""
    trace = tmp_path / "trace"
    # -D: the server is this process's child, and the tracer is not.
    with installed.server("quire", "serve", "--config", "/etc/quire.conf", QUIRE_PORT="0",
                          tracer=["strace", "-D", "-f", "-qq", "-o", str(trace)]) as server:
        assert server.answer() == "123 + 456 = 579"
    [_, told] = trace.read_text().split('execve("/usr/lib/quire/quire"')
    used = set(re.findall(r"^\d+ +([a-z]\w*)\(", told, re.M))
    assert {"openat", "mmap", "clone3", "listen"} <= used
    assert not used - allowed_calls(unit_lines(unit.read_text(), "SystemCallFilter"))
    assert not re.search(r"(mmap|mprotect)\(.*PROT_WRITE\|PROT_EXEC", told)
