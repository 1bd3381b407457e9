#!/usr/bin/env python3
"""The tests of the GPU's kernels, on a machine with an NVIDIA GPU: the grids of the ops, the parity goldens and the bits grid, with every
context on the GPU; a server on it; a device that is lost. Fails where there is none.

    test_cuda.py [BIN] [--sanitize] [--jobs N] [--gpus 0,1] [--only REGEX] [--seconds S] [--list]

BIN: where the test programs are (default: build/release/bin). --sanitize: also small cases of the kernels under compute-sanitizer, where it is
(tests/cuda/sanitize.sh), and the ops' tests under its memcheck. --only: jobs whose names match. --seconds: no job begins or goes on after so many; those left are named, and the run
fails. Products and attention are tested once more with the kernels that GPUs without Hopper's machine code and memory run.

A job is a process, since a kernel that faults takes its process's GPU context with it; N of them share each GPU. Prints a line for each job as it
ends, and at the end the logs of those that failed.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import time

from test_process import Process

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 600  # seconds for a job
SKIPPED = 77
LINES_OF_FAILURE = 200

# What is about the CPU: its orders of sums, its layouts, its memory, references that read packed weights, plans whose kernels are the tests'
# own, models with operations of MLX in their steps, and 8-bit activations.
CPU_ONLY = """
    CpuIsa* Int8Linear* PackMatrix* PackedAffine* PackedFloats* KernelGraphTest* Profile* AttentionPlan* PagedAttentionAmx*
    PagedAttentionAvx512Bf16* Linear.AddsInThePromisedOrder Linear.MatchesItsReference
    LinearFused.TheReferenceComposesTheReferences PagedAttentionBits.AreThoseOfTheScalarModel
    *Bits.*_int8 *Bits.ABatchDependentModelIsCaught* *Bits.AblationsChangeNothing* *Faults.LogitsThatAreNotFinite*
    GgufLinear.RowsMayBeFetchedForAWhile KvWrite.PoolsMayHaveMoreThan32BitsOfElementsAndAreCommittedLazily
