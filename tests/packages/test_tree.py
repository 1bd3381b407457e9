"""The .tar.xz: a server, and an answer, on systems that have nothing that Quire was built with."""
import http.server
import pathlib
import re
import shutil
import ssl
import subprocess
import threading

import pytest
from systems import PACKAGES, ROOT, TREE, System, glibc_release, trees  # noqa: F401

ARCHIVE = PACKAGES / f"{TREE}.tar.xz"
SYSTEMS = ["bullseye", "bookworm", "trixie", "bare"]


def packaged_glibc():
    return glibc_release(PACKAGES / TREE / "lib/quire/glibc/quire")


def serve(system, tree, *flags, **more):
    return system.server(f"{tree}/bin/quire", "serve", f"{tree}/share/quire/models/quire-demo", "--port", "0", *flags, **more)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_server_answers(trees, name):  # noqa: F811
    system = System(name)
    tree = trees(system)
    with serve(system, tree) as server:
        assert server.answer() == "123 + 456 = 579"
        assert pathlib.Path(f"/proc/{server.process.pid}/comm").read_text() == "quire\n"
        loaded = server.libraries()
    outside = {pathlib.Path(file).name for file in loaded if f"{tree}/" not in file}
    if 0 < packaged_glibc() <= system.glibc():
        assert outside == {"libc.so.6", "libm.so.6", "libresolv.so.2", "ld-linux-x86-64.so.2"}, loaded
    else:
        assert not outside, loaded


def test_the_systems_are_older_and_newer_than_the_package():
    assert System("bullseye").glibc() < packaged_glibc() <= System("trixie").glibc()
    assert not (System("bare").root / "lib64").exists()


def test_the_packages_c_library_on_a_newer_system(trees):  # noqa: F811
    system = System("trixie")
    tree = trees(system)
    with serve(system, tree, QUIRE_GLIBC="package") as server:
        assert server.answer() == "123 + 456 = 579"
        assert not [file for file in server.libraries() if f"{tree}/" not in file]


def test_a_choice_that_is_none(trees):  # noqa: F811
    system = System("trixie")
    process = system.start(f"{trees(system)}/bin/quire", "--version", QUIRE_GLIBC="mine")
    assert process.communicate()[0] == "quire: QUIRE_GLIBC is 'mine'; it may be host or package\n" and process.returncode == 1


@pytest.mark.parametrize("name", ["bullseye", "trixie"])
def test_through_a_link_and_with_odd_arguments(trees, name):  # noqa: F811
    system = System(name)
    link = system.root / "usr/local/bin/quire"
    link.unlink(missing_ok=True)
    link.symlink_to(trees(system) + "/bin/quire")
    try:
        process = system.start("quire", "serve", "", "--no such flag", "a\nb")
        assert "--no such flag" in process.communicate()[0] and process.returncode >= 100
        model = trees(system) + "/share/quire/models/quire-demo"
        assert "123 + 456 = 579\n" in system.run("quire", "run", model, "--temperature", "0", "What is 123 + 456?")
    finally:
        link.unlink()


@pytest.mark.parametrize("name", ["bullseye", "trixie"])
def test_libraries_of_others_do_not_get_in(trees, name):  # noqa: F811
    """As in a Conda environment, which sets LD_LIBRARY_PATH."""
    system = System(name)
    folder = system.root / "opt/others"
    folder.mkdir(exist_ok=True)
    for file in ("libstdc++.so.6", "libcrypto.so.3", "libz.so.1", "libc.so.6" if name == "bullseye" else "libmlx.so"):
        (folder / file).write_bytes(b"no library")
    try:
        assert system.run("env", "LD_LIBRARY_PATH=/opt/others", f"{trees(system)}/bin/quire", "--version").startswith("quire ")
    finally:
        shutil.rmtree(folder)


