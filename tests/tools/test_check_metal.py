"""tools/check_metal.sh with stand-ins for a Mac's programs: which steps run, what fails, and what the report says."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAC = {
    "uname": "echo Darwin arm64",
    "sw_vers": "echo ProductVersion: 15.5",
    "sysctl": "echo 8",
    "system_profiler": "echo Chipset Model: Apple M9",
    "cmake": "echo built",
    # Of the compiler: the names of kernels are in what it makes.
    "xcrun": """case $* in
  *--version*) echo Apple metal version 32023 ;;
  *" -c "*) while [ "$1" != -c ]; do shift; done; cp "$2" "$4" ;;
  *metallib*) while [ "$1" != metallib ]; do shift; done; cp variants "$4" ;;
esac""",
}
TESTS = """if [ "$1" = --gtest_list_tests ]; then printf 'Running main()\\nKvWrite.\\n  One\\nSample/Grid.  # TypeParam\\n  Two\\n'; exit; fi
[ "$QUIRE_TEST_METAL" = 1 ] || exit 9
echo "ran $*"
case $* in *$FAILING*) exit 1 ;; esac
"""
OF_FILES = """echo "ran $* with clones in $QUIRE_TEST_CLONE_DIR" """
QUIRE = """case $* in run*) echo '123 + 456 = 579' ;; *) echo "measured $*" ;; esac"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tree(tmp_path):
    for name, text in MAC.items():
        program(tmp_path / "mac" / name, text)
    for name, text in {"formats_tests": OF_FILES, "models_tests": OF_FILES, "ops_tests": TESTS, "parity_tests": TESTS, "quire": QUIRE}.items():
        program(tmp_path / "build/release/bin" / name, text)
    program(tmp_path / "tools/setup.sh", "echo set up")
    for name in ("tools/check_metal.sh", "tools/metal_variants.py", "tests/metal/run.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    # What the stand-in for Apple's linker puts into each library.
    subprocess.run(["python3", ROOT / "tools/metal_variants.py", tmp_path / "all"], check=True, capture_output=True)
    (tmp_path / "variants").write_text((tmp_path / "all/variants.txt").read_text())
    return tmp_path


def check(tree, failing="nothing"):
    environment = {**os.environ, "PATH": f"{tree / 'mac'}:{os.environ['PATH']}", "FAILING": failing}
    done = subprocess.run(["bash", "tools/check_metal.sh"], cwd=tree, capture_output=True, text=True, timeout=120, env=environment)
    report = tree / "build/metal/report.txt"
    return done.returncode, report.read_text() if report.exists() else done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
def test_elsewhere_it_says_what_it_needs():
    done = subprocess.run([ROOT / "tools/check_metal.sh"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 77
    assert done.stdout.startswith("tools/check_metal.sh needs a Mac with Apple silicon; this is Linux") and done.stdout.count("\n") == 1


def test_the_report_has_every_step(tree):
    status, report = check(tree)
    assert status == 0, report
    for line in ("Chipset Model: Apple M9", "Apple metal version 32023", "== compile paged_attention", "== ops_tests KvWrite",
                 "== ops_tests Sample/Grid", "123 + 456 = 579", "measured bench latency models/quire-demo --device metal",
                 "measured bench ops", "ran --gtest_filter=FileSnapshot.* with clones in /", "ran --gtest_filter=MappedFiles.*", "== 0 steps failed"):
        assert line in report
    assert "--gtest_filter=*Float32/qwen3:" in report and "FAILED" not in report


def test_a_kernel_that_the_compiler_did_not_make_is_named(tree):
    text = (tree / "variants").read_text()
    (tree / "variants").write_text(text.replace("paged_attention_merge_half", "other"))
    status, report = check(tree)
    assert status == 1 and "paged_attention_merge_half is not in paged_attention.metallib" in report
    assert "failed: compile paged_attention\n" in report and "== 1 steps failed" in report


def test_a_suite_that_fails_is_named_and_the_others_run(tree):
    status, report = check(tree, failing="KvWrite")
    assert status == 1 and "failed: ops_tests KvWrite\n" in report and "== ops_tests Sample/Grid" in report


def test_a_build_that_fails_ends_it(tree):
    program(tree / "mac/cmake", "echo no Boost; exit 1")
    status, report = check(tree)
    assert status == 1 and "no Boost" in report and report.endswith("failed: build\n")


def test_a_wrong_answer_fails(tree):
    program(tree / "build/release/bin/quire", "echo 123 + 456 = 578")
    status, report = check(tree)
    assert status == 1 and "failed: answer\n" in report


def test_kernels_are_found_however_their_names_are_made(tree):
    kernels = [line.split() for line in (tree / "variants").read_text().splitlines()]
    names = {op: [name for other, name, _ in kernels if other == op] for op, _, _ in kernels}
    assert names["sample"] == ["sample"]  # no template
    assert "copy_slots_16" in names["copy_slots"] and "gated_delta_rule_bfloat_128" in names["gated_delta_rule"]
    assert len(names["paged_attention"]) == 26  # macros of macros: three types, seven kernels and a merge each; two of 16 bits
