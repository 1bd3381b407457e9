"""Behaviour on the wire: connections that are slow, many, broken or reused."""
import http.client
import json
import socket
import threading
import time

from conftest import Response


def request_bytes(path, fields):
    body = json.dumps(fields).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


LONG = {"prompt": "Hello", "max_tokens": 450, "n": 32, "ignore_eos": True}


def read_until(connection, text):
    data = b""
    while text not in data:
        more = connection.recv(65536)
        assert more, data[-300:]
        data += more
    return data


def test_keep_alive_and_pipelining(server):
    with server.socket() as connection:
        one = request_bytes("/v1/completions", {"prompt": "a", "max_tokens": 3, "ignore_eos": True, "stream": True})
        connection.sendall(one + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + one)
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        while more := connection.recv(65536):
            data += more
    assert data.count(b"HTTP/1.1 200 OK") == 4
    assert data.count(b"data: [DONE]") == 2
    assert data.index(b'{"status":"ok"}') < data.rindex(b"data: [DONE]") < data.index(b'"object":"list"')


def test_disconnect_frees_the_engine(server):
    def tokens_of_a_client_that_goes(stream):
        server.wait_until(server.is_idle)
        before = server.metric("vllm:generation_tokens_total")
        with server.socket() as connection:
            connection.sendall(request_bytes("/v1/completions", {**LONG, "stream": stream}))
            if stream:
                read_until(connection, b"data: ")
            server.wait_until(lambda: server.metric("vllm:num_requests_running") > 0
                              or server.metric("vllm:generation_tokens_total") > before)
        server.wait_until(server.is_idle)
        return server.metric("vllm:generation_tokens_total") - before

    for stream in (True, False):
        # A client that a busy machine holds up may go too late: then it tries again.
        assert any(tokens_of_a_client_that_goes(stream) < 32 * 450 for _ in range(20))
        assert server.metric("quire:kv_blocks_used") == 0
        assert server.metric("vllm:request_success_total", 'finished_reason="abort"') >= 32


def test_slow_reader_does_not_stall_others(server):
    with server.socket() as slow:
        slow.sendall(request_bytes("/v1/completions", {**LONG, "n": 8, "stream": True, "logprobs": 20}))
        slow.recv(1)
        start = time.monotonic()
        for _ in range(20):
            assert server.completion(max_tokens=4).status == 200
            slow.recv(1)
        assert time.monotonic() - start < 120
    server.wait_until(server.is_idle)


def test_slowloris(server):
    connections = [server.socket() for _ in range(100)]
    try:
        for connection in connections:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        start = time.monotonic()
        for _ in range(10):
            assert server.get("/health").status == 200
            assert server.completion(max_tokens=2).status == 200
        assert time.monotonic() - start < 120
    finally:
        for connection in connections:
            connection.close()


def test_64_streams(server):
    fields = {"max_tokens": 64, "temperature": 1, "stream": True}
    expected = {seed: server.completion(seed=seed, **fields).body.count(b"data: ") for seed in range(2)}
    texts = {seed: text_of(server.completion(seed=seed, **fields)) for seed in range(8)}
    results = {}

    def run(index):
        results[index] = text_of(server.completion(seed=index % 8, **fields))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 64 and expected
    for index, text in results.items():
        assert text == texts[index % 8]  # alone or among 63 others


def text_of(response):
    assert response.status == 200, response.body
    return "".join(event["choices"][0]["text"] for event in response.events())


