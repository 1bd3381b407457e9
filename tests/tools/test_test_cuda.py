"""tools/test_cuda.py on programs that speak like GoogleTest and do what their suites' names say."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST_CUDA = ROOT / "tools/test_cuda.py"
PROGRAMS = ("ops_tests", "cuda_kernels_test", "engine_tests", "engine_grammar_tests", "parity_tests", "lost_device_tests", "quire")
PROGRAM = f'#!{sys.executable}\n' + '''
import os, pathlib, signal, sys, time
folder, name = pathlib.Path(__file__).parent, pathlib.Path(__file__).name
suites = {"engine_tests": {"Models/Bits": ["SoloEqualsEverySchedule", "OneMore"], "Models/OnTheGpu": ["IsThere"]},
          "ops_tests": {suite: ["Test"] for suite in (folder / "suites").read_text().split()}}.get(name, {"Suite": ["Test"]})
if "--gtest_list_tests" in sys.argv:
    print("Running main() from gtest_main.cc")
    for suite, tests in suites.items():
        print(f"{suite}.  # TypeParam = int", *(f"  {test}  # GetParam() = 1" for test in tests), sep="\\n")
    sys.exit()
what = " ".join(argument.partition(":-")[0] for argument in sys.argv[1:])
with open(folder / "begun", "a") as begun:
    print(name, what, os.environ["QUIRE_TEST_CUDA"], os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("QUIRE_CUDA_KERNELS", "all"), file=begun)
if "Crashes" in what:
    os.kill(os.getpid(), signal.SIGSEGV)
if "Skips" in what:
    sys.exit(77)
if "Hangs" in what:
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)
if "Fails" in what:
    print("[  FAILED  ] 1 test, said why")
sys.exit("Fails" in what)
'''


@pytest.fixture
def programs(tmp_path):
    def make(*suites):
        (tmp_path / "suites").write_text(" ".join(suites))
        for name in PROGRAMS:
            (tmp_path / name).write_text(PROGRAM)
            (tmp_path / name).chmod(0o755)
        return tmp_path
    return make


def run(folder, *options, **environment):
    # The server's test asks for a GPU of its own accord.
    command = [sys.executable, TEST_CUDA, folder, "--only", "^(?!serving)", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment)


def begun(folder):
    return [line.split() for line in (folder / "begun").read_text().splitlines()]


def test_all_jobs_run_once_on_each_kind_of_kernels_and_on_all_gpus(programs):
    folder = programs("Linear", "Norm")
    done = run(folder, "--gpus", "0,3", "--jobs", "1")
    assert done.returncode == 0, done.stdout
    lines = begun(folder)
    ops = sorted((line[2].partition("=")[2], line[-1]) for line in lines if line[0] == "ops_tests")
    assert ops == [("Linear.*", "all"), ("Linear.*", "plain"), ("Norm.*", "all"), ("Norm.*", "plain")]  # this list knows no patterns
    schedules = sorted(line[-1] for line in lines if "SoloEqualsEverySchedule" in " ".join(line))
    assert schedules == ["all", "plain"]
    assert {line[-2] for line in lines} == {"0", "3"} and {line[-3] for line in lines} == {"1"}
    assert lines[-1][0] == "lost_device_tests"  # behind all others
    assert f"{len(lines)} of {len(lines)} jobs passed" in done.stdout


def test_gpus_that_are_hidden_are_left_alone(programs):
    folder = programs("Linear")
    assert run(folder, "--jobs", "1", "--only", "^ops_tests", CUDA_VISIBLE_DEVICES="2,5").returncode == 0
    assert {line[-2] for line in begun(folder)} == {"2", "5"}


def test_no_part_of_the_kernels_test_is_left_out(programs):
    parts = re.findall(r'\{"(\w+)", \w+\}', (ROOT / "tests/cuda/kernels_test.cpp").read_text())
    expected = {part for part in parts if not part.startswith(("bench", "plant"))}
    done = run(programs("Linear"), "--list")
    assert expected and set(re.findall(r"^kernels against float64: (\w+)$", done.stdout, re.M)) == expected


@pytest.mark.parametrize("suite, why", [("Fails", "exit status 1"), ("Skips", "exit status 77"), ("Crashes", "died of signal 11"), ("Hangs", "not done in")])
def test_what_fails_is_named_and_the_others_go_on(programs, suite, why):
    folder = programs("Linear", suite)
    done = run(folder, "--gpus", "0", "--jobs", "8", "--only", "^ops_tests", *(["--seconds", "10"] if suite == "Hangs" else []))
    assert done.returncode == 1
    assert f"failed: ops_tests {suite}: {why}" in done.stdout
    assert "passed: ops_tests Linear," in done.stdout
    assert ("said why" in done.stdout) == (suite == "Fails")


def test_a_program_that_is_not_there_fails_and_the_others_go_on(programs):
    folder = programs("Linear")
    (folder / "cuda_kernels_test").unlink()
    done = run(folder, "--gpus", "0", "--jobs", "8")
    assert done.returncode == 1
    assert "failed: kernels against float64: linear: not started: [Errno 2]" in done.stdout
    assert "passed: ops_tests Linear," in done.stdout and "passed: a lost device ends the process," in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_jobs_too(programs, number):
    folder = programs("Hangs")
    command = [sys.executable, TEST_CUDA, folder, "--gpus", "0", "--jobs", "1", "--only", "^ops_tests Hangs$"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (pid := (folder / "pid").read_text() if (folder / "pid").exists() else ""):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    until = time.monotonic() + 60
    while (state := pathlib.Path(f"/proc/{pid}/stat")).exists() and ") Z " not in state.read_text():
        assert time.monotonic() < until, "the job goes on"
        time.sleep(0.05)


def test_what_had_no_time_fails(programs):
    folder = programs("Linear")
    done = run(folder, "--gpus", "0", "--seconds", "0")
    assert done.returncode == 1
    assert "failed: ops_tests Linear: not begun" in done.stdout


def test_without_a_gpu_it_says_so(programs):
    command = [sys.executable, TEST_CUDA, programs("Linear")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/nowhere"})
    assert done.returncode == 1 and "no NVIDIA GPU can be used here" in done.stderr
