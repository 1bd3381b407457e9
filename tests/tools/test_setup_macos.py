"""tools/setup.sh as a Mac sees it, with stand-ins for a Mac's programs."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEEL = ["mlx/include/mlx/mlx.h", "mlx/lib/libmlx.dylib", "mlx/lib/mlx.metallib", "mlx/share/cmake/MLX/MLXConfig.cmake",
         "mlx_metal-9.9.dist-info/licenses/LICENSE"]


def program(path, text):
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "mac").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "cmake").mkdir()
    shutil.copy(ROOT / "tools/setup.sh", tmp_path / "tools")
    with zipfile.ZipFile(tmp_path / "mlx_metal.whl", "w") as wheel:
        for name in WHEEL:
            wheel.writestr(name, name)
    sha = hashlib.sha256((tmp_path / "mlx_metal.whl").read_bytes()).hexdigest()
    (tmp_path / "cmake/mlx.lock").write_text("mlx-cpu 9.9 0 0\n")
    (tmp_path / "cmake/metal.lock").write_text(f"mlx-metal macosx_15_0_arm64 {sha}\n")
    program(tmp_path / "mac/uname", 'case $* in -m) echo "${MACHINE:-arm64}" ;; *) echo Darwin ;; esac')
    program(tmp_path / "mac/brew", 'case $* in "list --versions cmake") exit 0 ;; list*) exit 1 ;; *) echo "$*" >>brewed ;; esac')
    program(tmp_path / "mac/cargo", "echo cargo ${RUST:-1.95.0}")
    # pip download: the wheel goes where -d says
    program(tmp_path / "mac/python3", 'echo "$*" >>downloaded; while [ "$1" != -d ]; do shift; done; mkdir -p "$2"; cp mlx_metal.whl "$2"')
    return tmp_path


def setup(tree, *arguments, **environment):
    environment = {**os.environ, "PATH": f"{tree / 'mac'}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["bash", "tools/setup.sh", *arguments], cwd=tree, capture_output=True, text=True, timeout=120, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_the_whole_wheel_and_what_homebrew_lacks(tree):
    status, said = setup(tree)
    assert status == 0, said
    assert "install -q ninja ccache" in (tree / "brewed").read_text() and " cmake" not in (tree / "brewed").read_text()
    assert "mlx-metal==9.9" in (tree / "downloaded").read_text()
    for name in WHEEL[:-1]:
        assert (tree / "build/deps/mlx-metal-9.9" / name).read_text() == name
    assert (tree / "build/deps/mlx-metal-9.9/LICENSE").exists()


def test_a_second_run_downloads_nothing(tree):
    setup(tree)
    (tree / "downloaded").unlink()
    assert setup(tree, "--metal")[0] == 0 and not (tree / "downloaded").exists()


def test_another_wheel_than_the_pinned_one_is_refused(tree):
    (tree / "cmake/metal.lock").write_text(f"mlx-metal macosx_15_0_arm64 {'0' * 64}\n")
    status, said = setup(tree)
    assert status == 1 and "is not the pinned one (cmake/metal.lock)" in said
    assert not (tree / "build/deps/mlx-metal-9.9/mlx").exists()


@pytest.mark.parametrize("environment, reason", [({"MACHINE": "x86_64"}, "Macs with Intel's processors"), ({"RUST": "1.80.0"}, "rustup.rs")])
def test_what_a_mac_lacks_is_named(tree, environment, reason):
    status, said = setup(tree, **environment)
    assert status == 1 and reason in said


def test_what_is_for_linux_alone_is_refused(tree):
    status, said = setup(tree, "--tests", "--deep")
    assert status == 77 and "only --tests and --metal are for macOS" in said
