"""The installed package as a wheel again, from which hub_kernel.py lays a kernel repository out."""

import importlib.metadata
import pathlib
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import hub_kernel  # noqa: E402


def make_wheel(folder, name="quire_kernels-0.1.0-py3-none-any.whl", tag=None, changed=None):
    """`tag` in place of the wheel's own; `changed`: {name in the wheel: bytes}."""
    path = folder / name
    with zipfile.ZipFile(path, "w") as wheel:
        for file in importlib.metadata.files("quire-kernels"):
            data = pathlib.Path(file.locate()).read_bytes() if not str(file).startswith("..") else None
            if tag is not None and file.name == "WHEEL":
                data = f"Wheel-Version: 1.0\nTag: {tag}\n".encode()
            if data is not None and "__pycache__" not in str(file):
                wheel.writestr(str(file), (changed or {}).get(str(file), data))
    return path


def make_repository(folder):
    """(the repository, its only variant)"""
    repository = folder / "kernel"
    (variant,) = hub_kernel.lay_out([make_wheel(folder)], repository)
    return repository, variant
