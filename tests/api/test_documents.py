"""README and docs/ say what the program does: its flags, and the statuses with which it ends."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import BIN, MODEL, ROOT
from test_stopping import DEMO, STOPPED, end, many_streams, read_log_of, server_process

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Those of `bench` are its own --help's and vLLM's.
COMMANDS = ["serve", "run", "pull", "list", "show", "rm", "quantize", "replay", "parse-output"]
FLAG = r"--[a-z][\w-]*"


def quire(*arguments):
    done = subprocess.run([BIN, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def flags_of(*command):
    """All names in the first column of a command's help."""
    code, text, _ = quire(*command, "--help")
    assert code == 0
    columns = re.findall(r"^ +(?:-\w,)?(--\S+)", text, re.M)
    return {flag for column in columns for flag in re.findall(FLAG, column)} - {"--help"}


def flags_in(text):
    return set(re.findall(rf"(?<![\w-]){FLAG}(?<!-)", text))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_in_a_document(command):
    flags = flags_of(command)
    told = flags_in("\n".join(path.read_text() for path in DOCUMENTS))
    assert len(flags) > 20 or command not in ("serve", "run"), flags
    assert flags - told == set()


def test_documents_name_no_flag_that_is_not_there():
    commands = [(command,) for command in COMMANDS] + [
        ("bench", name) for name in re.findall(r"^  ([a-z]\w+)", quire("bench", "--help")[1].partition("ubcommands")[2], re.M)]
    assert len(commands) > len(COMMANDS) + 3
    known = set().union(*[flags_of(*command) for command in commands]) | {"--version", "--help"}
    others = {"--output"}  # of a script in README.md
    for path in (ROOT / "README.md", ROOT / "docs/operations.md"):
        assert flags_in(path.read_text()) - known <= others, path


# --- The exit codes of docs/operations.md: each row of the table has a case here that ends so.

def stopped_in_peace(_):
    with server_process() as server:
        read_log_of(server)
        return [end(server.process)[0]]


def failed_starts(folder):
    config = folder / "config"
    config.write_text("no-such-flag: 1\n")
    (folder / "keys").write_text("# nobody\n")
    wrong = [
        ("--api-key", ""), ("--api-key", "two words"), ("--api-key-file", folder / "keys"), ("--api-key-file", folder / "none"),
        ("--host", "192.0.2.1"), ("--max-model-len", "x"), ("--max-body-size", "1GiB"), ("--max-buffered-bytes", "1"),
        ("--uds", folder / "socket", "--uds-mode", "888"), ("--tool-call-parser", "foo"), ("--allowed-origins", "foo"),
        ("--uds-mode", "660"), ("--ssl-keyfile", "key.pem"), ("--min-priority", "1"), ("--max-loras", "2"), ("--config", config),
        ("--kv-cache-memory", "900TiB"), ("--chat-template", "{% if %}")]
    if not pathlib.Path("/dev/nvidiactl").exists():
        wrong.append(("--device", "cuda"))
    statuses = []
    for flags in wrong:
        code, _, said = quire("serve", MODEL, "--port", "0", *(() if "--device" in flags else ("--device", "cpu")), *flags)
        assert said.splitlines()[-1].startswith("quire: "), (flags, said)
        statuses.append((code, flags))
    code, _, said = quire("serve", folder / "no-model")
    assert "no-model" in said.splitlines()[-1]
    assert {status for status, _ in statuses} == {1}, statuses
    return [code]


def wrong_command_lines(_):
    lines = [
        ("sevre",), (), ("serve",), ("serve", MODEL, "--no-such-flag"), ("serve", MODEL, "--port", "99999"),
        ("serve", MODEL, "--port"), ("serve", MODEL, "--quantization", "awq"), ("serve", MODEL, "-c", "4096"),
        ("serve", MODEL, "--uds-mode", ""), ("serve", MODEL, "--dtype", "foo"), ("bench", "throughput", MODEL, "--random-prefix-len", "8"), ("rm",), ("quantize", MODEL)]
    statuses = [(quire(*line)[0], line) for line in lines]
    assert all(100 <= status <= 127 for status, _ in statuses), statuses
    return [f"{min(statuses)[0] // 100}00 to 127"]


def second_signals(_):
    statuses = []
    for first, second in ((signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)):
        with server_process("--shutdown-timeout", "600", model=DEMO) as server:
            read_log_of(server)
            with many_streams(server):
                server.process.send_signal(first)
                server.wait_until(lambda server=server: server.get("/health").status == 503)
                statuses.append(end(server.process, (second,))[0])
    return statuses


def death_test(name):
    """What only a part that fails brings about: a test of the C++ programs checks the status, in a process of its own."""
    def check(_):
        program = BIN.parent / "lifecycle_tests"
        assert program.exists(), f"{program} is not built: make test builds all"
        done = subprocess.run([program, f"--gtest_filter={name}"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "1 test from 1 test suite ran" in done.stdout, done.stdout
        return []
    return check


ROWS = {
    "0": stopped_in_peace,
    "1": failed_starts,
    "70": death_test("LifecycleDeathTest.AFailedEngineEndsTheProcess"),
    "100 to 127": wrong_command_lines,
    "130, 143": second_signals,
    "134": death_test("LifecycleDeathTest.AFailedCheckAborts"),
}


def documented_statuses():
    section = (ROOT / "docs/operations.md").read_text().partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (\d[^|]*?) \|", section, re.M)


def test_every_exit_code_has_a_case():
    assert STOPPED == 0 and documented_statuses() == list(ROWS)


@pytest.mark.parametrize("row", ROWS)
def test_it_ends_with_the_status_of_its_row(row, tmp_path):
    statuses = ROWS[row](tmp_path)
    if statuses:
        assert ", ".join(map(str, statuses)) == row
