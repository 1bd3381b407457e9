#!/usr/bin/env python3
"""Compiles ops, models and engine for Macs on Linux, and links the ops' tests with MLX's library for Macs.

    build.py [--jobs N] [--tests REGEX] [ROOM...]     default rooms: base formats ops models engine; objects: build/macos

The compiler is zig's clang with its libc++, the headers and libmlx.dylib are those of the pinned wheel mlx-metal
(cmake/metal.lock, tools/setup.sh --metal). Of Apple's frameworks it needs what stubs/ declares, and of Highway, which
Homebrew has for Macs, the names in stubs/libhwy.tbd. Nothing of it can run here: it shows that types and names are right.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
OUT = ROOT / "build/macos"
ROOMS = ["base", "formats", "ops", "models", "engine"]
# Where Debian has them; only headers that know other systems than Linux.
LIBRARIES = {"boost": "boost", "hwy": "hwy", "xxhash.h": "xxhash.h", "gtest": "gtest", "gmock": "gmock"}
OTHER_TARGETS = re.compile(r"/ops/cuda/|_amx_cpu\.cpp$|_avx\w*_cpu\.cpp$")


def mlx():
    version = next(line.split()[1] for line in (ROOT / "cmake/mlx.lock").read_text().splitlines() if line.startswith("mlx-"))
    folder = ROOT / f"build/deps/mlx-metal-{version}/mlx"
    if not (folder / "lib/libmlx.dylib").exists():
        raise SystemExit(f"{folder}/lib/libmlx.dylib is not there: tools/setup.sh --metal")
    return folder


def sources(rooms, tests):
    """The rooms' files that a Mac compiles: without benchmarks, and without tests or tests alone."""
    found = []
    for room in rooms:
        for file in sorted((ROOT / "src" / room).rglob("*.cpp")):
            is_test = file.name.endswith("_test.cpp")
            if is_test == tests and not file.name.endswith("_bench.cpp") and not OTHER_TARGETS.search(str(file)):
                found.append(file)
    return found


def made_sources():
    """What CMake makes on a Mac, and the libraries that Debian has as sources or headers."""
    made = OUT / "made"
    texts = sorted((ROOT / "src/ops").glob("*/*_metal.metal"))
    subprocess.run([sys.executable, ROOT / "cmake/metal_texts.py", ROOT / "src", made, *texts], check=True)
    (made / "boost_json.cpp").write_text("#include <boost/json/src.hpp>\n")
    return [made / "metal_texts.cpp", made / "boost_json.cpp"]


def zig():
    version = next(line.split()[1] for line in (ROOT / "cmake/metal.lock").read_text().splitlines() if line.startswith("ziglang "))
    program = ROOT / f"build/deps/zig-{version}/ziglang/zig"
    if not program.exists():
        raise SystemExit(f"{program} is not there: tools/setup.sh --metal")
    return program


class Compiler:
    def __init__(self):
        headers = OUT / "headers"
        headers.mkdir(parents=True, exist_ok=True)
        for name, where in LIBRARIES.items():
            if not (headers / name).exists():
                (headers / name).symlink_to(f"/usr/include/{where}")
        self.zig = [zig(), "c++", "-target", "aarch64-macos.14.0"]
        include = mlx() / "include"
        self.flags = ["-std=c++20", "-O1", "-g0", "-DQUIRE_METAL", "-DNDEBUG", "-Wall", "-Wextra",
                      "-ffp-contract=off", f"-I{ROOT}/src"]
        # Behind <cmath> zig's <cfloat> has no limits.
        self.flags += ["-include", "cfloat"]
        for folder in (include, include / "metal_cpp", HERE / "stubs", headers):
            self.flags += ["-isystem", str(folder)]

    def compile(self, file, extra=()):
        """The object of a file, made anew if anything that it includes is newer; or an error's text."""
        relative = file.relative_to(ROOT) if file.is_relative_to(ROOT) else pathlib.Path(*file.parts[1:])
        target = OUT / "objects" / relative.with_suffix(".o")
        needs = target.with_suffix(".d")
        if target.exists() and needs.exists():
            names = needs.read_text().replace("\\\n", " ").split(":", 1)[1].split()
            made = target.stat().st_mtime
            if all(os.path.exists(n) and os.stat(n).st_mtime <= made for n in names):
                return target, None
        target.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([*self.zig, *self.flags, *extra, "-MD", "-MF", needs, "-c", file, "-o", target], cwd=ROOT,
                              capture_output=True, text=True)
        return target, None if done.returncode == 0 else f"{relative}:\n{done.stderr}"


def compile_all(compiler, jobs, files, extra=()):
    objects, errors = [], []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for target, error in pool.map(lambda f: compiler.compile(f, extra), files):
            objects.append(target)
            if error:
                errors.append(error)
                print(error, file=sys.stderr, flush=True)
    return objects, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tests", default="", help="only test files of ops whose names have this")
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    arguments = parser.parse_args()
    compiler = Compiler()
    objects, errors = compile_all(compiler, arguments.jobs, sources(arguments.rooms, tests=False) + made_sources())
    print(f"{len(objects) - len(errors)} of {len(objects)} files compiled for aarch64-macos", flush=True)
    if errors:
        raise SystemExit(1)
    if "ops" not in arguments.rooms:
        return
    google = pathlib.Path("/usr/src/googletest")
    test_files = [google / "googletest/src/gtest-all.cc", google / "googlemock/src/gmock-all.cc",
                  google / "googlemock/src/gmock_main.cc"]
    chosen = [f for f in sources(["ops"], tests=True) if re.search(arguments.tests, f.name)]
    own = [o for o in objects if any(f"/src/{room}/" in str(o) for room in ("base", "ops")) or "/made/" in str(o)]
    tests, errors = compile_all(compiler, arguments.jobs, test_files + chosen,
                                ["-I/usr/src/googletest/googletest", "-I/usr/src/googletest/googlemock"])
    if errors:
        raise SystemExit(1)
    program = OUT / "ops_tests"
    listed = OUT / "ops_tests.objects"
    listed.write_text("\n".join(str(o) for o in own + tests))
    subprocess.run([*compiler.zig, f"@{listed}", "-o", program, f"-L{mlx()}/lib", "-lmlx", HERE / "stubs/libobjc.tbd",
                    HERE / "stubs/libhwy.tbd"], check=True)
    print(f"{program} is linked: {len(tests)} test files with libmlx.dylib", flush=True)


if __name__ == "__main__":
    main()
