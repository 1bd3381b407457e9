"""The anthropic package for Python."""
import importlib.metadata

import anthropic
import pytest

from conftest import MODEL

CLIENT = "anthropic " + importlib.metadata.version("anthropic")
FIELDS = {"model": MODEL, "max_tokens": 200, "extra_body": {"temperature": 0},  # the package knows no temperature
          "messages": [{"role": "user", "content": "What is 123 + 456?"}]}
ADD = {"name": "add", "description": "Adds two numbers", "input_schema": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_messages(client):
    message = client.messages.create(**FIELDS)
    assert "579" in text_of(message) and message.stop_reason == "end_turn"
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0


def test_stream(client):
    with client.messages.stream(**FIELDS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == text_of(final) and "579" in text


def test_tools(client):
    message = client.messages.create(**FIELDS, tools=[ADD], tool_choice={"type": "any"})
    [use] = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use" and use.input == {"a": 123, "b": 456}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "579"}]}
    turn = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
    after = client.messages.create(**{**FIELDS, "messages": [*FIELDS["messages"], turn, result]}, tools=[ADD])
    assert after.stop_reason == "end_turn" and text_of(after) == "123 + 456 = 579"


def test_tools_stream(client):
    with client.messages.stream(**FIELDS, tools=[ADD], tool_choice={"type": "tool", "name": "add"}) as stream:
        final = stream.get_final_message()
    assert [block.input for block in final.content if block.type == "tool_use"] == [{"a": 123, "b": 456}]


def test_thinking(client):
    """Whole and streamed; it comes back with the next turn."""
    question = {"role": "user", "content": "What is 12 + 30? /think"}
    fields = {**FIELDS, "max_tokens": 400, "messages": [question], "thinking": {"type": "enabled", "budget_tokens": 128}}
    message = client.messages.create(**fields)
    thinking, text = message.content
    assert (thinking.type, text.type) == ("thinking", "text") and thinking.thinking and thinking.signature and "42" in text.text
    with client.messages.stream(**fields) as stream:
        kinds = [event.delta.type for event in stream if event.type == "content_block_delta"]
        assert [block.to_dict() for block in stream.get_final_message().content] == [block.to_dict() for block in message.content]
    assert list(dict.fromkeys(kinds)) == ["thinking_delta", "signature_delta", "text_delta"]
    turn = {"role": "assistant", "content": [block.to_dict() for block in message.content]}
    assert "579" in text_of(client.messages.create(**{**FIELDS, "messages": [question, turn, *FIELDS["messages"]]}))


def test_count_tokens(client):
    few = client.messages.count_tokens(model=MODEL, messages=FIELDS["messages"])
    more = client.messages.count_tokens(model=MODEL, messages=FIELDS["messages"], system="Be kind.", tools=[ADD])
    assert 0 < few.input_tokens < more.input_tokens


def test_errors(client):
    with pytest.raises(anthropic.BadRequestError) as error:
        client.messages.create(**{**FIELDS, "extra_body": {"temperature": -1}})
    assert error.value.body["error"]["type"] == "invalid_request_error"
