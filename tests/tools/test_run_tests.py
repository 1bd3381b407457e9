"""tools/run_tests.py on a program that speaks like GoogleTest and does whatever its cases' names say."""
import ctypes
import fcntl
import json
import pathlib
import signal
import subprocess
import sys
import termios
import time

import pytest

RUN_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tools/run_tests.py"
PROGRAM = '''
import os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(__file__).parent
cases = (folder / "cases").read_text().split()
if "--gtest_list_tests" in sys.argv:
    if "CrashesInTheList" in cases:
        os.kill(os.getpid(), signal.SIGSEGV)
    print("Running main()\\nSuite.  # TypeParam = int")
    for case in cases * ("NoCase" not in cases):
        print(f"  {case}  # GetParam() = 1")
    sys.exit()
[wanted] = [argument.split("=", 1)[1].split(":") for argument in sys.argv if argument.startswith("--gtest_filter=")]
status = 0
for case in cases:
    name = f"Suite.{case}"
    if name not in wanted:
        continue
    with open(folder / "begun", "a") as begun:
        print(case, os.environ["PLACE"], file=begun)
    pathlib.Path(os.environ["TMPDIR"], "left").touch()
    print(f"[ RUN      ] {name}\\nsaid by {case}", flush=True)
    if case == "Crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "Hangs":
        child = subprocess.Popen(["sleep", "600"])
        (folder / "pids").write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    while case == "Chats":
        print("and on", flush=True)
    if case == "Leaves":
        subprocess.Popen(["sleep", "601"])
    status |= case == "Fails"
    result = {"Fails": "[  FAILED  ]", "Skips": "[  SKIPPED ]"}.get(case, "[       OK ]")
    if case == "FailsOnce" and not (folder / "again").exists():
        (folder / "again").touch()
        status = 1
        result = "[  FAILED  ]"
    if case == "Skips":
        print("x.cpp:1: Skipped\\nno such machine\\n")
    print(f"{result} {name}, where GetParam() = 1 (3 ms)", flush=True)
print("[----------] Global test environment tear-down\\nsaid at the end")
sys.exit(int((folder / "status").read_text()) if (folder / "status").exists() else status)
'''


