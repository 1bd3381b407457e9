"""OpenAI's Responses API of the demo model, through the openai package: whole and streamed."""
import json

import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseStreamEvent

import codex_body
from conftest import ROOT, long_demo_model, start_server

DEMO = ROOT / "models/quire-demo"
WEATHER = {"type": "function", "name": "get_weather", "description": "Get the weather for a city", "strict": False,
           "parameters": {"type": "object", "required": ["city"],
                          "properties": {"city": {"type": "string", "description": "The name of the city"}}}}
ADD = {"type": "function", "name": "add", "description": "Add two numbers", "strict": False,
       "parameters": {"type": "object", "additionalProperties": False, "required": ["a", "b"],
                      "properties": {"a": {"type": "integer", "description": "The first number"},
                                     "b": {"type": "integer", "description": "The second number"}}}}
QUESTION = "What is the weather in Paris?"
NO_THOUGHTS = {"effort": "none"}
EVENT = pydantic.TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", "--api-key", "secret", model=DEMO) as server:
        yield server


@pytest.fixture(scope="module")
def client(demo):
    return demo.openai("secret")


def plain(response):
    """What a response holds, without ids and times, and what depends on the prefix cache."""
    said = response.model_dump(exclude={"id", "created_at", "completed_at"})
    said["usage"]["input_tokens_details"].pop("cached_tokens")
    for item in said["output"]:
        for key in ("id", "call_id"):
            item.pop(key, None)
    return said


def strict(events):
    """Events as they were sent, each checked against the package's own type with every field that this requires."""
    for number, event in enumerate(events):
        sent = event.to_dict(mode="json")
        EVENT.validate_python(sent)
        assert sent["sequence_number"] == number
        yield event


def ask(client, question=QUESTION, **fields):
    """The answer, which is the same streamed."""
    fields = {"model": "quire-demo", "input": question, "max_output_tokens": 200, "temperature": 0, "store": False, **fields}
    whole = client.responses.create(**fields)
    Response.model_validate(whole.to_dict(mode="json"))
    events = list(strict(client.responses.create(stream=True, **fields)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == f"response.{whole.status}"
    assert plain(events[-1].response) == plain(whole)
    return whole


def only_call(response):
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert response.status == call.status == "completed"
    return call


def test_a_response(client):
    answer = ask(client, "What is 123 + 456?", instructions="Be brief.", metadata={"a": "b"})
    assert answer.object == "response" and answer.id.startswith("resp_") and answer.status == "completed"
    assert "579" in answer.output_text and answer.output[-1].role == "assistant"
    assert (answer.instructions, answer.metadata, answer.temperature) == ("Be brief.", {"a": "b"}, 0)
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer._request_id


def test_the_package_s_stream(client):
    with client.responses.stream(model="quire-demo", input="Tell me a story.", temperature=0) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(pieces) > 5 and "".join(pieces) == final.output_text


def test_items_of_several_kinds_are_one_prompt(client):
    def prompt(**fields):
        return client.responses.create(model="quire-demo", max_output_tokens=1, **fields).usage.input_tokens

    text = prompt(instructions="Be brief.\nBe kind.", input="Hello")
    assert text == prompt(instructions="Be brief.", input=[{"role": "developer", "content": "Be kind."},
                                                           {"role": "user", "content": "Hello"}])
    assert text == prompt(input=[
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."},
                                                          {"type": "input_text", "text": "Be kind."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}])


def test_a_call_and_its_result(client):
    answer = ask(client, tools=[WEATHER])
    call = only_call(answer)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    turns = [{"role": "user", "content": QUESTION}, *answer.output,
             {"type": "function_call_output", "call_id": call.call_id,
              "output": '{"city": "Paris", "temperature": 21, "condition": "sunny"}'}]
    last = ask(client, turns, tools=[WEATHER])
    assert last.status == "completed" and "sunny" in last.output_text
    turns[-1] = {**turns[-1], "output": [{"type": "input_text", "text": turns[-1]["output"]}]}
    assert ask(client, turns, tools=[WEATHER]).output_text == last.output_text


def test_a_function_inside_a_namespace(client):
    space = {"type": "namespace", "name": "maths", "description": "Sums", "tools": [ADD]}
    call = only_call(ask(client, "Hello!", tools=[{"type": "web_search"}, space], tool_choice="required",
                         parallel_tool_calls=False, reasoning=NO_THOUGHTS))
    assert (call.name, call.namespace) == ("add", "maths")
    turns = [{"role": "user", "content": "Hello!"}, call,
             {"type": "function_call_output", "call_id": call.call_id, "output": "3"}]
    assert ask(client, turns, tools=[space]).output


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"},
                                    {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}])
def test_forced_calls(client, choice):
    call = only_call(ask(client, "Hello!", tools=[ADD] if choice == "required" else [WEATHER, ADD], tool_choice=choice,
                         parallel_tool_calls=False, reasoning=NO_THOUGHTS))
    arguments = json.loads(call.arguments)
    assert call.name == "add" and set(arguments) == {"a", "b"} and all(isinstance(value, int) for value in arguments.values())


