#!/usr/bin/env python3
"""Runs the test programs of a build and says of every test case what it came to.

    run_tests.py BUILD [--jobs N] [--only REGEX] [--without REGEX] [--limit SECONDS]
                 [--flaky FILE] [--failed FILE]

BUILD/tests.json, written by CMake, lists the programs. The cases of a GoogleTest program are spread over a few processes,
so that a process is not started for each. A case that crashes or hangs takes only itself down: those behind it run in a
process of their own. What fails is run once more at the end, alone; if it passes then, its name goes to FILE as flaky and
the run is green. A case that does not end within the limit is not run again: it has failed. What a program leaves running
is killed and named. The last lines name what failed, with the end of what it printed.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import signal
import sys
import threading
import time
import traceback
from select import select as wait_for_files

from test_process import Process

RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where .*)? \((\d+) ms\)$")
BEGIN = re.compile(r"\[ RUN +\] (\S+)$")
LINES_OF_FAILURE = 40
LIST_LIMIT = 300  # seconds
LINES_KEPT = 2000  # of what a case prints
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # end a run
STOP_LIMIT = 30  # seconds for that
MOST_HANGS = 3  # each costs its whole limit: after so many the rest is not run, and fails

Program = collections.namedtuple("Program", "name command environment gtest")
# result: passed, failed, skipped; final: a failure that is not run again.
Outcome = collections.namedtuple("Outcome", "case result seconds output final", defaults=[False])


def read_programs(build):
    listed = json.loads((build / "tests.json").read_text())
    return [Program(entry["name"], entry["command"], listed["environment"], entry["gtest"]) for entry in listed["tests"]]


def list_text(program):
    """What a GoogleTest program prints when it is asked for its cases."""
    process, lines = Process(program, ["--gtest_list_tests"], stderr=None), []
    until = time.monotonic() + LIST_LIMIT
    try:
        while (line := process.next_line(until)) is not None:
            lines.append(line)
    except TimeoutError:
        process.stop()
        raise OSError(f"asked for its list, it did not end within {LIST_LIMIT} s") from None
    if status := process.stop():
        raise OSError(f"asked for its list, it ended with status {status}")
    return lines


def list_cases(program):
    """The names of a GoogleTest program's cases, which the list indents below their suites."""
    cases, suite = [], ""
    for line in list_text(program):
        name = line.split("#")[0].rstrip()
        if line.startswith("  "):
            cases.append(suite + name.strip())
        elif re.fullmatch(r"\S+\.", name):
            suite = name
    return [case for case in cases if "DISABLED_" not in case]


class Shard:
    """Some cases of a GoogleTest program, run in as many processes as it takes."""

    def __init__(self, program, cases, run, report):
        self.program, self.left, self.run, self.report = program, list(cases), run, report

    def run_all(self):
        while self.left and not self.run.hung_too_often():
            self.run_process()
        for case in self.left:
            self.report(Outcome(case, "failed", 0, [f"not run: {MOST_HANGS} cases before it did not end"], final=True))

    def run_process(self):
        process = Process(self.program, ["--gtest_filter=" + ":".join(self.left), "--gtest_color=no"])
        self.last, self.failed = None, False  # of those that this process has reported
        hangs = not self.read(process)
        status = process.stop()
        self.run.note_end(self.program, process, hangs)
        if self.left:
            self.case, place = (self.case, "within") if self.case else (self.left[0], "before")
            self.left.remove(self.case)
        elif hangs or status != (1 if self.failed else 0):  # a leak or a race, say, that is told at the end
            self.case, place = self.last, "after"
        else:
            return
        self.output.append(self.run.no_end() if hangs else f"the process ended with status {status} {place} this case")
        self.report(Outcome(self.case, "failed", time.monotonic() - self.begun, list(self.output), final=hangs))

    def read(self, process):
        """Reports the cases whose ends a process prints; False if one takes too long."""
        self.begin(None)
        try:
            while (line := process.next_line(self.begun + self.run.limit)) is not None:
                self.take(line)
        except TimeoutError:
            return False
        return True

    def begin(self, case):
        self.case, self.output, self.begun = case, collections.deque(maxlen=LINES_KEPT), time.monotonic()

    def take(self, line):
        if (match := BEGIN.search(line)) and match[1] in self.left:
            self.begin(match[1])
        elif (match := RESULT.search(line)) and match[2] == self.case:
            result = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[match[1]]
            self.left.remove(self.case)
            self.last, self.failed = self.case, self.failed or result == "failed"
            self.report(Outcome(self.case, result, int(match[3]) / 1000, list(self.output)))
            self.begin(None)
        else:
            self.output.append(line)


