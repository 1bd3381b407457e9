"""/v1/chat/completions through the openai package and as plain JSON."""
import json
import re

import pytest

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
EXTRA = {"ignore_eos": True}


def test_openai_client(client, model):
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=5, extra_body=EXTRA)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 5


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 4, "n": 2}, {"seed": 5, "stop": ["e", "o"]}])
def test_stream_equals_whole(client, model, fields):
    fields = {"max_tokens": 48, "extra_body": EXTRA, **fields}
    whole = client.chat.completions.create(model=model, messages=MESSAGES, **fields)
    texts, reasons, roles, usage = {}, {}, [], None
    for chunk in client.chat.completions.create(model=model, messages=MESSAGES, stream=True,
                                                stream_options={"include_usage": True}, **fields):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason
            if choice.delta.role:
                roles.append((choice.index, choice.delta.role))
        usage = chunk.usage or usage
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert reasons[choice.index] == choice.finish_reason
    assert sorted(roles) == [(choice.index, "assistant") for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_logprobs(client, model):
    answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=6, logprobs=True,
                                            top_logprobs=3, temperature=0, extra_body=EXTRA)
    content = answer.choices[0].logprobs.content
    assert len(content) == 6
    for entry in content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
    assert b"".join(bytes(entry.bytes) for entry in content).decode(errors="replace").startswith(
        answer.choices[0].message.content[:1])
    plain = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=2, extra_body=EXTRA)
    assert plain.choices[0].logprobs is None


def test_max_completion_tokens_and_default(server, max_len):
    assert server.chat(max_tokens=None, max_completion_tokens=3).json()["usage"]["completion_tokens"] == 3
    usage = server.chat(max_tokens=None).json()["usage"]
    assert usage["total_tokens"] == max_len  # without a limit the context is one


def test_tokenize_agrees_with_the_prompt(server):
    tokens = server.post("/tokenize", {"messages": MESSAGES}).json()["tokens"]
    answer = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1, "return_token_ids": True})
    assert answer.json()["prompt_token_ids"] == tokens
    assert answer.json()["usage"]["prompt_tokens"] == len(tokens)
    text = server.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert "Be brief." in text and "Hello" in text


def test_continue_final_message(server):
    messages = MESSAGES + [{"role": "assistant", "content": "Sure, "}]
    fields = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    tokens = server.post("/tokenize", fields).json()["tokens"]
    assert server.post("/detokenize", {"tokens": tokens}).json()["prompt"].endswith("Sure, ")
    answer = server.chat(**fields, echo=True, temperature=0).json()["choices"][0]["message"]["content"]
    assert answer.startswith("Sure, ")
    assert answer[6:] == server.chat(**fields, temperature=0).json()["choices"][0]["message"]["content"]


def test_content_parts(server):
    parts = [{"type": "text", "text": "Hello"}]
    tokens = [server.post("/tokenize", {"messages": [{"role": "user", "content": content}]}).json()["tokens"]
              for content in ("Hello", parts)]
    assert tokens[0] == tokens[1]
    image = server.chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    assert image.status == 400 and image.error()["param"] == "messages[0].content[0].type"


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_json_schema(server, seed, stream):
    # A model without sense would fill the space with white space, which JSON allows everywhere.
    bias = {id: -100 for text in (" ", "\n", "\t", "\r", "  ", "    ", "\n\n", " \n")
            for id in server.post("/tokenize", {"prompt": text}).json()["tokens"]}
    answer = server.chat(seed=seed, temperature=1, max_tokens=200, ignore_eos=False, stream=stream, response_format={
        "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}, logit_bias=bias)
    assert answer.status == 200, answer.body
    if stream:
        choices = [event["choices"][0] for event in answer.events()]
        text, reason = "".join(c["delta"]["content"] for c in choices), choices[-1]["finish_reason"]
    else:
        choice = answer.json()["choices"][0]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    person = json.loads(text)
    assert set(person) == {"name", "age"} and isinstance(person["name"], str) and 0 <= person["age"] <= 99
    assert reason == "stop"


JSON_GBNF = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def test_gbnf(server):
    def text(**fields):
        return server.chat(max_tokens=100, ignore_eos=False, **fields).json()["choices"][0]["message"]["content"]

    for seed in range(6):
        answer = server.chat(max_tokens=200, ignore_eos=False, temperature=1, seed=seed, grammar=JSON_GBNF).json()
        choice = answer["choices"][0]
        assert choice["message"]["content"].startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)
    moves = 'root ::= ("1. " move " " move "\\n")\nmove ::= [a-h] [1-8]  # a square'
    for field in ({"grammar": moves}, {"structured_outputs": {"grammar": moves}}):
        assert re.fullmatch("1[.] [a-h][1-8] [a-h][1-8]\n", text(**field))
    error = server.chat(grammar='root ::= "a"\nother ::= [z-a]').error()
    assert error["param"] == "grammar" and "line 2, column" in error["message"]


def test_structural_tags(server):
    """Free text, and after each trigger a tag whose content follows its schema: both forms that vLLM reads."""
    letters, schema = "abcdefghijklmnopqrstuvwxyz", {"enum": [1, 22]}
    content = {"type": "json_schema", "json_schema": schema}
    old = {"type": "structural_tag", "triggers": list(letters),
           "structures": [{"begin": letter, "schema": schema, "end": "!"} for letter in letters]}
    tags = [{"type": "tag", "begin": letter, "content": content, "end": "!"} for letter in letters]
    new = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": list(letters), "tags": tags}}
    found = 0
    for seed, fields in enumerate([{"response_format": old}, {"response_format": new},
                                   {"structured_outputs": {"structural_tag": json.dumps(new)}}]):
        text = server.chat(max_tokens=60, temperature=1, seed=seed, **fields).json()["choices"][0]["message"]["content"]
        assert re.fullmatch(r"(?s:[^a-z]|[a-z](1|22)!)*([a-z](1|22?)?)?", text), text
        found += len(re.findall("[a-z]", text))
    assert found > 3
    once = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "regex", "pattern": "[a-c]{3}/"}, tags[0], {"type": "const_string", "value": "?"}]}}
    choice = server.chat(max_tokens=60, ignore_eos=False, response_format=once).json()["choices"][0]
    assert re.fullmatch(r"[a-c]{3}/a(1|22)![?]", choice["message"]["content"]) and choice["finish_reason"] == "stop"
    error = server.chat(response_format={"type": "structural_tag", "format": {"type": "any_text", "excludes": []}}).error()
    assert error["param"] == "response_format" and "response_format.format.excludes is not supported" in error["message"]


