"""One process of a test program, for run_tests.py: its lines, its limit of time, and what it leaves behind."""
import os
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading
import time

GRACE = 2  # seconds for what a program has started to end after it
LINES_WAITING = 100_000  # a program that prints without end is read no further ahead than this


def session_of(pid):
    """The session of a process that still runs, else None."""
    try:
        state, _, _, session = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state in "ZX" else int(session)


def command_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return f"process {pid}"
    return " ".join(words).strip()[:200] or f"process {pid}"


def kill(pid, how=os.kill):
    try:
        how(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


class Process:
    """A program in a session and with a folder for temporary files of its own. Its lines arrive in a queue, so that waiting
    for one can end; what it leaves running is killed, and named in `left`."""

    running, closed, lock = set(), False, threading.Lock()

    def __init__(self, program, arguments, stderr=subprocess.STDOUT):
        self.lines, self.left, self.stopped = queue.Queue(), [], False
        self.folder = tempfile.TemporaryDirectory(prefix="quire-test-", ignore_cleanup_errors=True)
        environment = os.environ | program.environment | {"TMPDIR": self.folder.name, "TEST_TMPDIR": self.folder.name}
        with Process.lock:
            if Process.closed:
                raise SystemExit
            self.popen = subprocess.Popen([*program.command, *arguments], env=environment,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                                          text=True, errors="replace", start_new_session=True)
            Process.running.add(self)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.waiter = threading.Thread(target=self.wait, daemon=True)
        self.waiter.start()

    def read(self):
        for line in self.popen.stdout:
            while self.lines.qsize() > LINES_WAITING and not self.stopped:
                time.sleep(0.01)
            self.lines.put(line.rstrip("\n"))

    def wait(self):
        """The end is that of the program: who else holds its output is not waited for longer than GRACE."""
        self.popen.wait()
        self.reader.join(GRACE)
        until = time.monotonic() + GRACE
        while (pids := self.members()) and time.monotonic() < until and not self.stopped:
            time.sleep(0.05)
        if not self.stopped:
            self.left += [command_of(pid) for pid in pids]
        for pid in pids:
            kill(pid)
        self.reader.join(GRACE)
        if self.reader.is_alive():
            self.left.append("something that has left the session and holds the output")
        self.lines.put(None)

    def members(self):
        return [int(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")
                if session_of(path.name) == self.popen.pid]

    def next_line(self, until):
        """The next line, None behind the last; raises TimeoutError at the time `until`, however much is printed."""
        left = until - time.monotonic()
        try:
            if left > 0:
                return self.lines.get(timeout=left)
        except queue.Empty:
            pass
        raise TimeoutError

    def stop(self):
        """Ends the process and whatever it has started; returns its status."""
        if self.popen.poll() is None:
            self.stopped = True
            kill(self.popen.pid, os.killpg)
        self.waiter.join()
        with Process.lock:
            Process.running.discard(self)
        self.folder.cleanup()
        return self.popen.returncode

    @staticmethod
    def stop_all():
        """Ends all processes; none is started any more."""
        with Process.lock:
            Process.closed = True
            processes = list(Process.running)
        for process in processes:
            process.stopped = True
            kill(process.popen.pid, os.killpg)
        for process in processes:
            for pid in process.members():  # of other process groups
                kill(pid)
            process.folder.cleanup()