def test_a_driver_of_an_older_system_loads(trees):  # noqa: F811
    """A GPU's driver asks for libpthread, libdl and librt, which glibc 2.34 has joined, as these libraries do."""
    system = System("bullseye")
    names = ["libcrypto.so.1.1", "libsystemd.so.0"]
    asked = set()
    for name in names:
        file = (system.root / "usr/lib/x86_64-linux-gnu" / name).resolve()
        asked |= set(re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-d", file], capture_output=True, text=True).stdout))
    assert {"libpthread.so.0", "libdl.so.2", "librt.so.1"} <= asked
    printed = system.run("env", "LD_PRELOAD=" + ":".join(names), f"{trees(system)}/bin/quire", "--version")
    assert re.fullmatch(r"quire \S+\n", printed), printed


def pull(system, tree, hub):
    """What is said of a model that this hub does not give."""
    process = system.start(f"{tree}/bin/quire", "pull", "org/model", HF_ENDPOINT=hub, HF_HOME="/tmp/hf")
    told = process.communicate(timeout=120)[0]
    assert process.returncode == 1, told
    return told


@pytest.mark.parametrize("name", ["bullseye", "trixie"])
def test_names_of_hosts(trees, name):  # noqa: F811
    """Name services of the system that the packaged C library does not have are passed over."""
    system = System(name)
    switch = system.root / "etc/nsswitch.conf"
    before = switch.read_text() if switch.exists() else None
    switch.write_text("hosts: mymachines resolve [!UNAVAIL=return] files dns\n")
    (system.root / "etc/hosts").write_text("127.0.0.1 localhost a-hub.test\n")
    try:
        told = pull(system, trees(system), "http://a-hub.test:9")
        assert "Failed to connect to a-hub.test" in told, told  # the name was found, nobody listens
    finally:
        switch.unlink() if before is None else switch.write_text(before)


def test_the_systems_certificates(trees, tmp_path):  # noqa: F811
    """Where Fedora has them; the package's libcurl looks where Debian has them."""
    system = System("bullseye")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
                    certificate, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)  # says 501 to all
    hub.socket = context.wrap_socket(hub.socket, server_side=True)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    file = system.root / "etc/pki/tls/certs/ca-bundle.crt"
    try:
        url = f"https://localhost:{hub.server_port}"
        assert "certificate" in pull(system, trees(system), url)
        file.parent.mkdir(parents=True)
        shutil.copy(certificate, file)
        assert "501" in pull(system, trees(system), url)
    finally:
        shutil.rmtree(system.root / "etc/pki", ignore_errors=True)
        hub.shutdown()
        hub.server_close()


def test_the_archive():
    assert ARCHIVE.stat().st_size < 40_000_000
    listed = subprocess.run(["tar", "tvf", ARCHIVE], check=True, capture_output=True, text=True).stdout.splitlines()
    for line in listed:
        mode, owner = line.split()[:2]
        assert owner == "root/root" and mode in ("drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"), line
        assert f" {TREE}" in line and ".." not in line, line


def test_nothing_names_the_machine_that_made_it():
    for file in (PACKAGES / TREE).rglob("*"):
        if file.is_file() and "share/doc" not in str(file):
            assert str(ROOT).encode() not in file.read_bytes(), file


def test_licences():
    folder = PACKAGES / TREE / "share/doc/quire/licences"
    told = {line.split()[0] for line in (folder / "LIBRARIES.txt").read_text().splitlines()[2:]}
    home = PACKAGES / TREE / "lib/quire"
    assert told == {str(file.relative_to(home)) for kind in ("libs", "glibc") for file in (home / kind).iterdir()}
    for line in (folder / "LIBRARIES.txt").read_text().splitlines()[2:]:
        assert (folder / f"{line.split()[1]}.txt").stat().st_size > 100, line
    locked = (ROOT / "rust/quire-text/Cargo.lock").read_text()
    crates = [file.name for file in (folder / "rust").iterdir()]
    assert len(crates) > 50 and all(f'name = "{name.rsplit("-", 1)[0]}"' in locked for name in crates)
    for text in ("LGPL-2.1", "GPL-3", "mlx", "lapack", "libc6"):
        assert (folder / f"{text}.txt").stat().st_size > 500
