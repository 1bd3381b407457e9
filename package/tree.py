"""The tree of files that every package holds: it runs on any x86-64 Linux, wherever it is unpacked.

    bin/quire                 launcher.cpp, linked statically
    lib/quire/quire           the program, stripped
    lib/quire/libs            what it needs of this machine's libraries, without the C library
    lib/quire/glibc           the C library with its loader, for machines with an older one
    lib/quire/mlx, mlx_cpu.libs   of MLX's wheel
    share/quire/models        the demo model
    share/doc/quire           documents and licences
"""
import pathlib
import re
import shutil
import subprocess

from licences import copy_licences

ROOT = pathlib.Path(__file__).resolve().parents[1]
# All of the C library that programs and drivers ask for by name. Since 2.34 most of it is one file, but a GPU's driver
# still asks for the others, and those of an older machine do not fit.
GLIBC = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2", "libutil.so.1", "libanl.so.1",
         "libnss_compat.so.2"]
LOADER = "ld-linux-x86-64.so.2"
OLDEST_BUNDLED = 33  # glibc 2.33: the first whose loader has --argv0


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def needed_libraries(program):
    """{name: file} of all the libraries that the program needs, directly or not."""
    found = {}
    for line in run("ldd", program).splitlines():
        if match := re.match(r"\s+(\S+) => (/\S+) \(", line):
            found[match[1]] = pathlib.Path(match[2])
        elif match := re.match(r"\s+(/\S+) \(", line):
            found[pathlib.Path(match[1]).name] = pathlib.Path(match[1])
        elif "not found" in line:
            raise SystemExit(f"package: {program}: {line.strip()}")
    return found


def copy(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)  # what a link leads to
    target.chmod(mode)


def copy_program(build, tree):
    program = tree / "lib/quire/quire"
    copy(build / "bin/quire", program, 0o755)
    run("strip", program)
    # DT_RPATH, which goes before LD_LIBRARY_PATH (a Conda environment may set that) and holds for what the libraries need in turn.
    run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/libs:$ORIGIN/mlx/lib", program)


def copy_libraries(build, mlx, tree):
    """Returns {name in the tree: file of this machine}."""
    home = tree / "lib/quire"
    copied = {}
    needed = needed_libraries(build / "bin/quire")
    loader = needed[LOADER]
    release = re.search(r"release version 2\.(\d+)", loader.read_bytes().decode("latin-1"))
    if not release or int(release[1]) < OLDEST_BUNDLED:
        raise SystemExit(f"package: {loader} is older than glibc 2.{OLDEST_BUNDLED}: make packages on a newer machine")
    # Under the program's name, which is what `ps` shows.
    copy(loader, home / "glibc/quire", 0o755)
    copied["glibc/quire"] = loader
    for name in GLIBC:
        file = needed["libc.so.6"].parent / name
        copy(file, home / "glibc" / name, 0o755 if name == "libc.so.6" else 0o644)
        copied[f"glibc/{name}"] = file
    for name, file in needed.items():
        if name in GLIBC or name == LOADER or "linux-vdso" in name:
            continue
        if file.resolve().is_relative_to(mlx.resolve()):
            target = home / file.resolve().relative_to(mlx.resolve())
        else:
            target = home / "libs" / name
            copied[f"libs/{name}"] = file
        copy(file, target)
        if target.name == "libmlx.so":
            run("strip", "--strip-unneeded", target)
    return copied


def compile_launcher(target):
    target.parent.mkdir(parents=True)
    run("c++", "-std=c++20", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o", target, ROOT / "package/launcher.cpp")


def copy_documents(tree):
    documents = tree / "share/doc/quire"
    guides = ("operations.md", "serving.md", "families.md", "benchmarks.md", "benchmarks/kernels.md", "grafana.json")
    for name in ("LICENSE", "README.md", "SECURITY.md", *(f"docs/{guide}" for guide in guides)):
        copy(ROOT / name, documents / name)
    for file in sorted((ROOT / "models/quire-demo").rglob("*")):
        if file.is_file():
            copy(file, tree / "share/quire/models/quire-demo" / file.relative_to(ROOT / "models/quire-demo"))


def mlx_folder(build):
    """The unpacked wheel, as CMake found it."""
    cache = (build / "CMakeCache.txt").read_text()
    return pathlib.Path(re.search(r"^QUIRE_MLX_ROOT:PATH=(.*)$", cache, re.M)[1])


def make_tree(build, tree):
    shutil.rmtree(tree, ignore_errors=True)
    mlx = mlx_folder(build)
    compile_launcher(tree / "bin/quire")
    copy_program(build, tree)
    libraries = copy_libraries(build, mlx, tree)
    copy_documents(tree)
    copy_licences(tree / "share/doc/quire/licences", libraries, mlx)
    for folder in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