def test_chunked_request_and_expect(server):
    body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    with server.socket() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        for byte in body:
            connection.sendall(b"1\r\n%c\r\n" % byte)
        connection.sendall(b"0\r\n\r\n")
        assert read_until(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_smuggling_is_refused(server):
    for headers in (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"Content-Length: 4\r\nContent-Length: 5",
                    b"Transfer-Encoding: gzip, chunked", b"Content-Length: +4", b"Content-Length: 4 4",
                    b"Transfer-Encoding:\r\nContent-Length: 5", b"HTTP/1.0\r\nTransfer-Encoding: chunked"):
        version, headers = headers.split(b"\r\n", 1) if headers.startswith(b"HTTP") else (b"HTTP/1.1", headers)
        with server.socket() as connection:
            connection.sendall(b"POST /v1/completions " + version + b"\r\nHost: x\r\nConnection: keep-alive\r\n" + headers
                               + b"\r\n\r\n0\r\n\r\n")
            answer = connection.recv(4096)
            assert answer.split(b" ")[1] in (b"400", b"501"), (headers, answer)
            assert b"Connection: close" in answer


def test_exactly_one_valid_host_is_needed(server):
    for version, headers, status in ((b"1.1", b"", 400), (b"1.1", b"Host: a\r\nHost: a\r\n", 400),
                                     (b"1.1", b"Host: a b\r\n", 400), (b"1.1", b"Host: a\tb\r\n", 400),
                                     (b"1.1", b"Host: a\x01b\r\n", 400), (b"1.1", b"Host: a,b@c\r\n", 400),
                                     (b"1.1", b"Host: a:b\r\n", 400), (b"1.1", b"Host: \xc3\xa4\r\n", 400),
                                     (b"1.1", b"Host: http://a/\r\n", 400), (b"1.1", b"Host: [::1\r\n", 400),
                                     (b"1.0", b"Host: a b\r\n", 400), (b"1.0", b"Host: a\r\nHost: b\r\n", 400),
                                     (b"1.0", b"", 200), (b"1.1", b"Host:\r\n", 200), (b"1.1", b"Host: \t a:80 \r\n", 200),
                                     (b"1.1", b"Host: [::1]:8000\r\n", 200), (b"1.1", b"host: my_box:\r\n", 200)):
        with server.socket() as connection:
            connection.sendall(b"GET /health HTTP/" + version + b"\r\n" + headers + b"\r\n")
            answer = read_until(connection, b"\r\n")
            assert answer.split(b" ")[1] == str(status).encode(), (version, headers, answer)


def test_garbage(server):
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\x00" * 100, b"A" * 40000,
                    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000):
        with server.socket() as connection:
            try:
                connection.sendall(garbage + b"\r\n\r\n")
                answer = connection.recv(4096)
            except ConnectionError:
                continue
            assert answer == b"" or answer.split(b" ")[1] in (b"400", b"408", b"431"), answer
    assert server.get("/health").status == 200


def test_metrics_have_vllms_names(server):
    text = server.get("/metrics").body.decode()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
                 "prompt_tokens_total", "generation_tokens_total", "request_success_total",
                 "prefix_cache_queries_total", "prefix_cache_hits_total", "time_to_first_token_seconds_bucket",
                 "inter_token_latency_seconds_bucket", "e2e_request_latency_seconds_bucket",
                 "request_queue_time_seconds_bucket", "request_prompt_tokens_bucket",
                 "request_generation_tokens_bucket"):
        assert f"vllm:{name}{{" in text, name
    assert 'model_name="' in text


def test_clients_that_end_their_sending_get_their_answers(server):
    whole = server.completion(max_tokens=64, temperature=0).json()["choices"][0]["text"]
    for stream in (False, True):
        fields = {"prompt": "Hello", "max_tokens": 64, "ignore_eos": True, "temperature": 0, "stream": stream}
        connection = http.client.HTTPConnection(server.host, server.port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
        connection.sock.shutdown(socket.SHUT_WR)
        answer = connection.getresponse()
        answer = Response(answer.status, dict(answer.getheaders()), answer.read())
        connection.close()
        assert answer.status == 200
        text = text_of(answer) if stream else answer.json()["choices"][0]["text"]
        assert text == whole
    server.wait_until(server.is_idle)


def test_media_types(server):
    body = {"prompt": "x", "max_tokens": 1}
    for headers, status in (({"Content-Type": "Application/JSON; Charset=UTF-8"}, 200),
                            ({"Content-Type": "application/json; charset=latin1"}, 415),
                            ({"Content-Encoding": "gzip"}, 415), ({"Content-Encoding": "identity"}, 200)):
        assert server.post("/v1/completions", body, headers).status == status, headers


def test_folded_headers_and_long_chunk_extensions_are_refused(server):
    for text in (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
                 b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                 b"Transfer-Encoding: chunked\r\n\r\n2;a=" + b"x" * 20000 + b"\r\n{}\r\n0\r\n\r\n"):
        with server.socket() as connection:
            connection.sendall(text)
            assert read_until(connection, b"\r\n").startswith(b"HTTP/1.1 400 ")
