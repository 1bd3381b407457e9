#!/usr/bin/env python3
"""Compiles ops, models and engine for Macs on Linux, and links the ops' tests with MLX's library for Macs.

    build.py [--jobs N] [--tests REGEX] [--files REGEX] [--no-link] [ROOM...]
    default rooms: base formats ops models engine; objects: build/macos

The other rooms compile with Debian's headers of the libraries that they use, as long as these know other systems than Linux.

The compiler is zig's clang with its libc++, the headers and libmlx.dylib are those of the pinned wheel mlx-metal
(cmake/metal.lock, tools/setup.sh --metal). Of Apple's frameworks it needs what stubs/ declares, and of Highway, which
Homebrew has for Macs, the names in stubs/libhwy.tbd. Nothing of it can run here: it shows that types and names are right.
"""
import argparse
import concurrent.futures
import functools
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
OUT = pathlib.Path("build/macos")  # below ROOT, as all paths that the compiler sees: so clones share a compiler cache
ROOMS = ["base", "formats", "ops", "models", "engine"]
# Where Debian has them; only headers that know other systems than Linux.
LIBRARIES = ["boost", "hwy", "xxhash.h", "gtest", "gmock", "curl", "openssl", "spdlog", "fmt", "prometheus", "CLI", "histedit.h"]
DEFINITIONS = ["QUIRE_METAL", "NDEBUG", "BOOST_ASIO_SEPARATE_COMPILATION", "BOOST_BEAST_SEPARATE_COMPILATION", "SPDLOG_COMPILED_LIB",
               "SPDLOG_FMT_EXTERNAL", 'QUIRE_VERSION="0"']
BRIDGES = "build/rust/include"  # what the Rust crate generates for room text
OTHER_TARGETS = re.compile(r"/ops/cuda/|_amx_cpu\.cpp$|_avx\w*_cpu\.cpp$")
STUBS = HERE.relative_to(ROOT) / "stubs"
GOOGLE = pathlib.Path("/usr/src/googletest")


def pinned(lock, package):
    """The version of a package in one of cmake's lists."""
    return next(line.split()[1] for line in (ROOT / "cmake" / lock).read_text().splitlines() if line.startswith(package))


def unpacked(path):
    if not (ROOT / path).exists():
        raise SystemExit(f"{path} is not there: tools/setup.sh --metal")
    return path


def sources(rooms, tests):
    """The rooms' files that a Mac compiles: without benchmarks, and without tests or tests alone."""
    found = []
    for room in rooms:
        for file in sorted((ROOT / "src" / room).rglob("*.cpp")):
            is_test = file.name.endswith("_test.cpp")
            if is_test == tests and not file.name.endswith("_bench.cpp") and not OTHER_TARGETS.search(str(file)):
                found.append(file.relative_to(ROOT))
    return found


def made_sources():
    """What CMake makes on a Mac, and the library that Debian has as headers."""
    made = OUT / "made"
    texts = sorted((ROOT / "src/ops").glob("*/*_metal.metal"))
    subprocess.run([sys.executable, "cmake/metal_texts.py", ROOT / "src", made, *texts], check=True)
    (made / "boost_json.cpp").write_text("#include <boost/json/src.hpp>\n")
    return [made / "metal_texts.cpp", made / "boost_json.cpp"]


@functools.cache
def included(file):
    """The names in a file's includes."""
    return re.findall(r'^ *#include [<"](.+?)[>"]', (ROOT / file).read_text(), re.MULTILINE)


def includes(file, header):
    """Whether a file includes this header, by way of others of ours, too."""
    seen, ahead = set(), [file]
    while ahead:
        names = included(ahead.pop())
        if header in names:
            return True
        ours = [pathlib.Path("src") / name for name in names if (ROOT / "src" / name).exists()]
        ahead += [name for name in ours if name not in seen]
        seen.update(ours)
    return False


def link_headers(folder, name):
    """A library's headers, of which some may lie where those for this machine are."""
    if not pathlib.Path("/usr/include", name).is_dir() and not list(pathlib.Path("/usr/include").glob(f"*-linux-gnu/{name}")):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(f"/usr/include/{name}")
        return
    (folder / name).mkdir(exist_ok=True)
    for found in (pathlib.Path("/usr/include", name), *pathlib.Path("/usr/include").glob(f"*-linux-gnu/{name}")):
        for part in found.iterdir() if found.exists() else ():
            if not (folder / name / part.name).exists():
                (folder / name / part.name).symlink_to(part)


