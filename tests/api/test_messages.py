"""Anthropic's Messages API of the demo model, through the anthropic package: whole and streamed."""
import anthropic
import pytest

from conftest import ROOT, start_server

DEMO = ROOT / "models/quire-demo"
WEATHER = {"name": "get_weather", "description": "Get the weather for a city",
           "input_schema": {"type": "object", "required": ["city"],
                            "properties": {"city": {"type": "string", "description": "The name of the city"}}}}
ADD = {"name": "add", "description": "Add two numbers",
       "input_schema": {"type": "object", "additionalProperties": False, "required": ["a", "b"],
                        "properties": {"a": {"type": "integer", "description": "The first number"},
                                       "b": {"type": "integer", "description": "The second number"}}}}
QUESTION = "What is the weather in Paris?"


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", "--api-key", "secret", model=DEMO) as server:
        yield server


@pytest.fixture(scope="module")
def client(demo):
    return anthropic.Anthropic(base_url=demo.url, api_key="secret", max_retries=0, timeout=120)


def plain(message):
    """What a message holds, without its id and those of its calls, and what depends on the prefix cache."""
    blocks = [{key: value for key, value in block.model_dump(exclude_none=True).items() if key != "id"}
              for block in message.content]
    usage = message.usage
    assert usage.cache_creation_input_tokens == 0
    return (blocks, message.stop_reason, message.stop_sequence, message.role, message.type, message.model,
            usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens)


def ask(client, question=QUESTION, **fields):
    """The answer, which is the same streamed."""
    messages = question if isinstance(question, list) else [{"role": "user", "content": question}]
    fields = {"model": "quire-demo", "messages": messages, "max_tokens": 200, "extra_body": {"temperature": 0}, **fields}
    whole = client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        kinds = [event.type for event in stream]
        assert plain(stream.get_final_message()) == plain(whole)
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    return whole


def test_a_message(client):
    answer = ask(client, "What is 123 + 456?", system="Be brief.")
    assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_")
    assert answer.stop_reason == "end_turn"
    (block,) = answer.content
    assert block.type == "text" and "579" in block.text
    assert answer._request_id


def test_text_streams(client):
    with client.messages.stream(model="quire-demo", max_tokens=60, messages=[{"role": "user", "content": "Tell me a story."}],
                                extra_body={"temperature": 0}) as stream:
        pieces = list(stream.text_stream)
    assert len(pieces) > 5
    whole = ask(client, "Tell me a story.", max_tokens=60)
    assert "".join(pieces) == whole.content[0].text