def test_choices_and_regex(server):
    for seed in range(4):
        choice = server.completion(seed=seed, temperature=1, max_tokens=40, ignore_eos=False,
                                   guided_choice=["red", "green", "blue"]).json()["choices"][0]
        assert choice["text"] in ("red", "green", "blue") and choice["finish_reason"] == "stop"
        digits = server.completion(seed=seed, temperature=1, max_tokens=40, ignore_eos=False,
                                   structured_outputs={"regex": "[0-9]{3}-[0-9]{2}"}).json()["choices"][0]
        assert len(digits["text"]) == 6 and digits["text"].replace("-", "").isdigit()


def test_bad_grammars_are_refused(server):
    for field, value in [("guided_regex", "((("), ("guided_grammar", "nonsense ::= ("), ("grammar", "start: x"),
                         ("guided_json", {"type": "nonsense"}), ("guided_json", "{"),
                         ("guided_grammar", "start: " + "(" * 60000)]:
        answer = server.completion(**{field: value})
        assert answer.status == 400, (field, value)
        assert answer.error()["param"] == field
    assert server.completion().status == 200


def test_grammars_that_take_too_long_are_refused(server):
    """Before it runs, or while it does: the client's error either way, and one that says so."""
    ambiguous = "start: e\ne: e e e e | e e e | e e | T\nT: /[a-z ]/\n"
    answer = server.completion(guided_grammar=ambiguous, max_tokens=200, n=16, temperature=1, seed=1)
    assert answer.status == 400, answer.body
    assert "the grammar takes too long" in answer.error()["message"]
    assert answer.error()["param"] == "guided_grammar"
    assert server.completion().status == 200


def test_unsupported_schema_keywords_are_named_by_their_path(server):
    schema = {"type": "object", "properties": {"a": {"type": "string", "contentEncoding": "base64"}}}
    answer = server.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert answer.status == 400
    assert answer.error()["message"] == ("response_format.json_schema.schema.properties.a.contentEncoding: "
                                         "the keyword `contentEncoding` is not supported")
    wrong = {"required": True, "pattern": "(", "properties": [], "enum": "a", "anyOf": {}, "items": 5, "minLength": "1",
             "multipleOf": 1e9}
    for keyword, value in wrong.items():
        answer = server.completion(guided_json={"properties": {"a": {keyword: value}}})
        assert answer.status == 400, keyword
        assert answer.error()["message"].startswith(f"guided_json.properties.a.{keyword}: "), answer.body
    notes = {"title": "t", "description": "d", "default": {}, "examples": [{}], "deprecated": False, "type": "object"}
    assert server.completion(guided_json=notes, max_tokens=2).status == 200


def test_tools_reach_the_template(server):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    # This model's template does not show tools: to drop them would be an answer to another question.
    assert server.chat(tools=tools, tool_choice="auto").error()["param"] == "tools"
    assert server.chat(tools=tools, tool_choice="none").status == 200
    assert server.chat(tools=tools, tool_choice="required").error()["param"] == "tools"
