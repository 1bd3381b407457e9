"""Fields of requests: honoured, or refused by name; never dropped without a word."""
import os

import openai
import pytest

from conftest import ROOT, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts a server of its own")

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module")
def server():
    """The demo model: its template has tools and thinking."""
    with start_server("--disable-access-log", model=str(ROOT / "models/quire-demo")) as started:
        yield started


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def prompt_tokens(client, model, **fields):
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=1, **fields)
    return answer.usage.prompt_tokens


def test_tool_choice_none_offers_no_tools(client, model):
    plain = prompt_tokens(client, model)
    assert prompt_tokens(client, model, tools=TOOLS, tool_choice="none") == plain
    assert prompt_tokens(client, model, tools=TOOLS, tool_choice="auto") > plain
    assert prompt_tokens(client, model, tools=TOOLS) > plain


@pytest.mark.parametrize("fields", [
    {"enable_thinking": False}, {"think": False}, {"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"},
    {"reasoning": {"effort": "none"}}, {"reasoning": {"enabled": False}},
])
def test_thinking_goes_to_the_template(client, model, fields):
    # The template writes an empty thought where thinking is off.
    by_kwargs = prompt_tokens(client, model, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert by_kwargs > prompt_tokens(client, model)
    assert prompt_tokens(client, model, extra_body=fields) == by_kwargs


def test_efforts_that_the_template_does_not_know_are_refused(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        prompt_tokens(client, model, reasoning_effort="high")
    assert caught.value.param == "reasoning_effort"
    assert caught.value.code == "unsupported_parameter"


@pytest.mark.parametrize("fields", [
    {"n_predict": 5}, {"options": {"temperature": 0}}, {"num_predict": 5}, {"functions": TOOLS}, {"store": True},
    {"prediction": {"type": "content", "content": "x"}}, {"web_search_options": {}}, {"verbosity": "low"},
    {"modalities": ["audio"]}, {"suffix": "x"}, {"logprob_token_ids": [1]},
    {"use_beam_search": True}, {"length_penalty": 2}, {"guided_whitespace_pattern": "x"}, {"service_tier": "flex"},
    {"format": "json"}, {"prompt": "x"},
])
def test_what_is_not_supported_is_refused_by_name(client, model, fields):
    name, = fields
    with pytest.raises(openai.BadRequestError) as caught:
        prompt_tokens(client, model, extra_body=fields)
    assert caught.value.param == name and f"`{name}`" in caught.value.message
    assert caught.value.code in ("unsupported_parameter", "unsupported_value")


def test_what_has_no_effect_is_accepted(client, model):
    client.chat.completions.create(
        model=model, messages=MESSAGES, max_tokens=1, user="me", metadata={"a": "b"}, service_tier="auto", store=False,
        safety_identifier="x", prompt_cache_key="y", verbosity="medium", modalities=["text"], parallel_tool_calls=True)


def test_errors_are_openais(client, server, model):
    with pytest.raises(openai.NotFoundError) as caught:
        prompt_tokens(client, "no-such-model")
    assert caught.value.code == "model_not_found" and caught.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, max_completion_tokens=10**6)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "max_completion_tokens"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=10**6)
    assert caught.value.param == "max_tokens" and "`max_tokens`" in caught.value.message
    assert "lone surrogate" in server.post("/v1/completions", r'{"prompt": "\ud800"}').error()["message"]


def test_request_ids(client, model):
    answer = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES, max_tokens=1)
    assert answer.request_id and answer.parse().id == "chatcmpl-" + answer.request_id
    own = client.chat.completions.with_raw_response.create(
        model=model, messages=MESSAGES, max_tokens=1, extra_headers={"X-Request-Id": "mine-1"})
    assert own.request_id == "mine-1" and own.parse().id == "chatcmpl-mine-1"
