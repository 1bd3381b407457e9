"""The Dockerfile, played again instruction by instruction in a copy of Debian 12, since a build of an image needs Docker: its
RUNs as root, its ADD as Docker does it with archives, then its command as its user."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from systems import PACKAGES, ROOT, ROOTS, System

KNOWN = {"FROM", "RUN", "ADD", "ENV", "VOLUME", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions():
    text = (ROOT / "package/Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert not [line for line in lines if line.endswith("\\")], "a line that goes on: teach this parser"
    return [line.split(" ", 1) for line in lines]


def only(name):
    [rest] = [rest for kind, rest in instructions() if kind == name]
    return rest


@pytest.fixture(scope="module")
def image():
    assert only("FROM") == "debian:12-slim"
    folder = ROOTS / "image"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cp", "-a", ROOTS / "bookworm", folder], check=True)
    shutil.copy("/etc/resolv.conf", folder / "etc/resolv.conf")
    shutil.copy("/etc/hosts", folder / "etc/hosts")
    for file in pathlib.Path("/etc/apt/apt.conf.d").glob("*"):  # a proxy, if this machine has one
        if "Proxy" in file.read_text():
            shutil.copy(file, folder / "etc/apt/apt.conf.d")
    system = System("image")
    for kind, rest in instructions():
        assert kind in KNOWN, f"{kind}: teach this test"
        if kind == "RUN":
            system.run("sh", "-c", rest, user="0:0")
        elif kind == "ADD":
            pattern, target = rest.split()
            [archive] = PACKAGES.glob(pattern)
            subprocess.run(["tar", "xf", archive, "-C", folder / target.lstrip("/"), "--no-same-owner"], check=True)
        elif kind == "VOLUME":
            assert (folder / rest.lstrip("/")).is_dir()
    yield system
    shutil.rmtree(folder)


def environment():
    return dict(entry.split("=", 1) for entry in only("ENV").split())


def test_it_answers_as_its_user_and_is_healthy(image):
    user = only("USER")
    assert image.run("id", "-u", "quire").strip() == user != "0"
    health = only("HEALTHCHECK").split("CMD ")[1]
    command = [*json.loads(only("ENTRYPOINT")), *json.loads(only("CMD"))]
    with image.server(*command, "--port", "0", user=user, **environment()) as server:
        assert server.answer() == "123 + 456 = 579"
        assert "listening on http://127.0.0.1" in "".join(server.log)  # what is shown of 0.0.0.0
        checked = health.replace(f":{only('EXPOSE')}/", f":{server.port}/")
        assert checked != health
        image.run("sh", "-c", checked, user=user)
        image.run("touch", "/models/a-model", user=user)
    process = image.start("sh", "-c", checked, user=user)
    process.communicate()
    assert process.returncode == 7  # nobody listens


def test_the_image_is_small(image):
    size = int(subprocess.run(["du", "-sk", image.root], check=True, capture_output=True, text=True).stdout.split()[0])
    assert size < 500_000, "KiB of Debian, curl and the program"
    assert not re.search(r"gcc|python3", " ".join(path.name for path in (image.root / "usr/bin").iterdir()))
