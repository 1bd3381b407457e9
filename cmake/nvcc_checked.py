#!/usr/bin/env python3
"""Runs a compiler and reads what ptxas says of each kernel: one marked hot (`hot` is a word of its name) may neither spill
registers nor have a stack frame, and its warpgroup products may not wait for each other. ptxas's notes are not shown, its warnings are."""
import re
import subprocess
import sys

NOTE = re.compile(r"^(ptxas info |\s+\d+ bytes stack frame|\s*$)")
KERNEL = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
SERIAL = re.compile(r"wgmma.mma_async instructions are serialized .* in the function '([^']+)'")
HOT = re.compile(r"(?:\d|_)hot_")  # in a mangled name: 15hot_linear..., 20linear_hot_kernel


def spills(notes):
    """A line for each hot kernel that keeps registers in memory."""
    kernel = None
    for line in notes.splitlines():
        if match := KERNEL.search(line):
            kernel = match.groups()
        elif (match := FRAME.search(line)) and kernel:
            if HOT.search(kernel[0]) and any(int(count) for count in match.groups()):
                yield f"{kernel[0]} for {kernel[1]}: {line.strip()}"


def serial_products(notes):
    """A line for each hot kernel whose warpgroup products ptxas does not let run side by side."""
    for match in SERIAL.finditer(notes):
        if HOT.search(match[1]):
            yield match[0]


def main():
    result = subprocess.run(sys.argv[1:], stderr=subprocess.PIPE, text=True, check=False)
    shown = [line for line in result.stderr.splitlines() if not NOTE.match(line)]
    if shown:
        print("\n".join(shown), file=sys.stderr)
    found = [f"a hot kernel spills: {line}" for line in spills(result.stderr)]
    found += [f"a hot kernel waits: {line}" for line in serial_products(result.stderr)]
    for line in found:
        print(line, file=sys.stderr)
    sys.exit(result.returncode or (1 if found else 0))


if __name__ == "__main__":
    main()
