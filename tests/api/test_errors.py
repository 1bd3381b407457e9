"""What clients do wrong: each mistake gets the right status, names the field, and harms nobody else."""
import json

import pytest


@pytest.fixture(autouse=True)
def still_serving(server):
    yield
    assert server.get("/health").status == 200
    assert server.completion(max_tokens=1).status == 200


BAD_FIELDS = [
    ("temperature", -1), ("temperature", "hot"), ("temperature", []), ("top_p", 0), ("top_p", 2), ("min_p", 1.5),
    ("top_k", -7), ("top_k", "many"), ("presence_penalty", 9), ("frequency_penalty", "x"), ("repetition_penalty", 0),
    ("logit_bias", {"x": 1}), ("logit_bias", {"1": 101}), ("logit_bias", {"99999999": 1}), ("logit_bias", [1]),
    ("seed", 1.5), ("seed", 2**64), ("stop", 7), ("stop", [""]), ("stop", ["x"] * 17), ("stop_token_ids", [-1]),
    ("stop_token_ids", [10**9]), ("stop_token_ids", "x"), ("n", 0), ("n", -1), ("n", 65), ("n", 10**12), ("n", 2**70),
    ("max_tokens", -1), ("max_tokens", 0), ("max_tokens", "x"), ("max_tokens", 10**9), ("max_tokens", 2**63),
    ("min_tokens", -1), ("logprobs", 21), ("logprobs", -1), ("stream", "yes"), ("stream_options", {}),
    ("best_of", 3), ("suffix", "x"), ("prompt", 5), ("prompt", []), ("prompt", [[]]), ("prompt", [-1]),
    ("prompt", [10**9]), ("prompt", ["a", 1]), ("prompt", {}), ("prompt", ""), ("prompt", None),
    ("prompt", ["a"] * 2000), ("truncate_prompt_tokens", 0), ("cache_salt", ""), ("use_beam_search", True),
    ("response_format", 5), ("guided_choice", []), ("prompt_embeds", "AAAA"),
]


@pytest.mark.parametrize("field,value", BAD_FIELDS, ids=lambda value: json.dumps(value)[:30])
def test_bad_fields(server, field, value):
    answer = server.completion(**{field: value})
    assert answer.status == 400, answer.body
    assert answer.error()["param"] == field


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'"x"', b'{"prompt": "x"', b'{"prompt": "x"}}', b'{"prompt": "\xff\xfe"}',
    b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "x", "temperature": NaN}', b'{"prompt": "x", "temperature": Infinity}',
    b'{"prompt": "x", "temperature": 1e999}', b"\x00\x01\x02", b"{'prompt': 'x'}", b'{"prompt": "\\ud800"}',
])
def test_malformed_json(server, body):
    answer = server.post("/v1/completions", body)
    assert answer.status == 400, answer.body
    answer.error()


@pytest.mark.parametrize("depth", [200, 5000, 1_000_000])
def test_deep_nesting(server, depth):
    body = '{"prompt": "x", "unknown": ' + "[" * depth + "]" * depth + "}"
    assert server.post("/v1/completions", body).status == 400
    assert server.completion(guided_json="[" * depth).status == 400


def test_over_long_prompts(server, max_len):
    ids = server.completion(prompt=[50] * max_len)
    assert ids.status == 400 and ids.error()["param"] == "prompt" and str(max_len) in ids.error()["message"]
    assert server.completion(prompt="x y " * (16 * max_len)).status == 400
    assert server.completion(prompt=[50] * (max_len - 1), max_tokens=1).status == 200
    # Megabytes are refused at once.
    assert server.completion(prompt="a" * 20_000_000).status == 400


def test_oversized_bodies(server):
    with server.socket() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: 1000000000000\r\n\r\n")
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def test_large_bodies_are_refused_readably(server):
    body = json.dumps({"prompt": "a" * (40 << 20)})
    with server.socket() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body))
        try:
            connection.sendall(body.encode())
        except OSError:
            pass  # refused while sending: the answer is there nevertheless
        assert b" 413 " in connection.recv(4096).split(b"\r\n")[0]


def test_paths_methods_and_types(server):
    assert server.get("/nothing").status == 404
    assert server.get("/v1/completions").status == 405
    assert server.request("DELETE", "/v1/models").status == 405
    form = server.post("/v1/completions", "prompt=x", {"Content-Type": "application/x-www-form-urlencoded"})
    assert form.status == 415
    unknown = server.completion(model="no-such-model")
    assert unknown.status == 404 and unknown.error()["param"] == "model"
    assert server.get("/v1/models/no-such-model").status == 404


def test_unknown_fields_are_ignored(server):
    assert server.completion(a_field_of_the_future={"x": [1]}).status == 200


def test_grammar_errors_do_not_harm_others(server):
    for value in ({"pattern": "("}, {"type": 5}, {"$ref": "#"}, {"type": "string", "pattern": None}, {"enum": []}):
        assert server.completion(guided_json=value, max_tokens=4).status in (200, 400)


def test_chat_template_cannot_be_smuggled_in(server):
    bomb = "{% for a in range(10**9) %}x{% endfor %}"
    assert server.chat(chat_template=bomb).error()["param"] == "chat_template"
    assert server.chat(chat_template_kwargs={"chat_template": bomb}).error()["param"] == "chat_template_kwargs"


def test_what_excludes_everything_is_the_clients_error(server):
    def ids(text):
        return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]

    for fields in ({"allowed_token_ids": ids("z"), "guided_json": {"type": "integer"}},
                   {"guided_choice": ["a"], "min_tokens": 8}):
        answer = server.completion(max_tokens=12, **fields)
        assert answer.status == 400, answer.body
        assert "leaves none of those that it allows" in answer.error()["message"]


def test_compilation_has_limits(server):
    types = {"type": ["object"] * 3000, "patternProperties": {f"^p{i:04}": True for i in range(100)}}
    copies = {"$defs": {"any": {}, "a": {"enum": list(range(10000))}},
              "anyOf": [{"$ref": "#/$defs/a", "allOf": [{"$ref": "#/$defs/any"}]}] * 2000}
    for fields in ({"guided_json": types}, {"guided_json": copies}, {"guided_regex": "\\w" * 500_000}):
        answer = server.completion(max_tokens=2, **fields)
        assert answer.status == 400 and "the grammar takes more than" in answer.error()["message"], answer.body


def test_schemas_that_would_be_changed_in_silence(server):
    misspelt = {"type": "string", "maxLenght": 3}
    for fields, word in (({"guided_json": {"x-a": misspelt, "$ref": "#/x-a"}}, "$ref"),
                         ({"guided_grammar": "start: %json " + json.dumps(misspelt)}, "maxLenght"),
                         ({"guided_json": {"const": 2**53 + 1}}, "2^53")):
        answer = server.completion(max_tokens=2, **fields)
        assert answer.status == 400 and word in answer.error()["message"], answer.body