""".split()
OPS_WITH_PLAIN_KERNELS = "*Linear*:*Attention*:*Moe*:*ZeroPoints*:*ColumnOrder*:*Ungated*"
ENGINE = "*Models/Bits.*:*Hybrid*:*Models/Faults.*:*Models/Isolation.*:*Models/Stress.*:*OnTheGpu*:*Pooling*:*Windows*:*Sharing*"
KERNELS = "kernel_choice elementwise linear blocks long_rows attention new_keys state sample experts".split()
SANITIZED_KERNELS = "sample long_rows new_keys attention experts state elementwise linear blocks".split()
NOT_UNDER_MEMCHECK = "Proof|Pack|Reference|Half|Layout|Lists|Kept|Memory|Lazy|Support|Choice|Planner|CudaBlocks|Cpu|ArrayMem|Isa|Limits"  # takes minutes, or runs nothing on a GPU
PARITY_SHARDS = 6
PLAIN = {"QUIRE_CUDA_KERNELS": "plain"}

# For Process: a command and what it needs of the environment. `long`: begun first. `alone`: run behind the others, one by one.
# `may_skip`: status 77 says that the machine has no tool for it; that of others, that they could not use the GPU.
Job = collections.namedtuple("Job", "name command environment long alone may_skip", defaults=[False, False, False])
Ended = collections.namedtuple("Ended", "job why seconds lines")  # why: "" if it passed, else what was wrong or "skipped"


def filter_of(wanted):
    return f"--gtest_filter={wanted}:-{':'.join(CPU_ONLY)}"


def listed(program, wanted):
    """The suites of a GoogleTest program, each with its tests."""
    done = subprocess.run([program, "--gtest_list_tests", filter_of(wanted)], stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    suites, suite = collections.defaultdict(list), None
    for line in done.stdout.splitlines():
        if line.startswith("  "):
            suites[suite].append(line.split()[0])
        elif match := re.fullmatch(r"(\S+)\.( .*)?", line):  # the first line is a greeting
            suite = match[1]
    if not suites:
        raise SystemExit(f"{program}: no tests for {wanted}")
    return suites


def gtest_jobs(program, suites, what="", environment={}, **more):
    return [Job(f"{program.name} {suite}{what}", [program, "--gtest_brief=1", filter_of(suite + ".*")], environment, **more) for suite in suites]


def engine_jobs(program):
    """A process for each schedule of the bits grid, as they take longest; they run with plain kernels, too."""
    for suite, tests in listed(program, ENGINE).items():
        if not suite.endswith("/Bits"):
            yield from gtest_jobs(program, [suite])
            continue
        for test in tests:
            command = [program, "--gtest_brief=1", filter_of(f"{suite}.{test}")]
            schedules = test.startswith("SoloEquals")
            yield Job(f"{program.name} {suite}.{test}", command, {}, schedules)
            if schedules:
                yield Job(f"{program.name} {suite}.{test}, plain kernels", command, PLAIN, True)
    yield from gtest_jobs(program, listed(program, "*OnTheGpu*"), ", plain kernels", PLAIN)


def all_jobs(bin, sanitize):
    ops, kernels, parity = bin / "ops_tests", bin / "cuda_kernels_test", bin / "parity_tests"
    yield from gtest_jobs(ops, listed(ops, "*"), long=True)
    yield from gtest_jobs(ops, listed(ops, OPS_WITH_PLAIN_KERNELS), ", plain kernels", PLAIN, long=True)
    for part in KERNELS:
        yield Job(f"kernels against float64: {part}", [kernels, part], {})
        yield Job(f"kernels against float64: {part}, plain kernels", [kernels, part], PLAIN)
    yield from engine_jobs(bin / "engine_tests")
    grammars = bin / "engine_grammar_tests"
    yield from gtest_jobs(grammars, listed(grammars, "*GrammarLoad*"))
    for shard in range(PARITY_SHARDS):
        command, split = [parity, "--gtest_brief=1", filter_of("*Parity*")], {"GTEST_TOTAL_SHARDS": str(PARITY_SHARDS), "GTEST_SHARD_INDEX": str(shard)}
        yield Job(f"parity, part {shard}", command, split, True)
        yield Job(f"parity, part {shard}, plain kernels", command, {**split, **PLAIN}, True)
    yield Job("serving: answers alone and together", [sys.executable, ROOT / "tests/cuda/serving.py", bin / "quire"], {})
    yield Job("kernels against float64: large_pools", [kernels, "large_pools"], {}, alone=True)  # takes what memory is free
    yield Job("a lost device ends the process", [bin / "lost_device_tests"], {}, alone=True)
    if sanitize:
        yield from sanitizer_jobs(bin)


def sanitizer_jobs(bin):
    for tool in ("memcheck", "racecheck", "synccheck"):
        for part in SANITIZED_KERNELS:
            yield Job(f"{tool}: {part}", [ROOT / "tests/cuda/sanitize.sh", bin, part], {"SANITIZER_TOOLS": tool, "SANITIZER_SECONDS": str(LIMIT)}, True, may_skip=True)
    if not (tool := os.environ.get("COMPUTE_SANITIZER") or shutil.which("compute-sanitizer")):
        return  # sanitize.sh says so
    ops = bin / "ops_tests"
    for suite in listed(ops, "*"):
        if not re.search(NOT_UNDER_MEMCHECK, suite):
            command = [tool, "--tool", "memcheck", "--error-exitcode", "9", ops, "--gtest_brief=1", filter_of(suite + ".*")]
            yield Job(f"memcheck: ops_tests {suite}", command, {})


def run(job, gpu, until):
    """Runs a job on a GPU until it ends, or the time `until` comes."""
    begun = time.monotonic()
    limit = min(begun + LIMIT, until)
    environment = {"QUIRE_TEST_CUDA": "1", "CUDA_VISIBLE_DEVICES": gpu, **job.environment}
    lines, why = collections.deque(maxlen=5000), ""
    try:
        process = Process(job._replace(environment=environment), [])
    except OSError as error:
        return Ended(job, f"not started: {error}", 0, lines)
    try:
        while (line := process.next_line(limit)) is not None:
            lines.append(line)
    except TimeoutError:
        why = f"not done in {time.monotonic() - begun:.0f} s"
    status = process.stop()
    if status == SKIPPED and job.may_skip:
        why = "skipped"
    elif status and not why:
        why = f"died of signal {-status}" if status < 0 else f"exit status {status}"
    return Ended(job, why, time.monotonic() - begun, lines)


def verdict(lines):
    """What the end of a log says, in a line."""
    told = [line.strip() for line in lines if re.match(r"\[==========\].* ran|\[  (PASSED|SKIPPED|FAILED)|\d+ failures|== \w+check|skipped:", line)]
    checks = sum(line.startswith("ok ") for line in lines)
    return "; ".join([told_line[:100] for told_line in told[-3:]] + ([f"{checks} checks"] if checks else []))


def run_all(jobs, gpus, each, until):
    """Yields each job that ends; `each` at a time on each GPU."""
    free = queue.Queue()
    for gpu in gpus * each:
        free.put(gpu)

    def take_turn(job):
        gpu = free.get()
        try:
            return run(job, gpu, until) if time.monotonic() < until else Ended(job, "not begun", 0, [])
        finally:
            free.put(gpu)

    together = sorted((job for job in jobs if not job.alone), key=lambda job: not job.long)
    with concurrent.futures.ThreadPoolExecutor(len(gpus) * each) as pool:
        for future in concurrent.futures.as_completed([pool.submit(take_turn, job) for job in together]):
            yield future.result()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # not on the thread that answers signals
        yield from pool.map(take_turn, [job for job in jobs if job.alone])


def stop(number, _):
    """Ends the run. Jobs are in sessions of their own, which no terminal's signal reaches and which would go on without this process."""
    Process.stop_all()
    os._exit(128 + number)


