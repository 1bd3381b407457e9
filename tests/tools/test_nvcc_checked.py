"""cmake/nvcc_checked.py: what it makes of ptxas's notes."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLAIN, HOT = "_ZN5quire10plain_kernEv", "_ZN5quire15hot_some_kernelILi4EEvv"


def notes(kernel, frame=0, stores=0, loads=0):
    return (f"ptxas info    : Compiling entry function '{kernel}' for 'sm_90a'\n"
            f"ptxas info    : Function properties for {kernel}\n"
            f"    {frame} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            "ptxas info    : Used 128 registers, used 1 barriers\n")


def compiled(text, status=0):
    """Status and messages for a compiler that says this."""
    compiler = [sys.executable, "-c", "import sys; sys.stderr.write(sys.argv[1]); sys.exit(int(sys.argv[2]))", text, str(status)]
    done = subprocess.run([sys.executable, ROOT / "cmake/nvcc_checked.py", *compiler], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_notes_alone_are_not_shown():
    assert compiled(notes(PLAIN, 8, 8, 8) + notes(HOT)) == (0, "")


def test_a_hot_kernel_may_not_spill():
    for frame in ((8, 0, 0), (0, 4, 0), (0, 0, 4)):
        status, shown = compiled(notes(PLAIN) + notes(HOT, *frame) + notes(PLAIN))
        assert status == 1 and shown.startswith(f"a hot kernel spills: {HOT} for sm_90a: ") and len(shown.splitlines()) == 1


def test_a_hot_kernels_products_may_not_wait_for_each_other():
    line = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in the function '%s'\n"
    assert compiled(line % PLAIN)[0] == 0
    status, shown = compiled(line % HOT)
    assert status == 1 and "a hot kernel waits: " in shown


def test_what_the_compiler_says_else_is_shown_and_its_failure_is_one():
    assert compiled("x.cu(3): error: no such thing\n" + notes(HOT), 2) == (2, "x.cu(3): error: no such thing\n")
