"""`quire run` in a real terminal: what tmux shows on its screen after keys were typed. With the demo model."""
import os
import re
import shlex
import subprocess
import sys
import time

import pytest

sys.path.append(os.path.join(os.path.dirname(__file__), "../api"))
from conftest import BIN, ROOT  # noqa: E402

DEMO = str(ROOT / "models/quire-demo")
STATUS = r"\[\d+ tokens, [\d.]+ tokens/s, context \d+ of \d+ \(\d+ %\)(?:, stopped)?\]"


class Screen:
    """The program in a tmux of its own, WIDTH columns wide."""

    WIDTH = 64

    def __init__(self, folder, *flags):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        command = shlex.join(["env", f"HOME={folder}", "LC_ALL=C.UTF-8", str(BIN), "run", DEMO, "--device", "cpu", "--temperature", "0", *flags])
        self.run("new-session", "-d", "-x", str(self.WIDTH), "-y", "40", command, ";", "set-option", "-g", "remain-on-exit", "on")
        self.wait_for("Type a message, or /help")
        self.wait_for_prompt()

    def run(self, *arguments):
        return subprocess.run([*self.tmux, *arguments], check=True, capture_output=True, text=True, timeout=60).stdout

    def keys(self, *names):
        """Keys by tmux's names, such as Left or C-a."""
        self.run("send-keys", *names)

    def type(self, text):
        self.run("send-keys", "-l", text)

    def text(self):
        """What the screen shows, without blanks at the lines' ends; what did not fit its width is one line."""
        lines = self.run("capture-pane", "-p", "-J").split("\n")
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    def wait_for(self, pattern, seconds=60):
        """Until the screen shows it; all that it shows then."""
        deadline = time.monotonic() + seconds
        while not re.search(pattern, shown := self.text()):
            assert time.monotonic() < deadline, f"no {pattern!r} on\n{shown}"
            time.sleep(0.02)
        return shown

    def wait_for_prompt(self):
        self.wait_for(r"(?:^|\n)>$")

    def say(self, *keys):
        """Return, and what the answer's lines are when it has ended."""
        self.keys(*keys, "Enter")
        return self.wait_for(STATUS + r"\n>$")

    def clear(self):
        self.keys("C-l")
        self.wait_for(r"^>$")

    def is_alive(self):
        return self.run("list-panes", "-F", "#{pane_dead}").strip() == "0"

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True, timeout=60)


@pytest.fixture
def open_screen(tmp_path):
    screens = []

    def start(*flags):
        screens.append(Screen(tmp_path, *flags))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()


def test_a_line_is_edited_where_it_stands(open_screen):
    screen = open_screen()
    screen.type("hat iss 123 + 56?")
    screen.keys("Left", "Left", "Left", "4", "C-a", "W", "Right", "Right", "Right", "Right", "Right", "Right", "DC")
    screen.wait_for(r"\n> What is 123 \+ 456\?$")
    assert "> What is 123 + 456?\n123 + 456 = 579\n" in screen.say()
    # Wider than the screen, with letters of one and two columns.
    screen.clear()
    screen.type("漢字 " + "word " * 20)
    screen.keys("C-a")
    screen.type("é")
    screen.wait_for("^> é漢字 word word")
    screen.keys("C-e", "C-u")
    screen.wait_for("^>$")


def test_a_screen_that_becomes_narrower(open_screen):
    screen = open_screen()
    screen.type("What is 123 + 456?")
    screen.run("resize-window", "-x", "40", "-y", "40")
    screen.wait_for(r"\n> What is 123 \+ 456\?$")
    assert "> What is 123 + 456?\n123 + 456 = 579\n" in screen.say()


def test_history(open_screen):
    screen = open_screen()
    screen.type("What is 1 + 2?")
    screen.say()
    screen.type("What is 3 + 4?")
    screen.say()
    screen.keys("Up", "Up")
    screen.wait_for(r"\n> What is 1 \+ 2\?$")
    screen.keys("Down")
    screen.wait_for(r"\n> What is 3 \+ 4\?$")
    screen.keys("C-u", "C-d")
    deadline = time.monotonic() + 60
    while screen.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    screen.close()
    screen = open_screen()  # the next process remembers
    screen.keys("C-r")
    screen.type("1 +")
    screen.wait_for(r"What is 1 \+ 2\?")
    screen.keys("Escape")
    assert "1 + 2 = 3" in screen.say()


def test_ctrl_c_in_the_middle_of_an_answer(open_screen):
    screen = open_screen("--max-model-len", "2048")
    screen.type("Tell me a story.")
    screen.keys("Enter")
    screen.wait_for(r"Tell me a story\.\n\S+ \S+ ")
    screen.keys("C-c")
    screen.wait_for(STATUS + r"\n>$")
    screen.type("never sent")
    screen.keys("C-c")
    screen.wait_for(r"Ctrl-D or /exit ends the chat\)?\n>$")
    screen.type("What is 123 + 456?")
    assert "123 + 456 = 579" in screen.say()


def test_several_lines(open_screen):
    screen = open_screen()
    for line in ('"""', "What is", "123 + 456?"):
        screen.type(line)
        screen.keys("Enter")
        screen.wait_for(r"\n\.$")
    screen.type('"""')
    assert '> """\n. What is\n. 123 + 456?\n. """\n' in screen.say()


def test_a_full_context(open_screen):
    screen = open_screen("--max-model-len", "160", "--max-tokens", "24")
    for i in range(1, 9):
        screen.clear()
        screen.type(f"What is {i} + 456?")
        shown = screen.say()
    assert re.search(r"\(the context is full: the oldest \d turns? w(as|ere) left out\)", shown), shown
    assert "8 + 456 = 464" in shown