def run_command(program, run, report):
    """A program that is one case: status 0 is passed, 77 skipped."""
    begun, process, output = time.monotonic(), Process(program, []), collections.deque(maxlen=LINES_KEPT)
    hangs = False
    try:
        while (line := process.next_line(begun + run.limit)) is not None:
            output.append(line)
    except TimeoutError:
        hangs = True
    status = process.stop()
    run.note_end(program, process, hangs)
    if hangs:
        output.append(run.no_end())
    result = "failed" if hangs else {0: "passed", 77: "skipped"}.get(status, "failed")
    report(Outcome(program.name, result, time.monotonic() - begun, list(output), final=hangs))


class Run:
    def __init__(self, limit):
        self.limit, self.hangs, self.left_running = limit, 0, []
        self.outcomes, self.lock = {}, threading.Lock()

    def report(self, program, outcome, again=False):
        with self.lock:
            if Process.closed:  # a signal stops the run, which has the last word
                return
            self.outcomes[program.name, outcome.case] = outcome
            note = " (alone, for the second time)" if again else ""
            print(f"{outcome.result:8}{outcome.seconds:8.2f} s  {program.name}  {outcome.case}{note}", flush=True)

    def note_end(self, program, process, hangs):
        with self.lock:
            self.hangs += hangs
            self.left_running += [f"LEFT RUNNING: {program.name}: {command}" for command in process.left]

    def hung_too_often(self):
        return self.hangs >= MOST_HANGS

    def no_end(self):
        return f"no end after {self.limit} s (not run again: that would take as long)"

    def run(self, program, cases, again=False):
        reported = set()

        def report(outcome):
            reported.add(outcome.case)
            self.report(program, outcome, again)
        try:
            if program.gtest:
                Shard(program, cases, self, report).run_all()
            else:
                run_command(program, self, report)
        except Exception:
            for case in set(cases) - reported:
                report(Outcome(case, "failed", 0, traceback.format_exc().splitlines()))

    def run_all(self, selected, jobs):
        work = queue.Queue()
        for program, cases in selected:
            shards = min(4 * jobs, -(-len(cases) // 8)) or 1
            for first in range(shards):
                work.put((program, cases[first::shards]))

        def serve():
            while True:
                try:
                    item = work.get_nowait()
                except queue.Empty:
                    return
                self.run(*item)
        threads = [threading.Thread(target=serve) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_failed_again(self, selected):
        """Returns the names of those that pass now."""
        flaky = []
        for program, cases in selected:
            for case in cases:
                first = self.outcomes[program.name, case]
                if first.result != "failed" or first.final or self.hung_too_often():
                    continue
                self.run(program, [case], again=True)
                if self.outcomes[program.name, case].result == "failed":
                    continue
                flaky.append(f"{program.name} {case}")
                print(*first.output[-LINES_OF_FAILURE:], sep="\n")
        return flaky


def select(programs, only, without):
    """Returns the programs with their cases, and a failed outcome for each program that does not list any."""
    selected, unlisted = [], {}
    for program in programs:
        try:
            cases = list_cases(program) if program.gtest else [program.name]
            why = "it lists no test"
        except OSError as error:
            cases, why = [], str(error)
        if not cases:
            unlisted[program.name, "(its list)"] = Outcome("(its list)", "failed", 0, [why])
        cases = [case for case in cases if re.search(only, case) and not (without and re.search(without, case))]
        if cases:
            selected.append((program, cases))
    return selected, unlisted


def reason(outcome):
    """Why a case was skipped: what stands behind `Skipped`."""
    text = [line for line in outcome.output if line.strip()]
    return text[-1].strip() if text else ""


def summarise(outcomes):
    by_result = collections.defaultdict(list)
    for (program, _), outcome in outcomes.items():
        by_result[outcome.result].append((program, outcome))
    skipped = collections.defaultdict(list)
    for program, outcome in by_result["skipped"]:
        skipped[reason(outcome)].append(outcome.case)
    for why, cases in sorted(skipped.items()):
        print(f"\nskipped, {why or 'no reason given'}:\n  " + "\n  ".join(sorted(cases)))
    for program, outcome in by_result["failed"]:
        print(f"\nFAILED: {program} {outcome.case}")
        print(*outcome.output[-LINES_OF_FAILURE:], sep="\n")
    print(f"\n{len(by_result['passed'])} passed, {len(by_result['failed'])} failed, {len(by_result['skipped'])} skipped")
    return not by_result["failed"]


def stop(number, _):
    """Ends the run, whatever else comes: another signal, or a thread that holds what this one needs."""
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(STOP_LIMIT)
    try:
        Process.stop_all()
    finally:
        # Not by print(): a thread may be within it, waiting for somebody who reads no more.
        if wait_for_files([], [1], [], 0)[1]:
            os.write(1, f"stopped by {signal.Signals(number).name}\n".encode())
        os._exit(128 + number)


def run_selected(args):
    programs = read_programs(args.build)
    if args.programs:
        if missing := set(args.programs) - {program.name for program in programs}:
            print("no such program:", *sorted(missing))
            return False
        programs = [program for program in programs if program.name in args.programs]
    selected, unlisted = select(programs, args.only, args.without)
    if not selected and not unlisted:
        print("no test is selected")
        return False
    run = Run(args.limit)
    run.run_all(selected, args.jobs)
    flaky = run.run_failed_again(selected)
    if flaky and args.flaky:
        with open(args.flaky, "a") as file:
            print(*flaky, sep="\n", file=file)
    outcomes = run.outcomes | unlisted
    if args.failed:
        with open(args.failed, "a") as file:
            file.writelines(f"{program} {case}\n" for (program, case), outcome in outcomes.items()
                            if outcome.result == "failed")
    passed = summarise(outcomes)
    if run.left_running:
        print(*run.left_running, sep="\n")
    if flaky:
        print("flaky:", *flaky, sep="\n  ")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--programs", nargs="+", metavar="NAME", help="all if none is named")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match")
    parser.add_argument("--without", default="", metavar="REGEX", help="leaves out cases whose names match")
    parser.add_argument("--flaky", metavar="FILE", help="gets the names of those that failed and passed when run again")
    parser.add_argument("--failed", metavar="FILE", help="gets the names of those that failed")
    parser.add_argument("--limit", type=int, default=900, metavar="SECONDS", help="of one case: only a hang takes as long")
    args = parser.parse_args()
    for number in SIGNALS:
        # With a handler for each, the tests get them as they are by default, whatever a shell or nohup has ignored.
        ignored = signal.getsignal(number) == signal.SIG_IGN
        signal.signal(number, (lambda *_: None) if ignored else stop)
    # Processes are started on other threads than this one, which answers signals: between two waits, because the system may
    # hand a signal to any thread, which wakes no other.
    executor = concurrent.futures.ThreadPoolExecutor(1)
    future = executor.submit(run_selected, args)
    while not future.done():
        concurrent.futures.wait([future], timeout=0.2)
    sys.exit(0 if future.result() else 1)


main()
