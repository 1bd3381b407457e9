"""The openai package for Python."""
import importlib.metadata
import json

import openai
import pydantic
import pytest

from conftest import MODEL

CLIENT = "openai " + importlib.metadata.version("openai")
QUESTION = [{"role": "user", "content": "What is 123 + 456?"}]
OBJECT = [{"role": "user", "content": "Make a JSON object with a = 123 and b = 456."}]
SUM = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"],
       "additionalProperties": False}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds two numbers", "parameters": SUM}}


class Sum(pydantic.BaseModel):
    a: int
    b: int


@pytest.fixture(scope="module")
def client(base_url):
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)


def test_models(client):
    assert MODEL in [model.id for model in client.models.list()]


def test_chat(client):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    assert "579" in answer.choices[0].message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(client):
    stream = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert "579" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens > 0


def test_chat_stream_helper(client):
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, temperature=0) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events and "content.done" in events
    assert "579" in final.choices[0].message.content


def test_parse(client):
    answer = client.chat.completions.parse(model=MODEL, messages=OBJECT, temperature=0, response_format=Sum)
    assert answer.choices[0].message.parsed == Sum(a=123, b=456)


def test_tools_required(client):
    answer = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0, tools=[ADD], tool_choice="required")
    [call] = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    assert Sum.model_validate_json(call.function.arguments) == Sum(a=123, b=456)


def test_tools_stream_and_result(client):
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, temperature=0, tools=[ADD],
                                        tool_choice="required") as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"a": 123, "b": 456}
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "579"}
    after = client.chat.completions.create(model=MODEL, temperature=0, tools=[ADD], max_tokens=200,
                                           messages=[*QUESTION, message.to_dict(), result])
    assert after.choices[0].finish_reason == "stop" and after.choices[0].message.content == "123 + 456 = 579"


def test_completions_logprobs(client):
    answer = client.completions.create(model=MODEL, prompt="Once upon", max_tokens=5, logprobs=2, temperature=0)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == answer.usage.completion_tokens == 5 and "".join(logprobs.tokens) == answer.choices[0].text
    assert all(max(top.values()) == given <= 0 for top, given in zip(logprobs.top_logprobs, logprobs.token_logprobs))


def test_embeddings(client):
    answer = client.embeddings.create(model=MODEL, input=["a fig", "a pear"], dimensions=32)
    assert [len(one.embedding) for one in answer.data] == [32, 32]
    assert all(sum(x * x for x in one.embedding) == pytest.approx(1, abs=1e-4) for one in answer.data)
    assert answer.data[0].embedding != answer.data[1].embedding


def test_responses(client):
    answer = client.responses.create(model=MODEL, input="What is 123 + 456?", temperature=0)
    assert answer.status == "completed" and "579" in answer.output_text


def test_responses_stream(client):
    with client.responses.stream(model=MODEL, input="What is 123 + 456?", temperature=0) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types[0] == "response.created" and types[-1] == "response.completed"
    assert "579" in final.output_text


def test_responses_tools(client):
    tool = {"type": "function", "name": "add", "parameters": SUM, "strict": True}
    answer = client.responses.create(model=MODEL, input="What is 123 + 456?", tools=[tool], tool_choice="required",
                                     temperature=0)
    [call] = [item for item in answer.output if item.type == "function_call"]
    assert Sum.model_validate_json(call.arguments) == Sum(a=123, b=456)
    items = [{"role": "user", "content": "What is 123 + 456?"}, call.to_dict(),
             {"type": "function_call_output", "call_id": call.call_id, "output": "579"}]
    after = client.responses.create(model=MODEL, input=items, tools=[tool], temperature=0)
    assert after.status == "completed" and after.output_text == "123 + 456 = 579"


def test_responses_parse(client):
    answer = client.responses.parse(model=MODEL, input=OBJECT, text_format=Sum, temperature=0)
    assert answer.output_parsed == Sum(a=123, b=456)


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=-1)
    assert error.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="none", messages=QUESTION)
