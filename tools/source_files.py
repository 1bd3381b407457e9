#!/usr/bin/env python3
"""The repository's files whose names match a pattern, each on a line: source_files.py '*.h' '*.cpp'

They are those that git knows; in a tree without git (an archive) all but hidden folders and those that a build makes.
"""
import fnmatch
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def known_to_git(root):
    """None if this folder is no working tree of its own: an archive may be unpacked within another repository."""
    try:
        top, *files = subprocess.run("git rev-parse --show-toplevel && git ls-files -z", shell=True, cwd=root, check=True,
                                     capture_output=True, text=True).stdout.replace("\n", "\0", 1).split("\0")
    except subprocess.CalledProcessError:
        return None
    return [name for name in files if name] if pathlib.Path(top).resolve() == root else None


def below(root):
    for folder, folders, files in os.walk(root):
        here = pathlib.Path(folder)
        folders[:] = [name for name in folders if not name.startswith((".", "__")) and name != "venv"
                      and not (here == root and name.startswith("build"))
                      and not (here / name / "CMakeCache.txt").exists()]
        yield from ((here / name).relative_to(root).as_posix() for name in files)


def source_files(*patterns, root=ROOT):
    listed = known_to_git(root)
    names = below(root) if listed is None else listed
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
                  and (root / name).is_file())


if __name__ == "__main__":
    print(*source_files(*sys.argv[1:]), sep="\n")
