"""/v1/completions through the openai package and as plain JSON."""
import math

import pytest


def text_of(response, index=0):
    assert response.status == 200, response.body
    return response.json()["choices"][index]["text"]


def streamed(response, index=0):
    assert response.status == 200, response.body
    choices = [c for event in response.events() for c in event["choices"] if c["index"] == index]
    return "".join(c["text"] for c in choices)


def test_openai_client(client, model):
    answer = client.completions.create(model=model, prompt="Hello", max_tokens=5, temperature=0,
                                       extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5
    assert answer.model == model


@pytest.mark.parametrize("fields", [
    {"temperature": 0},
    {"temperature": 1, "seed": 11},
    {"temperature": 1.5, "seed": 12, "n": 3},
    {"temperature": 0, "echo": True},
    {"temperature": 0.7, "seed": 1, "top_k": 5, "min_p": 0.05, "presence_penalty": 0.5},
    {"temperature": 1, "seed": 3, "stop": ["e", "q", " "]},
    {"temperature": 1, "seed": 3, "stop": ["e"], "include_stop_str_in_output": True},
    {"temperature": 1, "seed": 4, "logprobs": 3},
    {"temperature": 1, "seed": 5, "ignore_eos": False, "max_tokens": 200},
    {"temperature": 1, "seed": 6, "skip_special_tokens": False, "max_tokens": 200},
])
def test_stream_equals_whole(server, fields):
    fields = {"max_tokens": 64, **fields}
    whole = server.completion(**fields)
    stream = server.completion(stream=True, stream_options={"include_usage": True}, **fields)
    for index in range(fields.get("n", 1)):
        assert streamed(stream, index) == text_of(whole, index)
        reasons = [c["finish_reason"] for event in stream.events() for c in event["choices"] if c["index"] == index]
        assert reasons[-1] == whole.json()["choices"][index]["finish_reason"]
        assert not any(reasons[:-1])
    last = stream.events()[-1]
    usage = whole.json()["usage"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == usage["completion_tokens"]
    assert last["usage"]["prompt_tokens"] == usage["prompt_tokens"]


def test_streamed_logprobs_equal_whole(server):
    fields = {"max_tokens": 32, "temperature": 1, "seed": 9, "logprobs": 2}
    whole = server.completion(**fields).json()["choices"][0]["logprobs"]
    joined = {key: [] for key in whole}
    for event in server.completion(stream=True, **fields).events():
        for key, values in (event["choices"][0]["logprobs"] or {}).items():
            joined[key] += values
    assert joined == whole


def test_seeds(server):
    def run(seed):
        return text_of(server.completion(max_tokens=48, temperature=1, seed=seed))

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(8)}) == 8
    assert run(-9223372036854775808) == run(-9223372036854775808)


def test_unseeded_requests_differ(server):
    texts = {text_of(server.completion(max_tokens=48, temperature=1)) for _ in range(4)}
    assert len(texts) == 4


def test_choices_differ_and_are_reproducible(server):
    one = server.completion(n=4, seed=5, temperature=1, max_tokens=32).json()["choices"]
    two = server.completion(n=4, seed=5, temperature=1, max_tokens=32).json()["choices"]
    assert [c["index"] for c in one] == [0, 1, 2, 3]
    assert len({c["text"] for c in one}) == 4
    assert one == two
    alone = text_of(server.completion(seed=5, temperature=1, max_tokens=32))
    assert one[0]["text"] == alone


def test_batch_does_not_change_the_answer(server):
    prompts = ["a", "Hello there", "The quick brown fox", "1 2 3 4 5 6 7 8"]
    batch = server.completion(prompt=prompts, temperature=0, max_tokens=24).json()["choices"]
    for prompt, choice in zip(prompts, batch):
        assert text_of(server.completion(prompt=prompt, temperature=0, max_tokens=24)) == choice["text"]


