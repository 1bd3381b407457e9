"""The licences of what a package holds besides Quire itself: the build machine's libraries, MLX's wheel, Rust's crates.

libgfortran and libquadmath, which come with MLX's wheel, are under those of libgcc-s1 (GCC), too."""
import json
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Packages whose headers are compiled into the program; their libraries, if any, are found by name.
HEADERS = ["libcli11-dev", "libhwy-dev", "libspdlog-dev", "libfmt-dev", "libxxhash-dev"]


def owner_of(library):
    """(package, version, source package) of one of the distribution's files."""
    for name in (library, pathlib.Path("/usr") / str(library).lstrip("/"), str(library).removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "-S", str(name)], capture_output=True, text=True)
        if found.returncode == 0:
            package = found.stdout.split(": ")[0].split(",")[0]
            return described(package)
    raise SystemExit(f"package: no package of this machine owns {library}, so its licence is not known")


def described(package):
    fields = "${Package}\t${Version}\t${source:Package} ${source:Version}"
    return subprocess.run(["dpkg-query", "-W", "-f", fields, package], check=True, capture_output=True, text=True).stdout.split("\t")


def crates():
    """The folders of the crates that are linked into the program, by `name-version`."""
    asked = ["cargo", "metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(asked, cwd=ROOT / "rust/quire-text", check=True, capture_output=True, text=True).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    seen, waiting = set(), [metadata["resolve"]["root"]]
    while waiting:
        crate = waiting.pop()
        if crate in seen:
            continue
        seen.add(crate)
        waiting += [needed["pkg"] for needed in nodes[crate]["deps"]
                    if any(kind["kind"] is None for kind in needed["dep_kinds"])]
    ours = metadata["resolve"]["root"]
    return {f"{packages[crate]['name']}-{packages[crate]['version']}": pathlib.Path(packages[crate]["manifest_path"]).parent
            for crate in sorted(seen) if crate != ours}


def copy_crates(target):
    for name, folder in sorted(crates().items()):
        texts = [file for file in sorted(folder.iterdir())
                 if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")) and file.is_file()]
        if not texts:
            raise SystemExit(f"package: the crate {name} has no licence file")
        (target / name).mkdir(parents=True)
        for file in texts:
            shutil.copyfile(file, target / name / file.name)


def copy_licences(target, libraries, mlx):
    """Writes the folder `target`. `libraries`: {name in the package: the file of this machine}; `mlx`: the unpacked wheel."""
    target.mkdir(parents=True)
    lines = ["Libraries of the machine that made this package: file, package, version, its source package", ""]
    owners = {}
    for name, file in sorted(libraries.items()):
        package, version, source = owner_of(file)
        owners[package] = version
        lines.append(f"{name}  {package} {version}  {source}")
    (target / "LIBRARIES.txt").write_text("\n".join(lines) + "\n")
    for package in sorted(owners.keys() | set(HEADERS)):
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", target / f"{package}.txt")
    # What those files refer to, for machines that are not Debian's.
    for text in ("Apache-2.0", "GPL-2", "GPL-3", "LGPL-2", "LGPL-2.1", "LGPL-3"):
        shutil.copyfile(f"/usr/share/common-licenses/{text}", target / f"{text}.txt")
    shutil.copyfile(mlx / "LICENSE", target / "mlx.txt")
    for file in (ROOT / "package/licences").iterdir():
        shutil.copyfile(file, target / file.name)
    copy_crates(target / "rust")