def test_strict_calls_and_none(client):
    strict_tool = {**WEATHER, "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["place", "unit"],
        "properties": {"place": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius"]}}}}
    with client.responses.stream(model="quire-demo", input=QUESTION, tools=[strict_tool], temperature=0) as stream:
        call = only_call(stream.get_final_response())
    assert call.parsed_arguments["unit"] == "celsius"
    assert all(item.type != "function_call" for item in ask(client, tools=[WEATHER], tool_choice="none").output)


def test_a_schema_refused_by_its_place(client):
    tool = {**ADD, "parameters": {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[{"type": "web_search"}, tool], tool_choice="required")
    assert "tools[1].parameters" in caught.value.message


def test_a_schema_for_the_text(client):
    class Sum(pydantic.BaseModel):
        sum: int

    parsed = client.responses.parse(model="quire-demo", input="What is 12 + 30?", text_format=Sum, temperature=0,
                                    max_output_tokens=100)
    assert isinstance(parsed.output_parsed, Sum)
    schema = {"type": "json_schema", "name": "sum", "strict": True,
              "schema": {**Sum.model_json_schema(), "additionalProperties": False}}
    answer = ask(client, "What is 12 + 30? /think", text={"format": schema})
    assert answer.output[0].type == "reasoning" and set(json.loads(answer.output_text)) == {"sum"}
    assert isinstance(json.loads(ask(client, "Hi", text={"format": {"type": "json_object"}}).output_text), dict)


def test_reasoning(client):
    question = "What is 12 + 30? /think"
    answer = ask(client, question, reasoning={"effort": "high", "summary": "auto"})
    thought, message = answer.output
    assert thought.type == "reasoning" and thought.summary == [] and thought.encrypted_content is None
    assert thought.content[0].type == "reasoning_text" and thought.content[0].text
    assert message.type == "message" and "42" in answer.output_text and "<think>" not in answer.output_text
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens
    assert all(item.type != "reasoning" for item in ask(client, question, reasoning=NO_THOUGHTS).output)
    # It comes back as it is, or as what stands for it.
    sealed = ask(client, question, include=["reasoning.encrypted_content"]).output
    assert sealed[0].encrypted_content
    turns = [{"role": "user", "content": question}, *sealed, {"role": "user", "content": "What is 1 + 2?"}]
    assert "3" in ask(client, turns).output_text


def test_limits(client):
    cut = ask(client, "Tell me a story.", max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason, cut.output[-1].status) == ("incomplete", "max_output_tokens", "incomplete")
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, max_output_tokens=1_000_000)
    assert (caught.value.param, caught.value.code) == ("max_output_tokens", "context_length_exceeded")


def test_errors_become_the_package_s_exceptions(demo, client):
    def fails(kind=openai.BadRequestError, of=client, **fields):
        with pytest.raises(kind) as caught:
            of.responses.create(**{"model": "quire-demo", "input": "Hi", "max_output_tokens": 5, **fields})
        return caught.value

    assert fails(openai.AuthenticationError, of=demo.openai("wrong")).code == "invalid_api_key"
    assert fails(openai.NotFoundError, model="other").code == "model_not_found"
    for field, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True),
                         ("truncation", "auto"), ("prompt", {"id": "pmpt_1"})):
        error = fails(**{field: value})
        assert error.param == field and error.type == "invalid_request_error"
    assert "stored" in fails(previous_response_id="resp_1", stream=True).message
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]
    assert fails(input=image).param == "input[0].content[0].type"
    assert fails(input=[{"type": "item_reference", "id": "msg_1"}]).param == "input[0].type"
    assert fails(input="word " * 20000).code == "context_length_exceeded"
    assert fails(tools=[{"type": "web_search"}]).param == "tools"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")


def test_nothing_is_stored_whatever_was_asked(client):
    for store in ({}, {"store": True}, {"store": False}):
        answer = client.responses.create(model="quire-demo", input="Hi", max_output_tokens=2, **store)
        assert answer.to_dict()["store"] is False


def test_what_a_model_wrote_may_be_no_json(client):
    turns = [{"role": "user", "content": QUESTION},
             {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{\"city\": \"Par"},
             {"type": "function_call_output", "call_id": "call_1", "output": "bad arguments"}]
    assert client.responses.create(model="quire-demo", input=turns, tools=[WEATHER], max_output_tokens=4).output


@pytest.fixture(scope="module")
def long_demo(tmp_path_factory):
    with start_server("--disable-access-log", model=long_demo_model(tmp_path_factory.mktemp("models"))) as server:
        yield server


def test_an_agent_s_two_turns(long_demo):
    """Codex's way: 40 KB, tools of four types, the whole history again, another developer's message in the middle."""
    client = long_demo.openai()
    body = codex_body.first_turn("quire-demo")
    assert 38_000 < len(json.dumps(body)) < 50_000

    def turn(body):
        known = {key: value for key, value in body.items() if key != "client_metadata"}
        extra = {"client_metadata": body["client_metadata"]}  # the package has no argument for it
        events = list(strict(client.responses.create(**known, extra_body=extra)))
        kinds = [event.type for event in events]
        assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete")
        assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") >= 1
        done = [event.item.to_dict(mode="json") for event in events if event.type == "response.output_item.done"]
        assert done == [item.to_dict(mode="json") for item in events[-1].response.output]
        return events[-1].response, done

    first, output = turn(body)
    assert [tool.type for tool in first.tools].count("namespace") == 2 and len(first.tools) == 7
    second, _ = turn(codex_body.next_turn(body, output))
    assert second.usage.input_tokens > first.usage.input_tokens > 5000
    assert second.usage.input_tokens_details.cached_tokens > 0.95 * first.usage.input_tokens
    def told():
        return [line for line in long_demo.log if '"custom", "web_search"' in line and "left out" in line]

    long_demo.wait_until(lambda: len(told()) == 2)