def test_token_id_prompts(server):
    ids = server.post("/tokenize", {"prompt": "Hello there"}).json()["tokens"]
    by_text = server.completion(prompt="Hello there", temperature=0)
    by_ids = server.completion(prompt=ids, temperature=0)
    lists = server.completion(prompt=[ids, ids[:1]], temperature=0)
    assert text_of(by_ids) == text_of(by_text) == text_of(lists)
    assert by_ids.json()["usage"]["prompt_tokens"] == len(ids)
    assert lists.json()["usage"]["prompt_tokens"] == len(ids) + 1


def test_echo(server):
    plain = text_of(server.completion(prompt="Hello wörld", temperature=0))
    assert text_of(server.completion(prompt="Hello wörld", temperature=0, echo=True)) == "Hello wörld" + plain


def test_echo_with_logprobs_scores_the_prompt(server):
    ids = server.post("/tokenize", {"prompt": "Hello there"}).json()["tokens"]
    answer = server.completion(prompt=ids, temperature=0, echo=True, logprobs=1, max_tokens=1).json()
    scores = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert len(scores) == len(ids) + 1
    assert scores[0] is None and all(score <= 0 for score in scores[1:])
    # The prompt's last token scores as the model would have chosen it.
    forced = server.completion(prompt=ids[:-1], temperature=0, max_tokens=1, logprobs=20).json()
    top = forced["choices"][0]["logprobs"]["top_logprobs"][0]
    last = answer["choices"][0]["logprobs"]["tokens"][len(ids) - 1]
    if last in top:
        assert math.isclose(top[last], scores[len(ids) - 1], rel_tol=1e-4, abs_tol=1e-4)
    only = server.completion(prompt=ids, echo=True, logprobs=1, max_tokens=0).json()
    assert only["choices"][0]["logprobs"]["token_logprobs"] == scores[:-1]
    assert only["choices"][0]["text"] == "Hello there"


def test_logprobs(server):
    answer = server.completion(temperature=0, logprobs=3, max_tokens=8).json()["choices"][0]["logprobs"]
    assert len(answer["tokens"]) == len(answer["token_logprobs"]) == len(answer["text_offset"]) == 8
    assert answer["text_offset"][0] == 0
    for token, logprob, top in zip(answer["tokens"], answer["token_logprobs"], answer["top_logprobs"]):
        assert logprob == max(top.values()) == top[token]  # greedy: the best one
        assert sum(math.exp(value) for value in top.values()) <= 1.0001


def test_prompt_logprobs(server):
    answer = server.completion(prompt_logprobs=2, max_tokens=1).json()
    entries = answer["choices"][0]["prompt_logprobs"]
    assert len(entries) == answer["usage"]["prompt_tokens"]
    assert entries[0] is None
    for entry in entries[1:]:
        assert 2 <= len(entry) <= 3
        assert {value["rank"] for value in entry.values()} >= {1, 2}


def test_stop_strings(server):
    full = text_of(server.completion(temperature=1, seed=21, max_tokens=100))
    assert len(full) > 20
    for length in (1, 2, 5):
        stop = full[12:12 + length]
        expected = full[:full.index(stop)]
        for extra in ({}, {"stream": True}):
            answer = server.completion(temperature=1, seed=21, max_tokens=100, stop=[stop, "never ever"], **extra)
            choice = answer.events()[-1]["choices"][0] if extra else answer.json()["choices"][0]
            assert (streamed(answer) if extra else text_of(answer)) == expected
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_stop_token_ids(server):
    free = server.completion(temperature=0, max_tokens=12, return_token_ids=True).json()["choices"][0]
    stop = free["token_ids"][5]
    answer = server.completion(temperature=0, max_tokens=12, return_token_ids=True, stop_token_ids=[stop])
    choice = answer.json()["choices"][0]
    assert choice["token_ids"] == free["token_ids"][:free["token_ids"].index(stop) + 1]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


def test_logit_bias_forces_a_token(server):
    token = server.post("/tokenize", {"prompt": "z"}).json()["tokens"][0]
    answer = server.completion(temperature=0, max_tokens=4, logit_bias={str(token): 100}, return_token_ids=True)
    assert answer.json()["choices"][0]["token_ids"] == [token] * 4
    banned = server.completion(temperature=0, max_tokens=4, return_token_ids=True).json()["choices"][0]["token_ids"]
    other = server.completion(temperature=0, max_tokens=4, return_token_ids=True,
                              logit_bias={str(id): -100 for id in banned}).json()["choices"][0]["token_ids"]
    assert not set(other) & set(banned)


