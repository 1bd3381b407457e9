"""The .deb's service under a real systemd: a small Debian 12 that systemd-nspawn boots."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from systems import PACKAGES, QUESTION, VERSION, System

pytestmark = pytest.mark.skipif(shutil.which("systemd-nspawn") is None, reason="there is no systemd-nspawn")
CONFIG = "etc/quire.conf"


def children(pid):
    return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition, what, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Machine:
    """A system that has been booted, in the network of this one."""

    def __init__(self, root, port, log):
        self.root, self.port = root, port
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--console=pipe", "-D", root, "--boot"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.init = None
        wait_until(self.has_booted, f"no systemd: {log.name}")

    def has_booted(self):
        assert self.process.poll() is None, "systemd-nspawn has ended"
        found = [pid for pid in children(self.process.pid) if pathlib.Path(f"/proc/{pid}/comm").read_text() == "systemd\n"]
        self.init = found[0] if found else None
        return self.init and self.try_to("systemctl", "is-active", "multi-user.target").returncode == 0

    def try_to(self, *command):
        return subprocess.run(["nsenter", "-t", str(self.init), "-m", "-u", "-i", "-p", *command], capture_output=True, text=True, timeout=120)

    def run(self, *command):
        done = self.try_to(*command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()}"
        return done.stdout

    def show(self, name):
        return self.run("systemctl", "show", "quire", "--value", "-p", name).strip()

    def journal(self):
        return self.try_to("journalctl", "--no-pager", "-q", "-u", "quire").stdout

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def status(self, path, body=None, **headers):
        """The answer's status and text; 0 if nobody answers."""
        connection = self.connect()
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def wait_until_ready(self):
        wait_until(lambda: self.status("/health?ready")[0] == 200, f"not ready: {self.journal()}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)  # an orderly end
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.process.kill()


@pytest.fixture
def machine(tmp_path):
    system = System("service")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shutil.copy(PACKAGES / f"quire_{VERSION}_amd64.deb", system.root / "tmp/quire.deb")
    shutil.rmtree(system.root / "etc/systemd/system/quire.service.d", ignore_errors=True)
    system.run("dpkg", "--purge", "quire", user="0:0")
    system.run("dpkg", "--force-unsafe-io", "--install", "/tmp/quire.deb", user="0:0")
    config = system.root / CONFIG
    config.write_text(config.read_text().replace("port: 8000", f"port: {port}"))
    system.run("systemctl", "enable", "quire", user="0:0")
    with contextlib.ExitStack() as ends:
        machine = Machine(system.root, port, ends.enter_context(open(tmp_path / "log", "w")))
        ends.callback(machine.stop)
        yield machine


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed")
def test_the_service(machine):
    machine.wait_until_ready()
    status, body = machine.status("/v1/chat/completions", QUESTION)
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "123 + 456 = 579"
    # A user of its own, of those that systemd makes for DynamicUser.
    main = machine.show("MainPID")
    assert 61184 <= int(machine.run("stat", "-c", "%u", f"/proc/{main}")) <= 65519
    assert machine.show("NRestarts") == "0"

    # A server that dies is started anew; keys as the guide gives them to it.
    machine.run("systemctl", "kill", "--signal=KILL", "quire")
    wait_until(lambda: machine.show("NRestarts") == "1", "not started anew")
    machine.wait_until_ready()
    (machine.root / "etc/quire-keys").write_text("sk-one\n")
    folder = machine.root / "etc/systemd/system/quire.service.d"
    folder.mkdir()
    (folder / "override.conf").write_text("[Service]\nLoadCredential=keys:/etc/quire-keys\n")
    with open(machine.root / CONFIG, "a") as config:
        config.write("api-key-file: /run/credentials/quire.service/keys\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "quire")
    machine.wait_until_ready()
    assert machine.status("/v1/models")[0] == 401
    key = {"Authorization": "Bearer sk-one"}
    assert machine.status("/v1/models", **key)[0] == 200

    machine.run("systemctl", "reload", "quire")
    wait_until(lambda: "SIGHUP: 1 API keys" in machine.journal(), "no SIGHUP")
    assert machine.status("/v1/models", **key)[0] == 200

    # What is being answered when it is stopped is answered to its end.
    connection = machine.connect()
    body = {"prompt": "Tell me a story.", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", **key})
    answer = connection.getresponse()
    assert answer.read(5) == b"data:"
    machine.run("systemctl", "stop", "quire")
    assert answer.read().endswith(b"data: [DONE]\n\n")
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")
