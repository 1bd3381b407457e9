"""The Python wheel `quire`: the tree below the environment's prefix, so that `pip install` gives the command `quire`, which
runs without Python."""
import base64
import hashlib
import stat
import time as clock
import zipfile

METADATA = """\
Metadata-Version: 2.1
Name: quire
Version: {version}
Summary: A server for large language models: the command quire
License: Apache-2.0
Description-Content-Type: text/markdown

The program `quire`, for x86-64 Linux: `quire serve MODEL` speaks OpenAI's and Anthropic's APIs, `quire run MODEL` is a chat in
the terminal. It holds libraries of others, whose licences lie in `share/doc/quire/licences` below the environment's prefix.
"""
# Nothing of the machine's C library is used where it is old, so the tag could be lower: this is the oldest that pip knows and
# that is still maintained.
TAG = "py3-none-manylinux_2_28_x86_64"
WHEEL = f"Wheel-Version: 1.0\nGenerator: quire\nRoot-Is-Purelib: false\nTag: {TAG}\n"


class Archive:
    """A ZIP file whose entries are recorded as wheels want it."""

    def __init__(self, path, time):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.time = clock.gmtime(max(time, 315532800))[:6]  # ZIP's times begin in 1980
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, self.time)
        entry.external_attr = (stat.S_IFREG | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, name):
        self.add(name, "".join(f"{line}\n" for line in [*self.record, f"{name},,"]).encode())
        self.zip.close()


def make_wheel(tree, folder, version, time):
    """Returns the file."""
    package = folder / f"quire-{version}-{TAG}.whl"
    archive = Archive(package, time)
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if not path.is_file():
            continue
        place = f"scripts/{name.removeprefix('bin/')}" if name.startswith("bin/") else f"data/{name}"
        archive.add(f"quire-{version}.data/{place}", path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    info = f"quire-{version}.dist-info"
    archive.add(f"{info}/METADATA", METADATA.format(version=version).encode())
    archive.add(f"{info}/WHEEL", WHEEL.encode())
    archive.add(f"{info}/licenses/LICENSE", (tree / "share/doc/quire/LICENSE").read_bytes())
    archive.close(f"{info}/RECORD")
    return package