def test_a_call_and_its_result(client):
    answer = ask(client, tools=[WEATHER])
    assert answer.stop_reason == "tool_use"
    call = answer.content[-1]
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id,
              "content": [{"type": "text", "text": '{"city": "Paris", "temperature": 21, "condition": "sunny"}'}]}
    turns = [{"role": "user", "content": QUESTION},
             {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
             {"role": "user", "content": [result]}]
    last = ask(client, turns, tools=[WEATHER])
    assert last.stop_reason == "end_turn" and "sunny" in last.content[0].text


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_forced_calls(client, choice):
    answer = ask(client, "Hello!", tools=[ADD] if choice["type"] == "any" else [WEATHER, ADD],
                 tool_choice={**choice, "disable_parallel_tool_use": True}, thinking={"type": "disabled"})
    (call,) = answer.content
    assert answer.stop_reason == "tool_use" and call.name == "add"
    assert set(call.input) == {"a", "b"} and all(isinstance(value, int) for value in call.input.values())


def test_no_choice_no_calls(client):
    answer = ask(client, tools=[WEATHER], tool_choice={"type": "none"})
    assert all(block.type == "text" for block in answer.content)


def test_thinking(client):
    answer = ask(client, "What is 12 + 30? /think", thinking={"type": "adaptive"})
    thinking, text = answer.content
    assert thinking.type == "thinking" and thinking.thinking and thinking.signature
    assert "42" in text.text and "<think>" not in text.text
    # It comes back with the next turn.
    turns = [{"role": "user", "content": "What is 12 + 30? /think"},
             {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
             {"role": "user", "content": "What is 1 + 2?"}]
    assert "3" in ask(client, turns).content[-1].text
    budget = ask(client, "What is 12 + 30? /think", thinking={"type": "enabled", "budget_tokens": 3})
    assert len(budget.content[0].thinking) < len(thinking.thinking)
    hidden = ask(client, "What is 12 + 30? /think", thinking={"type": "disabled"})
    assert all(block.type == "text" for block in hidden.content)


def test_stop_sequences_and_limits(client):
    stopped = ask(client, "What is 123 + 456?", stop_sequences=["="])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "=")
    assert ask(client, "Tell me a story.", max_tokens=3).stop_reason == "max_tokens"
    # More than the context has left is cut.
    assert ask(client, "What is 1 + 2?", max_tokens=1_000_000).stop_reason == "end_turn"


def test_an_answer_that_is_begun_goes_on(client):
    turns = [{"role": "user", "content": "What is 123 + 456?"}, {"role": "assistant", "content": "123 + 456 ="}]
    answer = ask(client, turns)
    assert answer.content[0].text.strip().startswith("579")


def test_counted_tokens_are_those_of_the_prompt(client):
    fields = {"model": "quire-demo", "tools": [WEATHER], "system": [{"type": "text", "text": "Be brief."}],
              "messages": [{"role": "user", "content": QUESTION}]}
    counted = client.messages.count_tokens(**fields).input_tokens
    used = client.messages.create(max_tokens=1, **fields).usage
    assert counted == used.input_tokens + used.cache_read_input_tokens > 20


def test_the_billing_header_does_not_cost_the_prefix_cache(demo, client):
    """A system prompt that begins with a number that changes with each request, as Claude Code's does."""
    rules = " ".join(f"Rule {i}: be brief." for i in range(40))

    def usage(number):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={number:05x};"},
                  {"type": "text", "text": rules, "cache_control": {"type": "ephemeral"}}]
        return client.messages.create(model="quire-demo", max_tokens=1, system=system,
                                      messages=[{"role": "user", "content": "Hello"}]).usage

    first, second, third = usage(1), usage(2), usage(3)
    assert first.cache_read_input_tokens == 0
    assert second.cache_read_input_tokens > 100 > second.input_tokens
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens
    assert third == second
    told = [line for line in demo.log if "x-anthropic-billing-header" in line]
    assert len(told) == 1 and "--keep-billing-header" in told[0]


def test_errors_become_the_package_s_exceptions(demo, client):
    def fails(kind, of=client, **fields):
        fields = {"model": "quire-demo", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}], **fields}
        with pytest.raises(kind) as caught:
            of.messages.create(**fields)
        assert caught.value.body["type"] == "error" and caught.value.body["request_id"]
        return caught.value.body["error"]

    other = anthropic.Anthropic(base_url=demo.url, api_key="wrong", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError):
        other.messages.create(model="quire-demo", max_tokens=5, messages=[{"role": "user", "content": "Hi"}])
    assert fails(anthropic.NotFoundError, model="other")["type"] == "not_found_error"
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    error = fails(anthropic.BadRequestError, messages=[{"role": "user", "content": [image]}])
    assert error["type"] == "invalid_request_error" and "messages[0].content[0].type" in error["message"]
    error = fails(anthropic.BadRequestError, messages=[{"role": "user", "content": "word " * 20000}])
    assert error["message"].startswith("prompt is too long")
    with_bearer = anthropic.Anthropic(base_url=demo.url, auth_token="secret", api_key=None, max_retries=0)
    assert with_bearer.messages.create(model="quire-demo", max_tokens=5,
                                       messages=[{"role": "user", "content": "Hi"}]).content