def command(folder, *cases, commands=(), options=()):
    """The command line of a run in `folder`."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "cases").write_text(" ".join(cases))
    tests = [{"name": "program", "gtest": True, "command": [sys.executable, str(folder / "program.py")]}] if cases else []
    tests += [{"name": command[0], "gtest": False, "command": list(command)} for command in commands]
    (folder / "tests.json").write_text(json.dumps({"environment": {"PLACE": "here"}, "tests": tests}))
    return [sys.executable, RUN_TESTS, folder, "--jobs", "2", "--flaky", folder / "flaky", *options]


def run(folder, *cases, **more):
    """Returns the exit status, the lines that were printed, and the names that were called flaky."""
    done = subprocess.run(command(folder, *cases, **more), capture_output=True, text=True, timeout=300)
    flaky = (folder / "flaky").read_text().split("\n")[:-1] if (folder / "flaky").exists() else []
    return done.returncode, done.stdout.splitlines(), flaky


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.02)


def test_all_pass(tmp_path):
    status, lines, flaky = run(tmp_path, *[f"Case{i}" for i in range(30)], commands=[["true"]])
    assert status == 0 and lines[-1] == "31 passed, 0 failed, 0 skipped" and not flaky
    begun = (tmp_path / "begun").read_text().split("\n")[:-1]
    assert sorted(begun) == sorted(f"Case{i} here" for i in range(30))


def test_each_process_has_a_folder_that_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert run(tmp_path, "A", "Fails", "B")[0] == 1
    assert not list((tmp_path / "temporary").iterdir())


def test_a_failure_runs_twice_and_is_shown(tmp_path):
    status, lines, flaky = run(tmp_path, "Passes", "Fails")
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and not flaky
    assert lines[-4:-2] == ["FAILED: program Suite.Fails", "said by Fails"]
    assert (tmp_path / "begun").read_text().count("Fails") == 2


def test_names_of_failures_go_to_a_file(tmp_path):
    run(tmp_path, "Passes", "Fails", commands=[["false"]], options=["--failed", tmp_path / "failed"])
    assert sorted((tmp_path / "failed").read_text().split("\n")) == ["", "false false", "program Suite.Fails"]


def test_what_passes_alone_is_flaky(tmp_path):
    status, lines, flaky = run(tmp_path, "Passes", "FailsOnce")
    assert status == 0 and "2 passed, 0 failed, 0 skipped" in lines and flaky == ["program Suite.FailsOnce"]
    assert lines[-2:] == ["flaky:", "  program Suite.FailsOnce"]


def test_crashes_and_hangs_take_only_themselves_down(tmp_path):
    cases = ["A", "Crashes", "B", "Hangs", "C", "Chats", "NotRun"]  # two that hang, and `yes`: the third
    status, lines, flaky = run(tmp_path, *cases, commands=[["yes"]], options=["--limit", "5"])
    assert status == 1 and lines[-1] == "3 passed, 5 failed, 0 skipped" and not flaky
    assert "the process ended with status -11 within this case" in lines
    assert lines.count("no end after 5 s (not run again: that would take as long)") == 3
    assert "not run: 3 cases before it did not end" in lines
    assert len(lines) < 250
    begun = (tmp_path / "begun").read_text().split()
    assert all(begun.count(case) == 1 for case in ("Crashes", "Hangs", "Chats")) and "NotRun" not in begun
    assert not any(runs(pid) for pid in (tmp_path / "pids").read_text().split())


def test_what_crashes_runs_again_and_what_hangs_does_not(tmp_path):
    status, lines, _ = run(tmp_path, "Crashes", "Hangs", options=["--limit", "5"])
    assert status == 1 and lines[-1] == "0 passed, 2 failed, 0 skipped"
    begun = (tmp_path / "begun").read_text().split()
    assert begun.count("Crashes") == 2 and begun.count("Hangs") == 1


def test_what_a_program_leaves_running_is_killed_and_named(tmp_path):
    status, lines, _ = run(tmp_path, "A", "Leaves", "B", commands=[["sh", "-c", "sleep 603 & echo said"]])
    assert status == 0 and "4 passed, 0 failed, 0 skipped" in lines
    assert sorted(line for line in lines if line.startswith("LEFT")) == [
        "LEFT RUNNING: program: sleep 601", "LEFT RUNNING: sh: sleep 603"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_what_the_run_has_started(tmp_path, number):
    process = subprocess.Popen(command(tmp_path, "A", "Hangs"), stdout=subprocess.PIPE, text=True)
    wait_until((tmp_path / "pids").exists)
    wait_until((tmp_path / "pids").read_text)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert process.stdout.read().splitlines()[-1] == f"stopped by {number.name}"
    wait_until(lambda: not any(runs(pid) for pid in (tmp_path / "pids").read_text().split()))


def ends(process, number):
    """It is stopped by a signal within seconds, and its program with it."""
    try:
        assert process.wait(timeout=20) == 128 + number
    finally:
        process.kill()
        process.stdout.close()


def test_a_signal_that_another_thread_gets_ends_the_run(tmp_path):
    """The system may choose any thread, and the one that answers sleeps."""
    process = subprocess.Popen(command(tmp_path, "Hangs"), stdout=subprocess.PIPE, text=True)
    wait_until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    threads = [int(path.name) for path in pathlib.Path(f"/proc/{process.pid}/task").iterdir() if path.name != str(process.pid)]
    time.sleep(0.3)  # so that the main thread waits again
    assert ctypes.CDLL(None).tgkill(process.pid, max(threads), int(signal.SIGTERM)) == 0
    ends(process, signal.SIGTERM)
    assert not any(runs(pid) for pid in (tmp_path / "pids").read_text().split())


def test_a_signal_ends_a_run_that_waits_for_its_reader(tmp_path):
    process = subprocess.Popen(command(tmp_path, *[f"Case{i}" for i in range(3000)]), stdout=subprocess.PIPE, text=True)
    waiting = bytearray(4)

    def is_full():
        before = bytes(waiting)
        fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
        time.sleep(0.5)
        return int.from_bytes(waiting, sys.byteorder) > 60_000 and before == waiting
    wait_until(is_full)
    process.send_signal(signal.SIGTERM)
    ends(process, signal.SIGTERM)


def test_signals_that_a_shell_ignores_are_the_tests_own(tmp_path):
    wanted = [sys.executable, "-c", "import signal; assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL"]
    process = subprocess.Popen(command(tmp_path, commands=[wanted, ["sh", "-c", f"kill -HUP $PPID; touch {tmp_path}/sent"]]),
                               stdout=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stdout.read().splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    assert process.wait(60) == 0 and (tmp_path / "sent").exists()


def test_a_bad_end_of_a_process_is_a_failure(tmp_path):
    (tmp_path / "status").write_text("66")
    status, lines, _ = run(tmp_path, "A")
    assert status == 1 and lines[-1] == "0 passed, 1 failed, 0 skipped"
    assert "said at the end" in lines and "the process ended with status 66 after this case" in lines


def test_a_program_that_cannot_list_its_cases_fails_alone(tmp_path):
    status, lines, _ = run(tmp_path, "NoCase", commands=[["true"]])
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and "it lists no test" in lines
    status, lines, _ = run(tmp_path, "A", "CrashesInTheList", commands=[["true"]])
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and "FAILED: program (its list)" in lines


def test_programs_that_are_not_named_need_not_be_built(tmp_path):
    status, lines, _ = run(tmp_path, "A", commands=[["no-such-program"]], options=["--programs", "program"])
    assert status == 0 and lines[-1] == "1 passed, 0 failed, 0 skipped"
    status, lines, _ = run(tmp_path, "A", options=["--programs", "program", "progam"])
    assert status == 1 and lines[-1] == "no such program: progam"


def test_skipped_cases_are_named_with_their_reason(tmp_path):
    status, lines, _ = run(tmp_path, "Skips", "A", commands=[["sh", "-c", "echo no tool; exit 77"]])
    assert status == 0 and lines[-1] == "1 passed, 0 failed, 2 skipped"
    assert lines[lines.index("skipped, no such machine:") + 1] == "  Suite.Skips"
    assert lines[lines.index("skipped, no tool:") + 1] == "  sh"


def test_selection(tmp_path):
    _, lines, _ = run(tmp_path, "One", "Two", "Three", options=["--only", "T", "--without", "Two"])
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"
    assert run(tmp_path, "One", options=["--only", "Nothing"])[0] == 1
