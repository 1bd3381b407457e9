"""Web pages of other origins: kept out, unless --allowed-origins names them; names made to point here (DNS rebinding)."""
import os
import subprocess

import pytest

from conftest import BIN, MODEL, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")

PAGE = "https://chat.example"
ALLOW = "Access-Control-Allow-Origin"


def preflight(server, origin):
    return server.request("OPTIONS", "/v1/chat/completions", headers={
        "Origin": origin, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type"})


def test_without_the_flag_nothing_is_allowed_and_rebound_names_are_refused():
    with start_server() as server:
        assert server.get("/v1/models").status == 200
        for host in ("evil.example", f"evil.example:{server.port}", f"127.0.0.1.evil.example:{server.port}"):
            refused = server.get("/v1/models", headers={"Host": host})
            assert refused.status == 403 and "Host" in refused.error()["message"]
        for host in ("localhost", f"localhost:{server.port}", "[::1]", "127.0.0.1", "quire:8000"):
            assert server.get("/v1/models", headers={"Host": host}).status == 200, host
        refused = server.get("/v1/models", headers={"Origin": PAGE})
        assert refused.status == 403 and not any(name.startswith("Access-Control") for name in refused.headers)
        assert preflight(server, PAGE).status == 403
        # As curl meets a rebound name: the name is resolved to this machine.
        url = f"http://evil.example:{server.port}/v1/models"
        done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--resolve",
                               f"evil.example:{server.port}:127.0.0.1", url], capture_output=True, text=True, timeout=60)
        assert done.stdout == "403", done


def test_pages_without_an_origin_can_neither_read_nor_post():
    # A sandboxed frame, or a data: page. What a page may not read is the browser's to keep, by the headers that are missing.
    page = {"Origin": "null"}
    with start_server() as server:
        answer = server.get("/v1/models", headers=page)
        assert answer.status == 200 and not any(name.startswith("Access-Control") for name in answer.headers)
        asked = preflight(server, "null")
        assert asked.status == 405 and not any(name.startswith("Access-Control") for name in asked.headers)
        for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            assert server.post("/v1/completions", '{"prompt": "x"}', {"Content-Type": form, **page}).status == 415


def test_an_allowed_page_uses_the_server_with_its_key():
    with start_server("--allowed-origins", PAGE, "--api-key", "secret") as server:
        asked = preflight(server, PAGE)
        assert asked.status == 200 and asked.headers[ALLOW] == PAGE and asked.body == b""
        assert asked.headers["Access-Control-Allow-Headers"] == "authorization, content-type"
        assert "POST" in asked.headers["Access-Control-Allow-Methods"]
        refused = server.get("/v1/models", headers={"Origin": PAGE})
        assert refused.status == 401 and refused.headers[ALLOW] == PAGE  # so that the page can say why
        key = {"Authorization": "Bearer secret"}
        answer = server.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": True},
            headers={"Origin": PAGE, **key})
        assert answer.status == 200 and answer.headers[ALLOW] == PAGE and answer.headers["Vary"] == "Origin"
        assert answer.events()
        other = server.get("/v1/models", headers={"Origin": "https://evil.example", **key})
        assert other.status == 200 and ALLOW not in other.headers
        assert preflight(server, "https://evil.example").status == 401


def test_all_origins_and_what_is_none():
    with start_server("--allowed-origins", '["*"]') as server:
        answer = server.get("/v1/models", headers={"Origin": PAGE, "Host": "chat.example"})
        assert answer.status == 200 and answer.headers[ALLOW] == PAGE
    for text in ("chat.example", "https://chat.example/path", "[1]"):
        done = subprocess.run([BIN, "serve", MODEL, "--port", "0", "--allowed-origins", text], capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 1 and "--allowed-origins" in done.stderr and "loaded" not in done.stderr
