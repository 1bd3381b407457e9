#!/usr/bin/env python3
"""Makes small systems, as a newcomer has them, for the tests of packages: build/package-roots/NAME, by debootstrap from the
archive that apt uses here. Exits with 77 if that cannot be done.

    bullseye  Debian 11: glibc 2.31, older than the package's
    bookworm  Debian 12: glibc 2.36
    trixie    Debian 13: glibc 2.41
    python    Debian 11 with Python and pip
    service   Debian 12 with systemd
    bare      nothing at all: no C library, no shell
"""
import os
import pathlib
import shutil
import subprocess
import sys

ROOTS = pathlib.Path(__file__).resolve().parents[2] / "build/package-roots"
SYSTEMS = {"bullseye": ("bullseye", []), "bookworm": ("bookworm", []), "trixie": ("trixie", []), "python": ("bullseye", ["python3-pip", "python3-venv"]),
           "service": ("bookworm", ["systemd", "systemd-sysv", "dbus"])}


def lacking(reason):
    print(reason)
    sys.exit(77)


def archive():
    """The address of Debian's archive, as this machine's apt has it."""
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(CODENAME)", "Created-By: Packages"],
                          capture_output=True, text=True)
    for line in told.stdout.splitlines():
        address, origin, codename = line.split()
        if origin == "Debian" and "-" not in codename:
            return address
    lacking("apt knows no archive of Debian's on this machine")


def make_root(name):
    root, stamp = ROOTS / name, ROOTS / f"{name}.complete"
    if stamp.exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    suite, packages = SYSTEMS[name]
    command = ["debootstrap", "--variant=minbase", *([f"--include={','.join(packages)}"] if packages else []), suite, str(root), archive()]
    print("debootstrap", name, flush=True)
    for _ in range(2):  # a download may fail
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            break
    else:
        lacking(f"debootstrap {suite}: {done.stdout.strip().splitlines()[-1:]} {done.stderr[-200:]}")
    stamp.touch()


def main():
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        lacking("root is needed, and the right to mount")
    if not shutil.which("debootstrap"):
        lacking("there is no debootstrap")
    ROOTS.mkdir(parents=True, exist_ok=True)
    for folder in ("proc", "dev", "tmp"):
        (ROOTS / "bare" / folder).mkdir(parents=True, exist_ok=True)
    (ROOTS / "bare/tmp").chmod(0o1777)
    for name in SYSTEMS:
        make_root(name)


if __name__ == "__main__":
    main()