def test_allowed_token_ids(server):
    def ids_of(**fields):
        return server.completion(max_tokens=40, return_token_ids=True, **fields).json()["choices"][0]["token_ids"]

    def tokens(text):
        return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]

    allowed = [tokens(digit)[0] for digit in "135"]
    for extra in ({"temperature": 0}, {"temperature": 2, "seed": 1}, {"temperature": 2, "seed": 1, "presence_penalty": 2}):
        assert set(ids_of(allowed_token_ids=allowed, **extra)) <= set(allowed)
    assert set(ids_of(allowed_token_ids=allowed, temperature=2, seed=1)) == set(allowed)
    # Beside a grammar both must allow a token.
    both = ids_of(allowed_token_ids=allowed, temperature=2, seed=1, structured_outputs={"regex": "[0-4]{30,40}"})
    assert len(both) >= 30 and set(both) == set(allowed[:2])


def test_bad_words(server):
    def answer(**fields):
        choice = server.completion(max_tokens=40, return_token_ids=True, **fields).json()["choices"][0]
        return choice["text"], choice["token_ids"]

    def tokens(text):
        return server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json()["tokens"]

    def has(ids, word):
        return any(ids[i:i + len(word)] == word for i in range(len(ids)))

    # Digits, so that each of them is a token, and two of them a word of two.
    digits = {"structured_outputs": {"regex": "[0-9]{40}"}, "temperature": 1, "seed": 3}
    text, ids = answer(**digits)
    words = [text[5], text[10:12], " " + text[20:23]]
    for extra in ({}, {"presence_penalty": 1}):
        other, other_ids = answer(bad_words=words, **digits, **extra)
        assert other != text and len(other) == 40
        for word in words:
            assert word.strip() not in other and not has(other_ids, tokens(word.strip()))
    # Behind a space, too: the word is not " the" here.
    assert not any(has(answer(bad_words=["the"], temperature=2, seed=seed)[1], tokens(form))
                   for seed in range(5) for form in ("the", " the"))
    # Others are as without it, and an empty list changes nothing.
    assert answer(**digits) == answer(bad_words=[], **digits) == (text, ids)
    both = server.completion(max_tokens=40, n=2, bad_words=words, **digits).json()["choices"]
    assert both[0]["text"] == answer(bad_words=words, **digits)[0] and both[1]["text"] != both[0]["text"]
    refused = server.completion(bad_words=[str(digit) for digit in range(10)], **digits)
    assert refused.status == 400 and "leaves none of those that it allows" in refused.error()["message"]


def test_min_tokens(server):
    ids = server.completion(temperature=0, max_tokens=6, return_token_ids=True).json()["choices"][0]["token_ids"]
    answer = server.completion(temperature=0, max_tokens=20, min_tokens=8, stop_token_ids=[ids[0]],
                               return_token_ids=True)
    assert len(answer.json()["choices"][0]["token_ids"]) >= 8


def test_default_max_tokens_is_16(server):
    body = {"prompt": "Hello", "ignore_eos": True}
    assert server.post("/v1/completions", body).json()["usage"]["completion_tokens"] == 16


def test_prefix_cache_is_reported(server):
    prompt = list(range(40, 120))
    salt = {"cache_salt": "test_prefix_cache_is_reported"}
    first = server.completion(prompt=prompt, temperature=0, **salt).json()
    again = server.completion(prompt=prompt, temperature=0, **salt).json()
    other = server.completion(prompt=prompt, temperature=0, cache_salt="another tenant").json()
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert 0 < again["usage"]["prompt_tokens_details"]["cached_tokens"] < len(prompt)
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["choices"] == again["choices"] == other["choices"]


def test_truncation(server):
    ids = list(range(40, 60))
    cut = server.completion(prompt=ids, truncate_prompt_tokens=4, temperature=0)
    assert cut.json()["usage"]["prompt_tokens"] == 4
    assert text_of(cut) == text_of(server.completion(prompt=ids[-4:], temperature=0))
