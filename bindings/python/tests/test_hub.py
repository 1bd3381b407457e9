"""The layout of a kernel repository: names, files and metadata. What `kernels` makes of it is in test_kernels.py."""

import base64
import hashlib
import json
import pathlib
import platform
import subprocess
import sys
import zipfile

import pytest

from hub_wheel import hub_kernel, make_repository, make_wheel


def test_layout_and_metadata(tmp_path):
    repository, variant = make_repository(tmp_path)
    assert variant == repository / "build" / f"torch-stable-abi210-cpu-{platform.machine()}-linux"
    assert (repository / "README.md").read_text().startswith("---\nlicense: apache-2.0\n")
    names = {str(p.relative_to(variant)) for p in variant.rglob("*") if p.is_file()}
    assert {"__init__.py", "_functions.py", "layers.py", "LICENSE", "metadata.json"} <= names
    assert sum(name.startswith("_core.") for name in names) == 1
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["id"].startswith("_quire_kernels_cpu_") and metadata["id"].isidentifier()
    assert (metadata["name"], metadata["version"], metadata["backend"]) == ("quire-kernels", 1, {"type": "cpu"})
    assert set(metadata["digest"]["files"]) == names - {"metadata.json"}
    for name, digest in metadata["digest"]["files"].items():
        assert base64.b64decode(digest) == hashlib.sha256((variant / name).read_bytes()).digest(), name


def test_wheels_of_several_pythons_and_cpus(tmp_path):
    own = make_wheel(tmp_path, "own.whl", tag="cp311-cp311-linux_x86_64")
    core = "quire_kernels/_core.cpython-399-x86_64-linux-gnu.so"
    other = make_wheel(tmp_path, "other.whl", tag="cp399-cp399-manylinux_2_28_x86_64")
    arm = make_wheel(tmp_path, "arm.whl", tag="cp311-cp311-manylinux_2_28_aarch64")
    with zipfile.ZipFile(other, "a") as wheel:
        wheel.writestr(core, b"another extension")
    x86, aarch64 = hub_kernel.lay_out([own, other, arm], tmp_path / "kernel", version=3)
    assert len(list(x86.glob("_core.*"))) == 2 and len(list(aarch64.glob("_core.*"))) == 1
    ids = [json.loads((folder / "metadata.json").read_text()) for folder in (x86, aarch64)]
    assert ids[0]["id"] != ids[1]["id"] and {m["version"] for m in ids} == {3}


def test_refuses_what_is_no_set_of_wheels(tmp_path):
    own = make_wheel(tmp_path, "own.whl", tag="cp311-cp311-linux_x86_64")
    changed = make_wheel(
        tmp_path, "changed.whl", tag="cp312-cp312-linux_x86_64", changed={"quire_kernels/layers.py": b"another text"}
    )
    with pytest.raises(hub_kernel.WheelError, match="changed.whl has another layers.py"):
        hub_kernel.lay_out([own, changed], tmp_path / "kernel")
    mac = make_wheel(tmp_path, "mac.whl", tag="cp311-cp311-macosx_14_0_arm64")
    with pytest.raises(hub_kernel.WheelError, match="mac.whl is for cp311-cp311-macosx_14_0_arm64"):
        hub_kernel.lay_out([mac], tmp_path / "kernel")
    script = pathlib.Path(hub_kernel.__file__)
    empty = tmp_path / "empty.whl"
    empty.write_bytes(b"")
    for wheel, words in ((empty, "hub_kernel.py: "), (tmp_path / "none.whl", "none.whl")):
        run = subprocess.run([sys.executable, script, wheel, "--output", tmp_path / "kernel"], capture_output=True, text=True)
        assert run.returncode == 1 and words in run.stderr and "Traceback" not in run.stderr
    assert not (tmp_path / "kernel").exists()
