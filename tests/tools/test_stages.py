"""tools/stages.sh: every stage runs, a failure within one fails it, and the last lines name what failed."""
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(folder, script):
    """Returns the exit status and the lines of a script with stages, in a folder that has tools and Python as the tree does."""
    (folder / "build/venv/bin").mkdir(parents=True)
    (folder / "build/venv/bin/python").symlink_to(sys.executable)  # its virtual environment is found by this name
    (folder / "build/venv/pyvenv.cfg").write_text(pathlib.Path(sys.prefix, "pyvenv.cfg").read_text())
    (folder / "build/venv/lib").symlink_to(pathlib.Path(sys.prefix, "lib"))
    (folder / "tools").symlink_to(ROOT / "tools")
    done = subprocess.run(["bash", "-c", "set -euo pipefail\nsource tools/stages.sh\n" + script], cwd=folder,
                          capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout.splitlines()


def test_all_pass(tmp_path):
    status, lines = run(tmp_path, "stage one true\nstage two echo said\nfinish")
    assert status == 0 and lines[-1] == "stages: 2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("body", [
    "false; echo behind", "false | cat; echo behind", "exit 3", "x=$(false); echo behind", "kill -SEGV $BASHPID", "exit 77",
    "echo $missing; echo behind"])
def test_any_failure_fails_its_stage_and_no_other(tmp_path, body):
    status, lines = run(tmp_path, f"bad() {{ {body}; }}\nstage one bad\nstage two true\nfinish")
    assert status == 1 and lines[-3:] == ["failed: one", "", "stages: 1 passed, 1 failed, 0 skipped"]
    assert "behind" not in (tmp_path / "build/test/one.log").read_text()


def test_a_part_that_may_skip_says_why(tmp_path):
    status, lines = run(tmp_path, "may_skip=1\nnone() { echo no such tool; return 77; }\nstage one none\nstage two true\nfinish")
    assert status == 0 and lines[-1] == "stages: 1 passed, 0 failed, 1 skipped"
    assert any(line.startswith("one ") and line.endswith("skipped (no such tool)") for line in lines)


def test_what_was_not_checked_or_left_running_is_repeated(tmp_path):
    status, lines = run(tmp_path, "odd() { echo NOT CHECKED: x; echo LEFT RUNNING: y; }\nstage one odd\nfinish")
    assert status == 0 and {"NOT CHECKED: x", "LEFT RUNNING: y"} <= set(lines)


def test_what_a_shell_has_set_for_other_runs_is_gone(tmp_path, monkeypatch):
    for name in ("GTEST_FILTER", "PYTEST_ADDOPTS", "QUIRE_USE_REFERENCE", "PYTHONOPTIMIZE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("QUIRE_CUDA", "OFF")
    run(tmp_path, "stage one env\nfinish")
    names = {line.partition("=")[0] for line in (tmp_path / "build/test/one.log").read_text().splitlines()}
    assert "QUIRE_CUDA" in names and not names & {"GTEST_FILTER", "PYTEST_ADDOPTS", "QUIRE_USE_REFERENCE", "PYTHONOPTIMIZE"}


@pytest.mark.parametrize("asked, flag", [("OFF", " -DQUIRE_CUDA=OFF"), ("", "")])
def test_only_the_release_build_is_told_of_cuda(tmp_path, monkeypatch, asked, flag):
    cmake = tmp_path / "bin/cmake"
    cmake.parent.mkdir()
    cmake.write_text('#!/bin/sh\necho "$@"\n')
    cmake.chmod(0o755)
    monkeypatch.setenv("PATH", str(cmake.parent), prepend=":")
    monkeypatch.setenv("QUIRE_CUDA", asked)
    run(tmp_path, "jobs=1\nstage one build release\nstage two build tsan\nfinish")
    configured = [(tmp_path / f"build/test/{log}.log").read_text().splitlines()[0] for log in ("one", "two")]
    assert configured == [f"--preset release{flag}", "--preset tsan"]


def test_a_signal_ends_what_a_stage_has_started(tmp_path):
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    script = "set -euo pipefail\nsource tools/stages.sh\nlong() { sleep 600 & echo $!; wait; }\nstage one long\nfinish"
    shell = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, stdout=subprocess.DEVNULL)
    log, deadline = tmp_path / "build/test/one.log", time.monotonic() + 60
    while not (log.exists() and log.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    started = pathlib.Path("/proc", log.read_text().strip())
    shell.terminate()
    assert shell.wait(60) == 143
    while started.exists() and started.joinpath("stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def run_pytest(folder, body):
    (folder / "test_it.py").write_text("import pathlib\nagain = pathlib.Path('again')\n" + body)
    return run(folder, "stage clients run_pytest clients test_it.py\nfinish")


def test_python_tests_that_fail_are_named_and_flaky_ones_too(tmp_path):
    status, lines = run_pytest(tmp_path, """
def test_good(): pass
def test_bad(): assert False
def test_once():
    first = not again.exists()
    again.touch()
    assert not first
""")
    assert status == 1 and lines[lines.index("== failed tests") + 1:][:2] == ["test_it.py::test_bad", ""]
    assert "test_it.py::test_once" in lines[:lines.index("== failed tests")]


def test_flaky_python_tests_are_green(tmp_path):
    status, lines = run_pytest(tmp_path, "def test_once():\n    first = not again.exists()\n    again.touch()\n    assert not first\n")
    assert status == 0 and lines[-1] == "stages: 1 passed, 0 failed, 0 skipped" and "test_it.py::test_once" in lines


@pytest.mark.parametrize("body", ["", "import nothing_of_this_name\n", "import os\ndef test(): os.abort()\n",
                                  "import pytest\n@pytest.fixture(scope='session')\ndef a():\n    yield\n    assert False\n"
                                  "def test(a): pass\n"])
def test_no_python_test_or_one_that_takes_all_down_is_a_failure(tmp_path, body):
    status, lines = run_pytest(tmp_path, body)
    assert status == 1 and lines[-1] == "stages: 0 passed, 1 failed, 0 skipped"
