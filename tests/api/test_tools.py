"""Tool calls and reasoning of the demo model, through the openai package: whole and streamed."""
import json

import pytest

from conftest import ROOT, start_server

DEMO = ROOT / "models/quire-demo"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather for a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The name of the city"}},
                   "required": ["city"]}}}
ADD = {"type": "function", "function": {
    "name": "add", "description": "Add two numbers",
    "parameters": {"type": "object", "additionalProperties": False, "required": ["a", "b"],
                   "properties": {"a": {"type": "integer", "description": "The first number"},
                                  "b": {"type": "integer", "description": "The second number"}}}}}
QUESTION = "What is the weather in Paris?"
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "sum", "schema": {
    "type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}}}


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", model=DEMO) as server:
        yield server


def plain(message):
    """What a message holds, without the ids of its calls."""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    reasoning = getattr(message, "reasoning_content", None)
    assert reasoning == getattr(message, "reasoning", None)
    return message.content or None, calls, reasoning or None


def joined(chunks):
    """(content, calls, reasoning, finish reason) of a stream, as clients put it together."""
    content, reasoning, calls, ids, finish = "", "", {}, [], None
    for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            content += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                if call.id:
                    assert call.type == "function" and call.index == len(calls)
                    ids.append(call.id)
                    calls[call.index] = [call.function.name, ""]
                calls[call.index][1] += call.function.arguments or ""
            finish = choice.finish_reason or finish
    assert len(set(ids)) == len(calls)
    return content or None, [tuple(call) for call in calls.values()], reasoning or None, finish


def ask(demo, question=QUESTION, **fields):
    """The answer, which is the same streamed."""
    messages = question if isinstance(question, list) else [{"role": "user", "content": question}]
    fields = {"model": "quire-demo", "messages": messages, "temperature": 0, "max_tokens": 200, **fields}
    client = demo.openai().chat.completions
    whole = client.create(**fields)
    choice = whole.choices[0]
    assert joined(client.create(stream=True, **fields)) == (*plain(choice.message), choice.finish_reason)
    return whole


def only_call(answer):
    (call,) = answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "tool_calls"
    return call.function.name, json.loads(call.function.arguments)


def test_a_call_and_its_result(demo):
    answer = ask(demo, tools=[WEATHER])
    assert only_call(answer) == ("get_weather", {"city": "Paris"})
    assert answer.choices[0].message.content is None
    result = {"role": "tool", "tool_call_id": answer.choices[0].message.tool_calls[0].id,
              "content": json.dumps({"city": "Paris", "temperature": 21, "condition": "sunny"})}
    turn = [{"role": "user", "content": QUESTION}, answer.choices[0].message.model_dump(exclude_none=True), result]
    last = ask(demo, turn, tools=[WEATHER])
    assert "sunny" in last.choices[0].message.content and last.choices[0].finish_reason == "stop"


def test_no_tools_no_calls(demo):
    assert not ask(demo).choices[0].message.tool_calls
    assert not ask(demo, tools=[WEATHER], tool_choice="none").choices[0].message.tool_calls


def test_a_cut_call_says_length(demo):
    answer = ask(demo, tools=[WEATHER], max_tokens=16)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}},
                                    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                                        {"type": "function", "function": {"name": "add"}}]}}])
def test_forced_calls(demo, choice):
    """A question that has nothing to do with the tool: the call comes all the same, as its schema says. (A model that
    may think would do so first: this one thinks without an end where it was not trained to.)"""
    tools = [ADD] if choice == "required" else [WEATHER, ADD]
    name, arguments = only_call(ask(demo, "Hello!", tools=tools, tool_choice=choice, parallel_tool_calls=False,
                                     extra_body={"enable_thinking": False}))
    assert name == "add" and set(arguments) == {"a", "b"}
    assert all(isinstance(value, int) for value in arguments.values())


def test_strict_calls_keep_their_schema(demo):
    strict = json.loads(json.dumps(WEATHER))
    strict["function"]["strict"] = True
    strict["function"]["parameters"] = {"type": "object", "additionalProperties": False, "required": ["place", "unit"],
                                        "properties": {"place": {"type": "string", "maxLength": 20},
                                                       "unit": {"enum": ["celsius"]}}}
    name, arguments = only_call(ask(demo, tools=[strict]))
    assert name == "get_weather" and arguments["unit"] == "celsius" and set(arguments) == {"place", "unit"}
    assert not ask(demo, "Tell me a story.", tools=[strict], max_tokens=40).choices[0].message.tool_calls


