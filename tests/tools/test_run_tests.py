"""tools/run_tests.py on a program that speaks like GoogleTest and does whatever its cases' names say."""
import json
import pathlib
import subprocess
import sys

RUN_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tools/run_tests.py"
PROGRAM = '''
import os, pathlib, signal, sys, time
folder = pathlib.Path(__file__).parent
cases = (folder / "cases").read_text().split()
if "--gtest_list_tests" in sys.argv:
    if "CrashesInTheList" in cases:
        os.kill(os.getpid(), signal.SIGSEGV)
    print("Running main()\\nSuite.  # TypeParam = int")
    for case in cases:
        print(f"  {case}  # GetParam() = 1")
    sys.exit()
[wanted] = [argument.split("=", 1)[1].split(":") for argument in sys.argv if argument.startswith("--gtest_filter=")]
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
        time.sleep(600)
    result = {"Fails": "[  FAILED  ]", "Skips": "[  SKIPPED ]"}.get(case, "[       OK ]")
    if case == "FailsOnce" and not (folder / "again").exists():
        (folder / "again").touch()
        result = "[  FAILED  ]"
    if case == "Skips":
        print("x.cpp:1: Skipped\\nno such machine\\n")
    print(f"{result} {name}, where GetParam() = 1 (3 ms)", flush=True)
print("[----------] Global test environment tear-down\\nsaid at the end")
sys.exit(int((folder / "status").read_text()) if (folder / "status").exists() else 0)
'''


def run(folder, *cases, commands=(), options=()):
    """Returns the exit status, the lines that were printed, and the names that were called flaky."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "cases").write_text(" ".join(cases))
    tests = [{"name": "program", "gtest": True, "command": [sys.executable, str(folder / "program.py")]}]
    tests += [{"name": command[0], "gtest": False, "command": list(command)} for command in commands]
    (folder / "tests.json").write_text(json.dumps({"environment": {"PLACE": "here"}, "tests": tests}))
    done = subprocess.run([sys.executable, RUN_TESTS, folder, "--jobs", "2", "--flaky", folder / "flaky", *options],
                          capture_output=True, text=True, timeout=120)
    flaky = (folder / "flaky").read_text().split("\n")[:-1] if (folder / "flaky").exists() else []
    return done.returncode, done.stdout.splitlines(), flaky


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


def test_what_passes_alone_is_flaky(tmp_path):
    status, lines, flaky = run(tmp_path, "Passes", "FailsOnce")
    assert status == 0 and "2 passed, 0 failed, 0 skipped" in lines and flaky == ["program Suite.FailsOnce"]
    assert lines[-2:] == ["flaky:", "  program Suite.FailsOnce"]


def test_crashes_and_hangs_take_only_themselves_down(tmp_path):
    status, lines, flaky = run(tmp_path, "A", "Crashes", "B", "Hangs", "C", options=["--limit", "2"])
    assert status == 1 and lines[-1] == "3 passed, 2 failed, 0 skipped" and not flaky
    assert "the process ended with status -11 within this case" in lines and "no end after 2 s" in lines


def test_a_bad_end_of_a_process_is_a_failure(tmp_path):
    (tmp_path / "status").write_text("66")
    status, lines, _ = run(tmp_path, "A")
    assert status == 1 and lines[-1] == "0 passed, 1 failed, 0 skipped"
    assert "said at the end" in lines and "the process ended with status 66 after this case" in lines


def test_a_program_that_cannot_list_its_cases_fails_alone(tmp_path):
    status, lines, _ = run(tmp_path, commands=[["true"]])  # it has no case at all
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and "it lists no test" in lines
    status, lines, _ = run(tmp_path, "A", "CrashesInTheList", commands=[["true"]])
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and "FAILED: program (its list)" in lines


def test_skipped_cases_are_named_with_their_reason(tmp_path):
    status, lines, _ = run(tmp_path, "Skips", "A", commands=[["sh", "-c", "echo no tool; exit 77"]])
    assert status == 0 and lines[-1] == "1 passed, 0 failed, 2 skipped"
    assert lines[lines.index("skipped, no such machine:") + 1] == "  Suite.Skips"
    assert lines[lines.index("skipped, no tool:") + 1] == "  sh"


def test_selection(tmp_path):
    _, lines, _ = run(tmp_path, "One", "Two", "Three", options=["--only", "T", "--without", "Two"])
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"
    assert run(tmp_path, "One", options=["--only", "Nothing"])[0] == 1
