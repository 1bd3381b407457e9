"""tools/source_files.py: what git knows, or where there is no git, all that no build has made."""
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from source_files import source_files

FILES = ["a.h", "src/b.cpp", "src/build/c.cpp", "src/x.txt", "build/d.cpp", "build-2/d.cpp", ".ccache/e.h", "src/made/CMakeCache.txt",
         "src/made/f.cpp"]


@pytest.fixture
def tree(tmp_path):
    for name in FILES:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).touch()
    return tmp_path / "tree"


def git(folder, *arguments):
    subprocess.run(["git", "-c", "core.excludesFile=", *arguments], cwd=folder, check=True, capture_output=True)


def test_without_git_what_a_build_has_made_is_left_out(tree):
    assert source_files("*.h", "*.cpp", root=tree) == ["a.h", "src/b.cpp", "src/build/c.cpp"]


def test_with_git_only_what_git_knows(tree):
    git(tree, "init")
    git(tree, "add", "a.h", "src/x.txt", "src/b.cpp")
    (tree / "a.h").unlink()
    assert source_files("*.h", "*.cpp", root=tree) == ["src/b.cpp"]


def test_an_archive_within_another_repository(tree):
    git(tree.parent, "init")
    assert source_files("*.h", root=tree) == ["a.h"]


def test_this_repository_has_sources():
    assert {"src/cli/main.cpp", "src/base/check.h"} <= set(source_files("*.cpp", "*.h"))
