"""`quire run` at a terminal (a pty) and in pipes, with the demo model."""
import fcntl
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import termios
import time

import pytest
from conftest import BIN, ROOT

DEMO = str(ROOT / "models/quire-demo")
FLAGS = ("--device", "cpu", "--temperature", "0")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x1b\][^\x07]*\x07|[\x00\r]")
LEFT, RIGHT, UP, HOME, DELETE = "\x1b[D", "\x1b[C", "\x1b[A", "\x01", "\x1b[3~"


class Terminal:
    """The program at a terminal of its own."""

    def __init__(self, home, *flags, model=DEMO, **env):
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "XDG_STATE_HOME")}
        environment.update({"HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        self.end, other = pty.openpty()
        self.process = subprocess.Popen([BIN, "run", model, *FLAGS, *flags], stdin=other, stdout=other, stderr=other,
                                        env=environment, start_new_session=True, preexec_fn=self.own_terminal)
        os.close(other)
        self.raw, self.seen = "", 0
        os.set_blocking(self.end, False)

    @staticmethod
    def own_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def text(self):
        return ESCAPES.sub("", self.raw)

    def read(self):
        try:
            self.raw += os.read(self.end, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # the program has ended
            time.sleep(0.01)

    def expect(self, pattern, seconds=60):
        """The match behind what was expected before; what it is in the text without escapes."""
        deadline = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.text(), self.seen)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text()[self.seen:]!r}"
            self.read()
        self.seen = found.end()
        return found

    def type(self, text):
        os.write(self.end, text.encode())

    def say(self, text):
        """Types a line and waits for the answer's end; what was shown between."""
        self.type(text + "\r")
        start = self.seen
        self.expect(r"\[\d+ tokens, [\d.]+ tokens/s, context \d+ of \d+ \(\d+ %\)(, stopped)?\]\n")
        shown = self.text()[start:self.seen]
        self.expect("> ")
        return shown

    def leave(self):
        self.type("\x04")
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read()
        os.close(self.end)
        return self.process.returncode


@pytest.fixture
def open_terminal(tmp_path):
    opened = []

    def start(*flags, **more):
        terminal = Terminal(tmp_path, *flags, **more)
        opened.append(terminal)
        terminal.expect("Type a message, or /help")
        terminal.expect("> ")
        return terminal

    yield start
    for terminal in opened:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()


def test_a_line_can_be_edited_and_is_remembered(open_terminal, tmp_path):
    terminal = open_terminal()
    # "What is 123 + 56?" with a 4 put in, a letter taken out, and a beginning typed last.
    shown = terminal.say("hat iss 123 + 56?" + LEFT * 3 + "4" + HOME + "W" + RIGHT * 6 + DELETE)
    assert "123 + 456 = 579" in shown
    terminal.say("What is 2 + 2?é\x7f")
    assert "123 + 456 = 579" in terminal.say(UP + UP)
    assert terminal.leave() == 0
    history = tmp_path / ".local/state/quire/history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    terminal = open_terminal()
    assert "123 + 456 = 579" in terminal.say(UP)  # of the process before
    assert terminal.leave() == 0


def test_ctrl_c_stops_an_answer_and_takes_a_line_back(open_terminal):
    terminal = open_terminal("--max-model-len", "2048")
    terminal.type("Tell me a story.\r")
    terminal.expect(r"story\.\n\S+ \S+ ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect(r"tokens/s, context \d+ of 2048 \(\d+ %\)(, stopped)?\]\n")
    terminal.expect("> ")
    terminal.type("never sent\x03")
    terminal.expect(r"Ctrl-D or /exit ends the chat")
    terminal.expect("> ")
    assert "123 + 456 = 579" in terminal.say("What is 123 + 456?")
    assert terminal.leave() == 0


def test_several_lines_are_one_message(open_terminal, tmp_path):
    terminal = open_terminal()
    terminal.type('"""\r')
    terminal.expect(r"\. ")
    terminal.type("What is\r")
    terminal.expect(r"\. ")
    terminal.type('123 + 456?\r')
    terminal.expect(r"\. ")
    terminal.say('"""')
    terminal.type("/save " + str(tmp_path / "chat.json") + "\r")
    terminal.expect(r"\(saved\)")
    assert '"What is\\n123 + 456?"' in (tmp_path / "chat.json").read_text()


def test_commands(open_terminal, tmp_path):
    terminal = open_terminal()

    def command(line, told):
        terminal.type(line + "\r")
        terminal.expect(told)
        terminal.expect("> ")

    command("/help", "/retry +make the last answer anew")
    command("/retyr", "did you mean /retry")
    command("/retry", "there is no answer yet")
    command("/set", r"\ntemperature 0\n")
    terminal.type("/set temperature default\r")
    terminal.expect("> ")
    command("/set", "nothing was set")
    terminal.type("/set temperature 0\r")
    terminal.expect("> ")
    command("/set temperature hot", "is no number it can be")
    terminal.say("What is 1 + 2?")
    assert "1 + 2 = 3" in terminal.say("/retry")
    command("/save " + str(tmp_path / "a.json"), r"\(saved\)")
    terminal.type("/set max_tokens 2\r")
    assert re.search(r"cut at 2 tokens; --max-tokens or /set max_tokens allows more", terminal.say("What is 3 + 4?"))
    terminal.type("/set max_tokens default\r")
    terminal.expect("> ")
    command("/set", "temperature 0")
    before = int(re.search(r"context (\d+) of", terminal.say("What is 1 + 1?"))[1])
    terminal.type("/clear\r")
    after = int(re.search(r"context (\d+) of", terminal.say("What is 1 + 1?"))[1])
    assert after < before
    command("/load " + str(tmp_path / "a.json"), r"\(1 turns\)")
    command("/load " + str(tmp_path / "none.json"), "cannot open the file")
    (tmp_path / "notes").write_text("mine")
    command("/save " + str(tmp_path / "notes"), "is there already and no saved chat")
    assert (tmp_path / "notes").read_text() == "mine"
    terminal.type("/exit\r")
    assert terminal.process.wait(60) == 0


def test_the_oldest_turns_go_when_the_context_is_full(open_terminal):
    terminal = open_terminal("--max-model-len", "160", "--max-tokens", "24")
    shown = "".join(terminal.say(f"What is {i} + 456?") for i in range(1, 9))
    assert re.search(r"\(the context is full: the oldest \d turns? w(as|ere) left out\)", shown), shown
    assert "8 + 456 = 464" in shown
    terminal.type("word " * 300 + "\r")
    terminal.expect("tokens with what belongs to it, and the context is 160; it was left out")
    terminal.expect("> ")
    assert "123 + 456 = 579" in terminal.say("What is 123 + 456?")


def test_an_answer_that_fills_the_context_says_so(open_terminal):
    terminal = open_terminal("--max-model-len", "64")
    assert "(the answer was cut: the context of 64 tokens is full)" in terminal.say("Tell me a story.")


def pipe(*arguments, typed=None):
    return subprocess.run([BIN, "run", DEMO, "--device", "cpu", *arguments], input=typed, capture_output=True, text=True, timeout=120)


def test_a_pipe_gets_the_answer_and_nothing_else():
    one = pipe("--temperature", "0", "What is 123 + 456?")
    assert (one.returncode, one.stdout) == (0, "123 + 456 = 579\n")
    many = pipe("--temperature", "0", typed='What is 123 + 456?\n\n/etc\n"""\nWhat is\n1 + 2?\n"""\n')
    assert many.returncode == 0 and many.stdout.startswith("123 + 456 = 579\n") and "> " not in many.stdout
    assert "> " not in many.stderr and "tokens/s" not in many.stderr and "\x1b" not in many.stdout + many.stderr
    assert many.stdout.count("\n") >= 3


def test_sampling_is_as_flags_and_the_models_files_say():
    story = "Tell me a story."
    greedy = pipe("--temperature", "0", story).stdout
    assert pipe("--top-k", "1", story).stdout == greedy  # the likeliest token alone
    assert pipe("--min-p", "1", story).stdout == greedy
    assert pipe("--temperature", "2", "--seed", "1", story).stdout != greedy
    assert pipe("--temperature", "2", "--seed", "1", story).stdout == pipe("--temperature", "2", "--seed", "1", story).stdout
    cut = pipe("--temperature", "0", "--max-tokens", "3", story)
    assert greedy.startswith(cut.stdout[:-1]) and "the answer was cut at 3 tokens" in cut.stderr


def test_defaults_are_those_of_generation_config(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(DEMO, model)
    (model / "generation_config.json").write_text('{"top_k": 1, "temperature": 5, "max_new_tokens": 4, "eos_token_id": [4072, 4070]}')
    done = subprocess.run([BIN, "run", model, "--device", "cpu", "Tell me a story."], capture_output=True, text=True, timeout=120)
    greedy = pipe("--temperature", "0", "--max-tokens", "4", "Tell me a story.")
    assert done.stdout == greedy.stdout and "cut at 4 tokens" in done.stderr


def test_thoughts_are_dim_and_stay_out_of_pipes(open_terminal):
    question = "What is 123 + 456? /think"
    terminal = open_terminal()
    assert "123 + 456 = 579" in terminal.say(question)
    thought = re.search(r"\x1b\[2m([^\x1b]+)\x1b\[22m\r\n\r\n123 \+ 456 = 579", terminal.raw)
    assert thought and thought[1].strip(), terminal.raw
    assert pipe("--temperature", "0", question).stdout == "123 + 456 = 579\n"
    terminal = open_terminal(NO_COLOR="1")
    terminal.say(question)
    assert "\x1b[2m" not in terminal.raw
