"""cmake/cargo_build.py with a cargo that prints what its messages look like, and the folder that CMake chooses for it."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = """
import json, sys
target = sys.argv[sys.argv.index("--target-dir") + 1]
for message in json.loads(open(f"{target}/messages").read()):
    print(json.dumps(message))
"""


def package(folder, safe):
    return f"path+file://{urllib.parse.quote(str(folder), safe=safe)}#quire-text@0.1.0"


def build(folder, crate, own, other="registry+https://crates.io#other@1.0.0"):
    """Runs it in the folder `crate`, with messages of the packages `own` and `other`."""
    for path in (crate, folder / "target/bridge/cxxbridge/include/x", folder / "out"):
        path.mkdir(parents=True, exist_ok=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "quire-text"\n')
    (folder / "cargo.py").write_text(CARGO)
    (folder / "target/bridge/cxxbridge/include/x/lib.rs.h").write_text("header")
    (folder / "target/libtext.a").write_text("library")
    (folder / "target/libother.a").write_text("other")
    library = {"reason": "compiler-artifact", "target": {"kind": ["staticlib"]}}
    (folder / "target/messages").write_text(json.dumps([
        {"reason": "build-script-executed", "package_id": own, "out_dir": str(folder / "target/bridge")},
        {**library, "package_id": other, "filenames": [str(folder / "target/libother.a")]},
        {**library, "package_id": own, "filenames": [str(folder / "target/libtext.a")]}, {"reason": "build-finished"}]))
    command = [sys.executable, ROOT / "cmake/cargo_build.py", folder / "out", sys.executable, folder / "cargo.py", "build",
               "--target-dir", folder / "target"]
    return subprocess.run(command, cwd=crate, capture_output=True, text=True)


@pytest.mark.parametrize("safe", ["/", "/[]@+~"])  # cargo writes some characters as they are
@pytest.mark.parametrize("name", ["plain", "a[b]@c+d~e", "a b%20ä#"])
def test_it_takes_what_is_this_crates_own_wherever_it_lies(tmp_path, name, safe):
    crate = tmp_path / name / "text"
    done = build(tmp_path, crate, package(crate, safe))
    assert done.returncode == 0, done.stderr
    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert files == ["include/x/lib.rs.h", "libtext.a"]


def test_no_library_is_an_error(tmp_path):
    done = build(tmp_path, tmp_path / "text", package(tmp_path / "elsewhere/text", "/"))
    assert done.returncode == 1 and "no library" in done.stderr


@pytest.mark.skipif(not shutil.which("cargo"), reason="there is no cargo")
def test_each_clone_gets_its_own_library_whichever_was_built_last(tmp_path):
    """cargo calls a crate fresh if its files are older than the last build, also if that was another clone's."""
    def crate(name, word):
        folder = tmp_path / name / "text"
        (folder / "src").mkdir(parents=True)
        (folder / "Cargo.toml").write_text('[package]\nname = "word"\nversion = "0.1.0"\n[lib]\ncrate-type = ["staticlib"]\n')
        (folder / "src/lib.rs").write_text(f'#[no_mangle]\npub static WORD: [u8; 8] = *b"{word}";\n')
        for path in (folder / "Cargo.toml", folder / "src/lib.rs"):
            os.utime(path, (1_600_000_000, 1_600_000_000))  # long before any build
        return folder

    def word(folder):
        out = folder.parent / "out"
        command = [sys.executable, ROOT / "cmake/cargo_build.py", out, "cargo", "build", "--release", "--offline",
                   "--target-dir", tmp_path / "target"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return re.search(rb"(first|other)-it", (out / "libword.a").read_bytes())[1].decode()

    first, other = crate("a", "first-it"), crate("b", "other-it")
    assert [word(clone) for clone in (first, other, first, other)] == ["first", "other", "first", "other"]


def own(folder, *messages):
    """A cargo that tells of these messages of the crate in `folder`."""
    (folder / "text").mkdir()
    (folder / "text/Cargo.toml").write_text('[package]\nname = "quire-text"\n')
    (folder / "target").mkdir()
    (folder / "cargo.py").write_text(CARGO + "print(sys.argv[1:], file=open(f'{target}/called', 'a'))\n")
    package_id = package(folder / "text", "/")
    (folder / "target/messages").write_text(json.dumps([{"package_id": package_id, **message} for message in messages]))


def call(folder, *arguments):
    command = [sys.executable, ROOT / "cmake/cargo_build.py", folder / "out", sys.executable, folder / "cargo.py", *arguments]
    return subprocess.run(command, cwd=folder / "text", capture_output=True, text=True)


def test_the_program_of_the_unit_tests_is_taken(tmp_path):
    program = tmp_path / "target/quire_text-0123"
    artifact = {"reason": "compiler-artifact", "target": {"kind": ["staticlib"]}, "filenames": [str(program)]}
    own(tmp_path, {**artifact, "profile": {"test": True}, "executable": str(program)})
    program.write_text("#!/bin/sh\necho tested\n")
    flags = ["--lib", "--release", "--locked", "--target-dir", tmp_path / "target", "--config", "a.b=0"]
    done = call(tmp_path, "test", "--no-run", *flags)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "out/unit_tests"], capture_output=True, text=True).stdout == "tested\n"
    cleaned, called = [json.loads(line.replace("'", '"')) for line in (tmp_path / "target/called").read_text().splitlines()]
    target = ["--target-dir", str(tmp_path / "target")]
    assert cleaned == ["clean", "--release", "--locked", *target, "--package", "quire-text"]
    assert called == ["test", "--no-run", "--lib", "--release", "--locked", "--message-format=json-render-diagnostics", *target,
                      "--config", "a.b=0"]


def test_of_clippy_nothing_is_taken(tmp_path):
    artifact = {"reason": "compiler-artifact", "target": {"kind": ["staticlib"]}, "executable": None}
    own(tmp_path, {**artifact, "profile": {"test": False}, "filenames": [str(tmp_path / "libtext.rmeta")]},
        {**artifact, "profile": {"test": True}, "filenames": [str(tmp_path / "libtext-1.rmeta")]})
    done = call(tmp_path, "clippy", "--release", "--target-dir", tmp_path / "target", "--all-targets", "--", "-D", "warnings")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out").exists()
    assert "'--all-targets', '--', '-D', 'warnings'" in (tmp_path / "target/called").read_text().splitlines()[-1]


def user_cache(folder, **environment):
    (folder / "script.cmake").write_text(f'include("{ROOT}/cmake/user_cache.cmake")\n'
                                         'quire_user_cache(chosen name /the/fallback)\nmessage("${chosen}")\n')
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")} | environment
    return subprocess.run(["cmake", "-P", folder / "script.cmake"], env=environment, capture_output=True, text=True,
                          check=True).stderr.strip()


def test_the_users_cache(tmp_path):
    home, cache = str(tmp_path / "home"), str(tmp_path / "cache")
    assert user_cache(tmp_path, HOME=home, XDG_CACHE_HOME=cache) == f"{cache}/quire/name"
    assert user_cache(tmp_path, HOME=home) == user_cache(tmp_path, HOME=home, XDG_CACHE_HOME="") == f"{home}/.cache/quire/name"
    assert user_cache(tmp_path, XDG_CACHE_HOME="") == user_cache(tmp_path, HOME="") == "/the/fallback"
    (tmp_path / "file").touch()
    assert user_cache(tmp_path, HOME=str(tmp_path / "file")) == "/the/fallback"
