#!/usr/bin/env python3
"""Builds a crate in a folder that clones share, and copies what belongs to this clone out of it.

    cargo_build.py OUT CARGO build ARGUMENTS...            OUT gets the library and the headers that its build script generated
    cargo_build.py OUT CARGO test --no-run ARGUMENTS...    OUT gets the program of its unit tests, unit_tests
    cargo_build.py OUT CARGO clippy ARGUMENTS...           nothing

The crates that the library depends on are compiled once for all clones. The library itself is this clone's own, but cargo
puts those of all clones under one name, and calls one that is newer than this clone's sources its own: the digest of the
sources it was built from lies beside it, and if they were others, cargo is told to forget it. Build and copy happen under a
lock that every clone takes. Folders of other versions that nobody has built in for a month are removed.
"""
import fcntl
import filecmp
import hashlib
import json
import os
import pathlib
import re
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


def digest_of_sources():
    digest = hashlib.sha256()
    for path in sorted(path for path in pathlib.Path().rglob("*") if path.is_file() and path.parts[0] != "target"):
        content = path.read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def name_of_crate():
    return re.search(r'^name = "(.+)"$', pathlib.Path("Cargo.toml").read_text(), re.MULTILINE)[1]


def clean_command(command, crate):
    """Of a build's arguments `cargo clean` knows those that say where it was built."""
    at = next(i for i, word in enumerate(command) if word in ("build", "test", "clippy"))
    words, known = iter(command[at + 1:]), []
    for word in words:
        if word in ("--release", "--locked", "--offline"):
            known.append(word)
        elif word in ("--target-dir", "--target"):
            known += [word, next(words)]
    return [*command[:at], "clean", *known, "--package", crate]


def forget_others(shared, command, crate):
    """Removes what cargo has of this crate, in any profile, if it was built from other sources."""
    built, sources = shared / ".sources", digest_of_sources()
    if built.exists() and built.read_text() == sources:
        return
    built.unlink(missing_ok=True)
    subprocess.run(clean_command(command, crate), check=True, stderr=subprocess.DEVNULL)
    built.write_text(sources)


def remove_old(shared):
    for other in shared.parent.glob("cargo-*"):
        lock = other / ".lock"
        if other != shared and lock.exists() and time.time() - lock.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(other, ignore_errors=True)


def run_cargo(command):
    """What it tells of, as objects; what it says to people goes to stderr."""
    at = command.index("--target-dir")  # before a "--"
    form = "--message-format=json-render-diagnostics"
    done = subprocess.run([*command[:at], form, *command[at:]], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def take(message, out):
    """Copies what a message tells of. Returns whether it was what the command is for."""
    if message["reason"] == "build-script-executed":
        bridge = pathlib.Path(message["out_dir"]) / "cxxbridge/include"
        for header in bridge.rglob("*.h"):
            copy(header, out / "include" / header.relative_to(bridge))
    if message["reason"] != "compiler-artifact":
        return False
    if message.get("profile", {}).get("test"):
        if message.get("executable"):
            copy(pathlib.Path(message["executable"]), out / "unit_tests")
            (out / "unit_tests").chmod(0o755)
        return True
    if message["target"]["kind"] != ["staticlib"]:
        return False
    for name in message["filenames"]:
        if name.endswith(".a"):  # of clippy only what it has read
            copy(pathlib.Path(name), out / pathlib.Path(name).name)
    return True


def main():
    out, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    shared = pathlib.Path(command[command.index("--target-dir") + 1])
    shared.mkdir(parents=True, exist_ok=True)
    crate = f"path+file://{pathlib.Path.cwd().resolve()}#"  # which characters cargo writes as %XX is its own affair
    with open(shared / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock.fileno())
        forget_others(shared, command, name_of_crate())
        own = [message for message in run_cargo(command)
               if urllib.parse.unquote(message.get("package_id", "")).startswith(crate)]
        if not any([take(message, out) for message in own]):
            sys.exit(f"cargo told of no library of {crate}")
    if shared.name.startswith("cargo-"):
        remove_old(shared)


main()
