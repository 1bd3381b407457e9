"""Runs a coding agent's command line as it comes from npm, in an empty home directory and a cleaned environment."""
import json
import os
import signal
import subprocess

from program import ENVIRONMENTS

ENV = ENVIRONMENTS / "agents"
NOTES = "The result is 579.\n"  # what the task is to find out: a file in the agent's folder


def version(package):
    listed = ENV / "node_modules" / package / "package.json"
    return json.loads(listed.read_text())["version"] if listed.exists() else "(not installed)"


class Agent:
    def __init__(self, program, folder, **environment):
        self.program = ENV / "node_modules/.bin" / program
        self.home, self.work = folder / "home", folder / "work"
        for made in (self.home, self.work):
            made.mkdir(parents=True)
        (self.work / "notes").write_text(NOTES)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "DO_NOT_TRACK": "1",
                            "NO_COLOR": "1", **environment}

    def run(self, *arguments, timeout=300):
        """The events that it prints, a line of JSON each. It and all that it started end here."""
        process = subprocess.Popen([self.program, *arguments], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        assert process.returncode == 0, f"{self.program.name} ended with {process.returncode}:\n{out}\n{err}"
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
