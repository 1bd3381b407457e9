#!/usr/bin/env python3
"""Runs the test programs of a build and says of every test case what it came to.

    run_tests.py BUILD [--jobs N] [--only REGEX] [--without REGEX] [--flaky FILE] [--limit SECONDS]

BUILD/tests.json, written by CMake, lists the programs. The cases of a GoogleTest program are spread over a few processes,
so that a process is not started for each. A case that crashes or hangs takes only itself down: those behind it run in a
process of their own. What fails is run once more at the end, alone; if it passes then, its name goes to FILE as flaky and
the run is green. The last lines name what failed, with the end of what it printed.
"""
import argparse
import collections
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

RESULT = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:, where .*)? \((\d+) ms\)$")
BEGIN = re.compile(r"\[ RUN +\] (\S+)$")
LINES_OF_FAILURE = 40

Program = collections.namedtuple("Program", "name command environment gtest")
Outcome = collections.namedtuple("Outcome", "case result seconds output")  # result: passed, failed, skipped


def read_programs(build):
    listed = json.loads((build / "tests.json").read_text())
    return [Program(entry["name"], entry["command"], listed["environment"], entry["gtest"]) for entry in listed["tests"]]


def list_cases(program):
    """The names of a GoogleTest program's cases, as --gtest_list_tests indents them below their suites."""
    text = subprocess.run([*program.command, "--gtest_list_tests"], env=os.environ | program.environment, check=True,
                          stdout=subprocess.PIPE, text=True, timeout=300).stdout
    cases, suite = [], ""
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if line.startswith("  "):
            cases.append(suite + name.strip())
        elif re.fullmatch(r"\S+\.", name):
            suite = name
    return [case for case in cases if "DISABLED_" not in case]


class Process:
    """One process of a test program, with a folder of its own for temporary files; its lines arrive in a queue, so that
    waiting for one can end."""

    def __init__(self, program, arguments):
        self.lines = queue.Queue()
        self.folder = tempfile.TemporaryDirectory(prefix="quire-test-", ignore_cleanup_errors=True)
        environment = os.environ | program.environment | {"TMPDIR": self.folder.name, "TEST_TMPDIR": self.folder.name}
        self.popen = subprocess.Popen([*program.command, *arguments], env=environment,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, errors="replace", start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.popen.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def stop(self):
        """Ends the process and whatever it has started."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = self.popen.wait()
        self.folder.cleanup()
        return status


def run_cases(program, cases, limit, report):
    """Runs cases of a GoogleTest program, in as many processes as it takes; each may take `limit` seconds."""
    left = list(cases)
    while left:
        process = Process(program, ["--gtest_filter=" + ":".join(left), "--gtest_color=no"])
        case, output, begun, why = None, [], time.monotonic(), ""
        last, failed = None, False  # of those that this process has reported
        while True:
            try:
                line = process.lines.get(timeout=max(0.1, begun + limit - time.monotonic()))
            except queue.Empty:
                why = f"no end after {limit} s"
                break
            if line is None:
                break
            if (match := BEGIN.search(line)) and match[1] in left:
                case, output, begun = match[1], [], time.monotonic()
            elif (match := RESULT.search(line)) and match[2] == case:
                result = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[match[1]]
                report(Outcome(case, result, int(match[3]) / 1000, output))
                last, failed = case, failed or result == "failed"
                left.remove(case)
                case, output, begun = None, [], time.monotonic()
            else:
                output.append(line)
        status = process.popen.wait() if not why else process.stop()
        process.stop()
        if status and last and not failed and not why and not left:  # a leak or a race, say, that is told at the end
            report(Outcome(last, "failed", 0, [*output, f"the process ended with status {status} after this case"]))
        if case is None and left:  # it ended between two cases, or before the first
            case = left[0]
        if case in left:
            output.append(why or f"the process ended with status {status} within this case")
            report(Outcome(case, "failed", time.monotonic() - begun, output))
            left.remove(case)


def run_command(program, limit, report):
    """A program that is one case: status 0 is passed, 77 skipped."""
    begun, process, output = time.monotonic(), Process(program, []), []
    status = None
    while status is None:
        try:
            line = process.lines.get(timeout=max(0.1, begun + limit - time.monotonic()))
        except queue.Empty:
            output.append(f"no end after {limit} s")
            status = process.stop()
            break
        if line is None:
            status = process.popen.wait()
            process.stop()
        else:
            output.append(line)
    result = {0: "passed", 77: "skipped"}.get(status, "failed")
    report(Outcome(program.name, result, time.monotonic() - begun, output))


class Run:
    def __init__(self, limit):
        self.limit, self.outcomes, self.lock = limit, {}, threading.Lock()

    def report(self, program, outcome, again=False):
        with self.lock:
            self.outcomes[program.name, outcome.case] = outcome
            note = " (alone, for the second time)" if again else ""
            print(f"{outcome.result:8}{outcome.seconds:8.2f} s  {program.name}  {outcome.case}{note}", flush=True)

    def run(self, program, cases, again=False):
        def report(outcome):
            self.report(program, outcome, again)
        if program.gtest:
            run_cases(program, cases, self.limit, report)
        else:
            run_command(program, self.limit, report)

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
                if self.outcomes[program.name, case].result != "failed":
                    continue
                first = self.outcomes[program.name, case]
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
        except (OSError, subprocess.SubprocessError) as error:
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose names match")
    parser.add_argument("--without", default="", metavar="REGEX", help="leaves out cases whose names match")
    parser.add_argument("--flaky", metavar="FILE", help="gets the names of those that failed and passed when run again")
    parser.add_argument("--limit", type=int, default=900, metavar="SECONDS", help="of one case: only a hang takes as long")
    args = parser.parse_args()
    selected, unlisted = select(read_programs(args.build), args.only, args.without)
    if not selected and not unlisted:
        sys.exit("no test is selected")
    run = Run(args.limit)
    run.run_all(selected, args.jobs)
    flaky = run.run_failed_again(selected)
    if flaky and args.flaky:
        with open(args.flaky, "a") as file:
            print(*flaky, sep="\n", file=file)
    passed = summarise(run.outcomes | unlisted)
    if flaky:
        print("flaky:", *flaky, sep="\n  ")
    sys.exit(0 if passed else 1)


main()
