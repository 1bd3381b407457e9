"""Lays wheels of quire-kernels out as a kernel repository, which the Hugging Face package `kernels` loads:

    python bindings/python/hub_kernel.py build/wheels/*.whl --output DIR

writes DIR/build/<variant>/ with the package and its metadata.json, and DIR/README.md. Wheels for several versions of Python go into
one variant, because the extension is the only file that differs; wheels for several kinds of CPU become variants of their own.

The variants are named for torch's stable ABI: the extension is given addresses, and uses nothing of torch's ABI, so that it runs with
every torch from MIN_TORCH on.
"""

import argparse
import base64
import hashlib
import json
import pathlib
import shutil
import zipfile

MIN_TORCH = "2.10"
MIN_KERNELS = "0.17.2"
HERE = pathlib.Path(__file__).parent


class WheelError(Exception):
    """What is wrong with a wheel; the message names it."""


def read_wheel(path):
    """(platform such as "x86_64-linux", {name in the package: bytes}) of a wheel."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = [n for n in names if n.endswith(".dist-info/WHEEL")]
        package = [n for n in names if n.startswith("quire_kernels/") and not n.endswith("/")]
        if len(info) != 1 or "quire_kernels/__init__.py" not in package:
            raise WheelError(f"{path} is no wheel of quire-kernels")
        tags = [line.split(": ", 1)[1] for line in wheel.read(info[0]).decode().splitlines() if line.startswith("Tag: ")]
        files = {n.removeprefix("quire_kernels/"): wheel.read(n) for n in package if "__pycache__" not in n}
    return _platform_of(path, tags), files


def _platform_of(path, tags):
    for tag in tags:
        platform = tag.split("-")[2]
        for cpu in ("x86_64", "aarch64"):
            if "linux" in platform and platform.endswith(cpu):
                return f"{cpu}-linux"
    raise WheelError(f"{path} is for {', '.join(tags) or 'no platform'}: x86_64 and aarch64 of Linux have kernels")


def merge(wheels):
    """{platform: files} of several wheels. Two of one platform may differ in their extensions alone."""
    platforms = {}
    for path in wheels:
        platform, files = read_wheel(path)
        known = platforms.setdefault(platform, {})
        for name, data in files.items():
            if known.setdefault(name, data) != data:
                raise WheelError(f"{path} has another {name} than the wheels before it: build all of them from one commit")
    return platforms


def metadata(files, version):
    """metadata.json of a variant, as kernels 0.17 reads it."""
    digests = {name: base64.b64encode(hashlib.sha256(data).digest()).decode() for name, data in sorted(files.items())}
    unique = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]
    return {
        "id": f"_quire_kernels_cpu_{unique}",
        "name": "quire-kernels",
        "version": version,
        "kernels-minver": MIN_KERNELS,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": {"algorithm": "sha256", "files": digests},
    }


def variant_name(platform):
    return f"torch-stable-abi{MIN_TORCH.replace('.', '')}-cpu-{platform}"


def lay_out(wheels, output, version=1):
    """Writes the repository and returns the variants' folders. What a folder of this name had before is gone."""
    folders = []
    for platform, files in merge(wheels).items():
        files["_functions.py"] = files.pop("__init__.py")
        files["__init__.py"] = (HERE / "hub" / "__init__.py").read_bytes()
        folder = pathlib.Path(output) / "build" / variant_name(platform)
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (folder / "metadata.json").write_text(json.dumps(metadata(files, version), indent=2) + "\n")
        folders.append(folder)
    shutil.copyfile(HERE / "hub" / "README.md", pathlib.Path(output) / "README.md")
    return folders


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--version", type=int, default=1, help="the kernel's version on the hub (default: 1)")
    arguments = parser.parse_args()
    try:
        folders = lay_out(arguments.wheels, arguments.output, arguments.version)
    except (WheelError, OSError, zipfile.BadZipFile) as error:
        raise SystemExit(f"hub_kernel.py: {error}")
    for folder in folders:
        print(folder)


if __name__ == "__main__":
    main()
