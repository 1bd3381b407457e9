#!/usr/bin/env python3
"""Makes packages of the release build in build/packages, for x86-64 Linux with any C library: `make package`.

The same sources on the same machine give the same bytes: times are those of the last commit (SOURCE_DATE_EPOCH, if set).
"""
import argparse
import os
import pathlib
import platform
import re
import subprocess
import tarfile

from deb import make_deb
from tree import make_tree
from wheel import make_wheel

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_ARCHIVE = 40_000_000  # bytes


def version():
    return re.search(r"project\(quire VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def last_change():
    """Seconds since 1970, for the times of all files."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(epoch)
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(told.stdout) if told.returncode == 0 else 315532800  # an archive of the sources: 1980, the first of ZIP's


def normalised(entry, time):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = time
    return entry


def make_archive(tree, archive, time):
    """A .tar.xz of the tree, sorted, all files root's."""
    plain = archive.with_suffix("")
    with tarfile.open(plain, "w", format=tarfile.GNU_FORMAT) as out:
        for path in [tree, *sorted(tree.rglob("*"))]:
            out.add(path, f"{tree.name}/{path.relative_to(tree)}".rstrip("/."), recursive=False,
                    filter=lambda entry: normalised(entry, time))
    # Two threads, whatever the machine has: what one writes is not what several do.
    subprocess.run(["xz", "-6", "-f", "-T2", plain], check=True)
    if archive.stat().st_size >= MAX_ARCHIVE:
        raise SystemExit(f"package: {archive} has {archive.stat().st_size:,} bytes, {MAX_ARCHIVE:,} are the limit")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/packages")
    arguments = parser.parse_args()
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        raise SystemExit("package: packages are made on and for x86-64 Linux")
    tree = arguments.output / f"quire-{version()}-linux-x86_64"
    arguments.output.mkdir(parents=True, exist_ok=True)
    make_tree(arguments.build, tree)
    time = last_change()
    archive = tree.with_name(tree.name + ".tar.xz")
    make_archive(tree, archive, time)
    deb = make_deb(tree, arguments.output, version(), time)
    wheel = make_wheel(tree, arguments.output, version(), time)
    for file in (archive, deb, wheel):
        print(f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}  {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
