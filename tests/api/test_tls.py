"""TLS: real clients, clients that misbehave, new certificates. Certificates are made by the openssl command."""
import contextlib
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time

import httpx2 as httpx  # the one that openai brings
import openai
import pytest

from conftest import BIN, MODEL, start_server
from test_http import LONG, read_until, request_bytes

pytestmark = [
    pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command makes the certificates")]


def make_pair(folder, name="pair", algorithm="ec", *more):
    """The files of a self-signed certificate and its key."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1") if algorithm == "ec" else ("-newkey", algorithm)
    certificate, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", *key, *(more or ("-nodes",)), "-keyout", key_file, "-out", certificate,
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True, capture_output=True)
    return certificate, key_file


class TlsServer:
    def __init__(self, server, certificate):
        self.server, self.port = server, server.port
        self.trust = ssl.create_default_context(cafile=certificate)

    def connect(self, context=None):
        bare = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return (context or self.trust).wrap_socket(bare, server_hostname="localhost")

    def bare(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def get(self, path):
        connection = http.client.HTTPSConnection("localhost", self.port, context=self.trust, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls(pair):
    with start_server("--ssl-certfile", pair[0], "--ssl-keyfile", pair[1]) as server:
        assert server.url.startswith("https://")
        yield TlsServer(server, pair[0])


def start_fails(*flags):
    done = subprocess.run([BIN, "serve", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "loaded" not in done.stderr, done.stderr
    return done.stderr


def test_clients_of_every_kind(tls, pair):
    with httpx.Client(verify=tls.trust, base_url=f"https://localhost:{tls.port}") as client:
        assert client.get("/health").json() == {"status": "ok"}
        large = client.post("/tokenize", json={"prompt": "word " * 100_000})  # many records each way
        assert large.status_code == 200 and large.json()["count"] > 100_000
        bare = client.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 8, "seed": 1})
        assert bare.status_code == 200
        sdk = openai.OpenAI(base_url=f"https://localhost:{tls.port}/v1", api_key="none", http_client=client)
        stream = sdk.completions.create(model=sdk.models.list().data[0].id, prompt="Hello", max_tokens=8, seed=1, stream=True)
        assert "".join(part.choices[0].text for part in stream) == bare.json()["choices"][0]["text"]
    if shutil.which("curl"):
        for version in ("--tlsv1.2 --tls-max 1.2", "--tlsv1.3"):
            done = subprocess.run(["curl", "-sS", *version.split(), "--cacert", pair[0], f"https://localhost:{tls.port}/health"],
                                  capture_output=True, text=True, timeout=60)
            assert done.stdout == '{"status":"ok"}', done


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_what_is_spoken(tls, pair):
    def connect(**settings):
        context = ssl.create_default_context(cafile=pair[0])
        for name, value in settings.items():
            setattr(context, name, value)
        return tls.connect(context)

    with connect() as connection:
        assert connection.version() == "TLSv1.3" and connection.selected_alpn_protocol() is None
    with connect(maximum_version=ssl.TLSVersion.TLSv1_2) as connection:
        assert connection.version() == "TLSv1.2"
    old = ssl.create_default_context(cafile=pair[0])
    old.minimum_version = ssl.TLSVersion.TLSv1
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        tls.connect(old)
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.0"], "http/1.0")):
        context = ssl.create_default_context(cafile=pair[0])
        context.set_alpn_protocols(offered)
        with tls.connect(context) as connection:
            assert connection.selected_alpn_protocol() == chosen
    context.set_alpn_protocols(["h2"])  # its bytes must not be taken for HTTP/1.1
    with pytest.raises(ssl.SSLError, match="(?i)no application protocol"):
        tls.connect(context)


def test_keep_alive_pipelining_and_ends(tls):
    one = request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 3, "ignore_eos": True, "stream": True})
    with tls.connect() as connection:
        connection.sendall(one + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + one)
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        while more := connection.recv(65536):  # the end is TLS's own: Python raises SSLEOFError otherwise
            data += more
    assert data.count(b"HTTP/1.1 200 OK") == 4 and data.count(b"data: [DONE]") == 2
    with tls.connect() as connection:  # HTTP/1.0: only the end of the connection ends the answer
        connection.sendall(one.replace(b"HTTP/1.1", b"HTTP/1.0"))
        data = b""
        while more := connection.recv(65536):
            data += more
    assert data.endswith(b"data: [DONE]\n\n")


def test_byte_by_byte(tls):
    """A client whose every TCP segment has a few bytes of a record."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    inside = tls.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with tls.bare() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def until_done(action):
            while True:
                try:
                    result = action()
                except ssl.SSLWantReadError:
                    result = None
                for byte in outgoing.read():
                    connection.sendall(bytes([byte]))
                if result is not None:
                    return result
                incoming.write(connection.recv(7))

        until_done(lambda: inside.do_handshake() or True)
        until_done(lambda: inside.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert until_done(lambda: inside.read(4096)).startswith(b"HTTP/1.1 200")


def test_plain_http_gets_a_readable_answer(tls):
    for request in (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"DELETE / HTTP/1.1\r\n\r\n", request_bytes("/v1/completions", LONG)):
        with tls.bare() as connection:
            connection.sendall(request)
            answer = read_until(connection, b"}}")
            assert answer.startswith(b"HTTP/1.1 400 ") and b"https://" in answer, answer
            assert connection.recv(100) == b""


def test_disconnect_frees_the_engine(tls):
    server = tls.server

    def metric(name):
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", tls.get("/metrics")[1].decode(), re.M))

    def is_idle():
        return metric("vllm:num_requests_running") == 0 and metric("vllm:num_requests_waiting") == 0

    def tokens_of_a_client_that_goes(goes):
        server.wait_until(is_idle)
        before = metric("vllm:generation_tokens_total")
        connection = tls.connect()
        connection.sendall(request_bytes("/v1/completions", {**LONG, "stream": True}))
        read_until(connection, b"data: ")
        goes(connection)
        server.wait_until(is_idle)
        return metric("vllm:generation_tokens_total") - before

    def with_goodbye(connection):
        connection.settimeout(0)
        with contextlib.suppress(OSError):
            connection.unwrap()
        connection.close()

    def with_reset(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    for goes in (with_goodbye, with_reset, lambda connection: connection.close()):
        # A client that a busy machine holds up may go too late: then it tries again.
        assert any(tokens_of_a_client_that_goes(goes) < 32 * 450 for _ in range(20))


def test_half_closed_clients_get_their_answer(tls):
    with tls.connect() as connection:
        connection.sendall(request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 30, "ignore_eos": True, "stream": True}))
        socket.socket.shutdown(connection, socket.SHUT_WR)  # the bare socket's: no word of TLS's own
        assert b"data: [DONE]" in read_until(connection, b"data: [DONE]")


def test_handshakes_that_do_not_come_hold_nobody_up(tls):
    """300 clients in the middle of a handshake, as many that said nothing, and one that works."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        tls.trust.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    held = []
    try:
        for i in range(600):
            held.append(tls.bare())
            held[-1].sendall((b"", hello[:i % len(hello)], hello, b"\x16\x03\x01\xff\xff")[i % 4])
        for _ in range(20):
            assert tls.get("/health")[0] == 200
    finally:
        for connection in held:
            connection.close()


def test_garbage_ends_its_connection_alone(tls):
    with tls.connect() as victim:
        for garbage in (b"\x16" + os.urandom(400), b"\x16\x03\x01\x00\x05hello", b"\x00" * 64, b"\x15\x03\x01\x00\x02\x02\x28", b"\x16"):
            with tls.bare() as connection:
                connection.sendall(garbage)
                with contextlib.suppress(OSError):  # a reset
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(4096):
                        pass
        victim.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_until(victim, b"}").startswith(b"HTTP/1.1 200")


def test_memory_of_many_connections_comes_back(pair):
    """1,000 clients in the middle of a record: 45 KiB each, that the allocator would keep when they have gone."""
    def resident(server):
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # MiB

    with start_server("--ssl-certfile", pair[0], "--ssl-keyfile", pair[1]) as server:
        tls = TlsServer(server, pair[0])
        assert tls.get("/health")[0] == 200
        before = resident(server)
        held = []
        for _ in range(1000):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            inside = tls.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
            held.append(tls.bare())
            while inside.version() is None:
                with contextlib.suppress(ssl.SSLWantReadError):
                    inside.do_handshake()
                    break
                held[-1].sendall(outgoing.read())
                incoming.write(held[-1].recv(65536))
            inside.write(b"x" * 16000)
            held[-1].sendall(outgoing.read()[:-1])
        server.wait_until(lambda: resident(server) > before + 30)
        for connection in held:
            connection.close()
        server.wait_until(lambda: resident(server) < before + 15)


def test_sighup_takes_a_new_certificate(tmp_path):
    certificate, key = make_pair(tmp_path)
    with start_server("--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
        first = TlsServer(server, certificate)

        def reload(expected):
            before = sum(expected in line for line in server.log)
            server.process.send_signal(signal.SIGHUP)
            server.wait_until(lambda: sum(expected in line for line in server.log) > before)

        with first.connect() as old, first.bare() as silent:
            old.sendall(request_bytes("/v1/completions", {**LONG, "n": 1, "stream": True}))
            received = read_until(old, b"data: ")
            new_certificate, new_key = make_pair(tmp_path, "new", "rsa:2048")
            new_certificate.rename(certificate)  # a pair that does not belong together
            reload("stays what it was")
            assert first.get("/health")[0] == 200
            new_key.rename(key)
            second = TlsServer(server, certificate)
            with pytest.raises(ssl.SSLCertVerificationError):
                second.get("/health")
            reload("new connections get")
            assert second.get("/health")[0] == 200
            with pytest.raises(ssl.SSLCertVerificationError):
                first.get("/health")
            for broken in (b"", b"no certificate\n"):
                kept = certificate.read_bytes()
                certificate.write_bytes(broken)
                reload("stays what it was")
                certificate.write_bytes(kept)
                assert second.get("/health")[0] == 200
            kept = certificate.read_bytes()
            certificate.unlink()
            os.mkfifo(certificate)  # nobody is waited for who would write into it
            reload("not a regular file")
            certificate.unlink()
            certificate.write_bytes(kept)
            while b"[DONE]" not in received[-100:]:  # begun under the old one
                more = old.recv(65536)
                assert more
                received += more


def test_shutdown_during_handshakes(tmp_path, pair):
    with start_server("--ssl-certfile", pair[0], "--ssl-keyfile", pair[1]) as server:
        tls = TlsServer(server, pair[0])
        held = [tls.bare() for _ in range(20)]
        for i, connection in enumerate(held):
            connection.sendall(b"" if i % 2 else b"\x16\x03\x01")
        server.wait_until(lambda: tls.get("/health")[0] == 200)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0 and time.monotonic() - start < 30
        for connection in held:
            connection.close()


def test_a_bad_pair_ends_the_start(tmp_path, pair):
    certificate, key = pair
    _, other_key = make_pair(tmp_path, "other")
    _, rsa_key = make_pair(tmp_path, "rsa", "rsa:2048")
    encrypted = make_pair(tmp_path, "encrypted", "rsa:2048", "-passout", "pass:secret")
    empty = tmp_path / "empty"
    empty.write_text("")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    broken_chain = tmp_path / "chain.pem"
    broken_chain.write_text(certificate.read_text() + "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    cases = {("--ssl-keyfile", key): "without --ssl-certfile",
             ("--ssl-certfile", certificate): "holds no PEM key",
             ("--ssl-certfile", certificate, "--ssl-keyfile", other_key): "is not the key of the certificate",
             ("--ssl-certfile", certificate, "--ssl-keyfile", rsa_key): "is not the key of the certificate",
             ("--ssl-certfile", tmp_path / "none", "--ssl-keyfile", key): "No such file",
             ("--ssl-certfile", tmp_path, "--ssl-keyfile", key): "not a regular file",
             ("--ssl-certfile", certificate, "--ssl-keyfile", pipe): "not a regular file",
             ("--ssl-certfile", broken_chain, "--ssl-keyfile", key): "behind the first is broken",
             ("--ssl-certfile", empty, "--ssl-keyfile", key): "holds no PEM certificate",
             ("--ssl-certfile", key, "--ssl-keyfile", key): "holds no PEM certificate",
             ("--ssl-certfile", encrypted[0], "--ssl-keyfile", encrypted[1]): "the key is encrypted"}
    for flags, sentence in cases.items():
        said = start_fails(*flags)
        assert sentence in said and "--ssl-" in said.splitlines()[-1], (flags, said)


def test_both_in_one_file_and_an_old_certificate(tmp_path):
    certificate, key = make_pair(tmp_path)
    old, one = tmp_path / "old.pem", tmp_path / "one.pem"
    subprocess.run(["openssl", "x509", "-in", certificate, "-signkey", key, "-days", "-1", "-out", old], check=True)
    one.write_text(old.read_text() + key.read_text())
    with start_server("--ssl-certfile", one) as server:
        assert any("has expired" in line for line in server.log)
