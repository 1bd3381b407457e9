#!/usr/bin/env python3
"""Builds a crate's static library in a folder that clones share, and copies what belongs to this clone out of it.

    cargo_build.py OUT CARGO ARGUMENTS...    OUT gets the library and the headers that its build script generated

The crates that the library depends on are compiled once for all clones. The library itself is this clone's own, but cargo
puts those of all clones under one name: the copy happens under a lock that every clone takes. Folders of other versions
that nobody has built in for a month are removed.
"""
import fcntl
import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.parse

KEPT_DAYS = 30


def copy(source, target):
    """Atomically; a file that has not changed keeps its time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (target.exists() and filecmp.cmp(source, target, shallow=False)):
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(source, partial)
        partial.replace(target)


def remove_old(shared):
    for other in shared.parent.glob("cargo-*"):
        lock = other / ".lock"
        if other != shared and lock.exists() and time.time() - lock.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)


def main():
    out, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    shared = pathlib.Path(command[command.index("--target-dir") + 1])
    shared.mkdir(parents=True, exist_ok=True)
    crate = f"path+file://{pathlib.Path.cwd().resolve()}#"  # which characters cargo writes as %XX is its own affair
    with open(shared / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock.fileno())
        done = subprocess.run([*command, "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)
        library = False
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if not urllib.parse.unquote(message.get("package_id", "")).startswith(crate):
                continue
            if message["reason"] == "build-script-executed":
                bridge = pathlib.Path(message["out_dir"]) / "cxxbridge/include"
                for header in bridge.rglob("*.h"):
                    copy(header, out / "include" / header.relative_to(bridge))
            if message["reason"] == "compiler-artifact" and message["target"]["kind"] == ["staticlib"]:
                for name in message["filenames"]:
                    copy(pathlib.Path(name), out / pathlib.Path(name).name)
                    library = True
    if not library:
        sys.exit(f"cargo told of no library of {crate}")
    if shared.name.startswith("cargo-"):
        remove_old(shared)


main()
