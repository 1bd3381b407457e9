"""What the tests of packages have in common: the packages, the systems to try them on (make_roots.py), and a server there."""
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "build/packages"
ROOTS = ROOT / "build/package-roots"
VERSION = re.search(r"project\(quire VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
TREE = f"quire-{VERSION}-linux-x86_64"
NOBODY = "65534:65534"
QUESTION = {"model": "quire-demo", "messages": [{"role": "user", "content": "What is 123 + 456?"}], "temperature": 0}


def glibc_release(loader):
    """36 for glibc 2.36; 0 if the loader does not tell, or there is none."""
    found = re.search(rb"release version 2\.(\d+)", loader.read_bytes()) if loader.exists() else None
    return int(found[1]) if found else 0


class System:
    """A root folder. `environment` of a command is nothing but what is given."""

    def __init__(self, name):
        self.name, self.root = name, ROOTS / name
        assert self.root.is_dir(), f"{self.root} is not there: run tests/packages/make_roots.py"

    def start(self, *command, user=NOBODY, tracer=(), **environment):
        """The process is the command's own. /proc is the machine's, so that its processes can be looked at from here."""
        inside = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec="$1" "$0" "${@:2}"'
        return subprocess.Popen([*tracer, "unshare", "--mount", "bash", "-c", inside, self.root, user, *command], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                                env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", **environment})

    def run(self, *command, **more):
        """What it printed; it must succeed."""
        process = self.start(*command, **more)
        printed = process.communicate(timeout=300)[0]
        assert process.returncode == 0, f"{command}: {printed}"
        return printed

    @contextlib.contextmanager
    def server(self, *command, **more):
        process = self.start(*command, **more)
        with running(process) as server:
            yield server

    def glibc(self):
        return glibc_release(self.root / "lib64/ld-linux-x86-64.so.2")


class Server:
    def __init__(self, process, url, log):
        self.process, self.log = process, log
        self.host, self.port = re.match(r"https?://(.*):(\d+)", url).groups()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host.strip("[]"), int(self.port), timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def answer(self, **headers):
        status, body = self.request("POST", "/v1/chat/completions", QUESTION, headers)
        assert status == 200, body
        return json.loads(body)["choices"][0]["message"]["content"]

    def libraries(self):
        """Files that the process has in memory as code."""
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text()
        return {line.split(maxsplit=5)[5] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6 and "/" in line and " r-xp " in line}


@contextlib.contextmanager
def running(process):
    """A server that listens; it must end well at SIGTERM."""
    log = []
    for line in process.stdout:
        log.append(line)
        if found := re.search(r"listening on (https?://\S+)", line):
            break
    else:
        process.wait()
        raise AssertionError("the server did not start:\n" + "".join(log))
    reader = threading.Thread(target=lambda: log.extend(process.stdout), daemon=True)
    reader.start()
    try:
        yield Server(process, found[1], log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, "".join(log)


@pytest.fixture(scope="session")
def trees():
    """Unpacks the archive on a system, and gives the folder as the system sees it."""
    first = ROOTS / "unpacked"
    folders = []

    def unpack(system):
        # Blanks and a name of one's own: nothing may depend on where it lies.
        folder = system.root / "opt/quire of mine"
        if not folders:
            shutil.rmtree(first, ignore_errors=True)
            first.mkdir()
            subprocess.run(["tar", "xf", PACKAGES / f"{TREE}.tar.xz", "-C", first, "--strip-components=1"], check=True)
        if folder not in folders:
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "-rl", first, folder], check=True)
            folders.append(folder)
        return "/" + str(folder.relative_to(system.root))

    yield unpack
    for folder in [*folders, first]:
        shutil.rmtree(folder, ignore_errors=True)