def test_forced_calls_need_tools_that_are_there(demo):
    for fields in ({"tool_choice": "required"}, {"tools": [ADD], "tool_choice": "always"},
                   {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "other"}}}):
        assert demo.chat(**fields).status == 400, fields
    refused = demo.chat(tools=[{"type": "function", "function": {
        "name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}}}],
                        tool_choice="required").error()
    assert "tools[0].function.parameters" in refused["message"]


def test_reasoning(demo):
    answer = ask(demo, "What is 12 + 30? /think")
    message = answer.choices[0].message
    assert message.reasoning and "<think>" not in message.content and "42" in message.content
    details = answer.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < answer.usage.completion_tokens
    without = ask(demo, "What is 12 + 30? /think", extra_body={"include_reasoning": False})
    assert without.choices[0].message.content == message.content
    assert getattr(without.choices[0].message, "reasoning", None) is None
    raw = ask(demo, "What is 12 + 30? /think", extra_body={"separate_reasoning": False})
    assert raw.choices[0].message.content.startswith("<think>")


def test_a_form_begins_after_the_thinking(demo):
    answer = ask(demo, "What is 12 + 30? /think", response_format=JSON_SCHEMA)
    assert answer.choices[0].message.reasoning
    # The model's own text would be "12 + 30 = 42"; blanks in JSON have no bound.
    assert answer.choices[0].message.content.startswith("{\"sum\"")


def test_a_thinking_budget(demo):
    long = ask(demo, "What is 12 + 30? /think").usage.completion_tokens_details.reasoning_tokens
    answer = ask(demo, "What is 12 + 30? /think", extra_body={"thinking_token_budget": 4})
    assert answer.usage.completion_tokens_details.reasoning_tokens <= 4 < long
    assert answer.choices[0].message.content


def test_a_form_or_a_call(demo):
    """With tools and a form an answer is one of the two."""
    assert only_call(ask(demo, tools=[WEATHER], response_format=JSON_SCHEMA)) == ("get_weather", {"city": "Paris"})


def test_history_that_is_not_json(demo):
    broken = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Par"}}]}
    turn = [{"role": "user", "content": QUESTION}, broken,
            {"role": "tool", "tool_call_id": "call_1", "content": "bad arguments"}]
    assert demo.post("/v1/chat/completions", {"messages": turn, "tools": [WEATHER], "max_tokens": 4}).status == 200


def test_parsers_can_be_switched_off_and_misspelt():
    with start_server("--tool-call-parser", "none", "--reasoning-parser", "none", model=DEMO) as server:
        answer = ask(server, tools=[WEATHER])
        assert answer.choices[0].message.content.startswith("<tool_call>")
    with pytest.raises(Exception):
        with start_server("--tool-call-parser", "hermess", model=DEMO):
            pass


def tool(name="f", **parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_schemas_of_tools_stay_apart(demo):
    """Each description would name the next tool's schema 20 times, if such marks counted there."""
    tools = [tool(f"t{i}", type="object", description=f"%schema_{i + 1}%" * 20 + "\u00010\u0001") for i in range(6)]
    answer = demo.chat(tools=[*tools, tool("last")], tool_choice="required", max_tokens=4)
    assert answer.status == 200, answer.body


def test_references_of_tools_that_multiply_cost_little(demo):
    many = {"anyOf": [{"$ref": "#/d"}] * 1200}
    bomb = tool(type="object", d=many, properties={f"p{i}": {"$ref": "#/d"} for i in range(1500)})
    assert demo.chat(tools=[bomb], max_tokens=2).status in (200, 400)  # within the client's two minutes


def test_tools_that_no_call_could_name(demo):
    for name in ('a"b', "a\nb", "a\\b", "<a>", "a" * 257):
        answer = demo.chat(tools=[tool(name)], max_tokens=2)
        assert answer.status == 400 and answer.error()["param"] == "tools[0].function.name", answer.body
    for schema in ({"type": "string"}, {"type": ["null"]}):
        answer = demo.chat(tools=[tool(**schema)], max_tokens=2)
        assert answer.status == 400 and answer.error()["param"] == "tools[0].function.parameters", answer.body