def gpus_here():
    """Those that CUDA_VISIBLE_DEVICES leaves, which nvidia-smi does not ask."""
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        return visible.split(",")
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts
    try:
        listed = subprocess.run(["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"no NVIDIA GPU can be used here: {error}") from None
    return listed.split() or sys.exit("no NVIDIA GPU can be used here: nvidia-smi lists none")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", nargs="?", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--jobs", type=int, help="at a time on each GPU; default: one a processor, 8 at most")
    parser.add_argument("--gpus", type=lambda text: text.split(","), help="default: all that CUDA_VISIBLE_DEVICES leaves")
    parser.add_argument("--only", default="", type=re.compile)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, stop)
    until = time.monotonic() + args.seconds
    gpus = [] if args.list else args.gpus or gpus_here()
    os.environ["QUIRE_TEST_CUDA"] = "1"  # for the lists, too
    jobs = [job for job in all_jobs(args.bin.resolve(), args.sanitize) if not args.only or args.only.search(job.name)]
    if args.list or not jobs:
        print(*(job.name for job in jobs), f"{len(jobs)} jobs", sep="\n")
        return 0 if jobs else 1
    each = args.jobs or max(1, min(8, len(os.sched_getaffinity(0)) // len(gpus)))
    print(f"{len(jobs)} jobs on {len(gpus)} GPU(s), {each} at a time on each", flush=True)
    begun, failed, skipped = time.monotonic(), [], 0
    for ended in run_all(jobs, gpus, each, until):
        print(f"{ended.why or 'passed'}: {ended.job.name}, {ended.seconds:.0f} s: {verdict(ended.lines)}", flush=True)
        skipped += ended.why == "skipped"
        if ended.why not in ("", "skipped"):
            failed.append(ended)
    for ended in failed:
        print(f"\n== {ended.job.name}: {ended.why}", *list(ended.lines)[-LINES_OF_FAILURE:], sep="\n")
    print(f"\n{len(jobs) - len(failed) - skipped} of {len(jobs)} jobs passed, {skipped} skipped, {time.monotonic() - begun:.0f} s")
    for ended in failed:
        print(f"failed: {ended.job.name}: {ended.why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