class Compiler:
    def __init__(self):
        self.mlx = unpacked(pathlib.Path(f"build/deps/mlx-metal-{pinned('mlx.lock', 'mlx-')}/mlx/lib/libmlx.dylib")).parents[1]
        zig = unpacked(pathlib.Path(f"build/deps/zig-{pinned('metal.lock', 'ziglang ')}/ziglang/zig"))
        headers = OUT / "headers"
        headers.mkdir(parents=True, exist_ok=True)
        for name in LIBRARIES:
            link_headers(headers, name)
        # One program, as ccache wants it.
        self.program = OUT / "c++"
        self.program.write_text(f'#!/bin/sh\nexec {zig} c++ -target aarch64-macos.14.0 "$@"\n')
        self.program.chmod(0o755)
        self.command = [self.program]
        self.environment = dict(os.environ)
        if shutil.which("ccache"):
            self.command = ["ccache", self.program]
            self.environment |= {"CCACHE_COMPILERTYPE": "clang", "CCACHE_NOHASHDIR": "1", "CCACHE_SLOPPINESS": "pch_defines,time_macros",
                                 "CCACHE_COMPILERCHECK": f"string:{zig}"}
        # What is not optimised has the same types and names, in half the time.
        self.flags = ["-std=c++20", "-O0", "-g0", *[f"-D{name}" for name in DEFINITIONS], "-Wall", "-Wextra", "-ffp-contract=off", "-Isrc"]
        self.flags += [f"-I{STUBS}"]  # in front of zig's own
        include = self.mlx / "include"
        for folder in (include, include / "metal_cpp", headers, BRIDGES):
            self.flags += ["-isystem", str(folder)]

    def make(self, target, *arguments):
        """Nothing, or an error's text. The target is made anew if anything that it includes is newer."""
        needs = target.with_suffix(target.suffix + ".d")
        if target.exists() and needs.exists():
            names = needs.read_text().replace("\\\n", " ").split(":", 1)[1].split()
            made = target.stat().st_mtime
            if all(os.path.exists(n) and os.stat(n).st_mtime <= made for n in names):
                return None
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.command, *self.flags, *arguments, "-MD", "-MF", needs, "-o", target]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stderr if done.returncode else None

    def precompile(self, name, headers):
        """Headers that are most of what small files cost. Returns the flags that take them."""
        source, target = OUT / f"{name}.hpp", OUT / f"{name}.pch"
        text = "".join(f"#include <{header}>\n" for header in headers)
        if not source.exists() or source.read_text() != text:
            source.write_text(text)
        # It holds the paths of what it was made of: the compiler cache must not give it to another folder.
        self.environment["CCACHE_DISABLE"] = "1"
        error = self.make(target, "-x", "c++-header", "-Xclang", "-fno-pch-timestamp", source)
        del self.environment["CCACHE_DISABLE"]
        if error:
            raise SystemExit(error)
        return ["-Xclang", "-fno-pch-timestamp", "-include-pch", target]

    def compile(self, file, extra):
        """The object of a file, and nothing or an error's text."""
        relative = file.relative_to("/") if file.is_absolute() else file
        target = OUT / "objects" / relative.with_suffix(".o")
        error = self.make(target, *extra, "-c", file)
        return target, f"{file}:\n{error}" if error else None

    def compile_all(self, jobs, files, flags_of):
        objects, errors = [], 0
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for target, error in pool.map(lambda f: self.compile(f, flags_of(f)), files):
                objects.append(target)
                if error:
                    errors += 1
                    print(error, file=sys.stderr, flush=True)
        print(f"{len(objects) - errors} of {len(objects)} files compiled for aarch64-macos", flush=True)
        if errors:
            raise SystemExit(1)
        return objects

    def link(self, program, objects, libraries):
        listed = program.with_suffix(".objects")
        listed.write_text("\n".join(str(o) for o in objects))
        if subprocess.run([self.program, f"@{listed}", "-o", program, f"-L{self.mlx}/lib", "-lmlx", *libraries]).returncode:
            raise SystemExit(f"{program} cannot be linked")
        if struct.unpack("<II", program.read_bytes()[:8]) != (0xFEEDFACF, 0x0100000C):
            raise SystemExit(f"{program} is no 64-bit Mach-O file for ARM")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tests", default="", help="only test files of ops whose names have this")
    parser.add_argument("--files", default="", help="only files whose paths have this")
    parser.add_argument("--no-link", action="store_true")
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    compiler = Compiler()
    mlx = compiler.precompile("mlx", ["mlx/mlx.h"])
    chosen = [f for f in sources(arguments.rooms, tests=False) + made_sources() if re.search(arguments.files, str(f))]
    objects = compiler.compile_all(arguments.jobs, chosen,
                                   lambda file: mlx if includes(file, "mlx/mlx.h") else [])
    if arguments.no_link or "ops" not in arguments.rooms:
        return
    google = [f"-I{GOOGLE}/googletest", f"-I{GOOGLE}/googlemock"]
    tested = compiler.precompile("tests", ["mlx/mlx.h", "gmock/gmock.h", "gtest/gtest.h"])
    chosen = [f for f in sources(["ops"], tests=True) if re.search(arguments.tests, f.name)]
    files = [GOOGLE / "googletest/src/gtest-all.cc", GOOGLE / "googlemock/src/gmock-all.cc", GOOGLE / "googlemock/src/gmock_main.cc"]
    tests = compiler.compile_all(arguments.jobs, files + chosen, lambda file: google if file in files else tested)
    own = [o for o in objects if any(f"/src/{room}/" in str(o) for room in ("base", "ops")) or "/made/" in str(o)]
    compiler.link(OUT / "ops_tests", own + tests, [STUBS / "libobjc.tbd", STUBS / "libhwy.tbd"])
    print(f"{OUT}/ops_tests is linked: {len(chosen)} test files with libmlx.dylib", flush=True)


if __name__ == "__main__":
    main()
