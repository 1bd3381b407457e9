"""The .deb: the tree below /usr, with a systemd unit and /etc/quire.conf. It depends on no package."""
import hashlib
import os
import shutil
import subprocess

from tree import ROOT, copy

DEBIAN = ROOT / "package/debian"
CONTROL = """\
Package: quire
Version: {version}
Architecture: amd64
Maintainer: The authors of Quire
Installed-Size: {kib}
Recommends: ca-certificates
Section: net
Priority: optional
Description: server for large language models
 Quire serves large language models from paged memory, through OpenAI's
 and Anthropic's APIs, on the CPU or an NVIDIA GPU. This package has a
 service, which is not started by itself, and a small demo model.
"""


def files_of(root):
    return [path for path in sorted(root.rglob("*")) if path.is_file() and "DEBIAN" not in path.relative_to(root).parts]


def write_control(root, version):
    control = root / "DEBIAN"
    for name in ("postinst", "prerm", "postrm"):
        copy(DEBIAN / name, control / name, 0o755)
    files = files_of(root)
    kib = sum(-(-path.stat().st_size // 1024) for path in files)
    (control / "control").write_text(CONTROL.format(version=version, kib=kib))
    (control / "conffiles").write_text("/etc/quire.conf\n")
    (control / "md5sums").write_text("".join(
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files if path.name != "quire.conf"))


def make_deb(tree, folder, version, time):
    """Returns the file. `time`: of all files that are newer."""
    root = folder / "deb"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(tree, root / "usr")
    copy(DEBIAN / "quire.service", root / "usr/lib/systemd/system/quire.service")
    copy(DEBIAN / "quire.conf", root / "etc/quire.conf")
    copy(DEBIAN / "copyright", root / "usr/share/doc/quire/copyright")
    write_control(root, version)
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (time, time))
    package = folder / f"quire_{version}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", root, package], check=True, capture_output=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": str(time)})
    shutil.rmtree(root)
    return package
