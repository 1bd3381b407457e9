"""The chat page at GET /: its headers, what it may load, who may have it. A browser's tests are in tests/page."""
import os
import re

import pytest

from conftest import start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")


def policy(page):
    parts = [part.split() for part in page.headers["Content-Security-Policy"].split(";")]
    return {name: values for name, *values in parts}


def test_the_page_needs_no_key_and_loads_nothing():
    with start_server("--api-key", "secret", "--root-path", "/quire") as server:
        page, again = server.get("/"), server.get("/quire/")
        assert page.status == again.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert server.request("HEAD", "/").status == 200
        assert server.get("/v1/models").status == 401
        rules = policy(page)
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == ["'none'"]
        assert rules["connect-src"] == ["'self'"] and "'unsafe-inline'" not in str(rules)
        nonce = rules["script-src"][0]
        assert re.fullmatch(r"'nonce-[0-9a-f]{32}'", nonce) and rules["style-src"] == [nonce]
        assert nonce not in policy(again)["script-src"], "a nonce is used once"
        assert page.headers["X-Content-Type-Options"] == "nosniff" and page.headers["Cache-Control"] == "no-store"
        text = page.body.decode()
        tags = re.findall(r"<(?:script|style)\b[^>]*>", text)
        assert len(tags) == 2 and all(f'nonce="{nonce[7:-1]}"' in tag for tag in tags), tags
        assert "{{" not in text, "all parts are put together"
        assert not re.search(r"\bsrc=|@import|url\(|<link [^>]*href=\"(?!data:)", text), "nothing is loaded"
        assert not re.search(r"<[^>]*\son\w+=|innerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_no_page_closes_it():
    with start_server("--no-page") as server:
        assert server.get("/").status == 404
        assert server.get("/health").status == 200
    with start_server("--no-page", "--api-key", "secret") as server:
        assert server.get("/").status == 401
    with start_server("--runner", "pooling") as server:
        assert server.get("/").status == 404


def test_a_rebound_name_gets_no_page():
    with start_server() as server:
        assert server.get("/", headers={"Host": f"evil.example:{server.port}"}).status == 403
        assert server.get("/", headers={"Host": f"localhost:{server.port}"}).status == 200
