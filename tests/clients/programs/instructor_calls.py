"""instructor, which has an environment of its own: BASE_URL MODEL. Prints a line of JSON for each call: {"call", "error"}."""
import json
import sys
import traceback

import instructor
import openai
import pydantic

base_url, model = sys.argv[1:]


class Sum(pydantic.BaseModel):
    a: int
    b: int


class Person(pydantic.BaseModel):
    name: str
    age: int


def ask(mode, kind, question, **more):
    client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="none", max_retries=0), mode=instructor.Mode[mode])
    return client.chat.completions.create(model=model, response_model=kind, max_retries=0, temperature=0, max_tokens=200,
                                          messages=[{"role": "user", "content": question}], **more)


def tools():
    assert ask("TOOLS", Sum, "What is 123 + 456?").model_dump() == {"a": 123, "b": 456}


def tools_strict():
    assert ask("TOOLS_STRICT", Sum, "What is 123 + 456?").model_dump() == {"a": 123, "b": 456}


def json_schema():
    answer = ask("JSON_SCHEMA", Person, "Write a JSON object with name Anna and age 31.")
    assert answer.model_dump() == {"name": "Anna", "age": 31}, answer


def stream_of_parts():
    parts = list(ask("TOOLS", instructor.Partial[Sum], "What is 123 + 456?", stream=True))
    assert len(parts) > 1 and (parts[-1].a, parts[-1].b) == (123, 456), parts


for call in (tools, tools_strict, json_schema, stream_of_parts):
    try:
        call()
        print(json.dumps({"call": call.__name__}), flush=True)
    except Exception:
        print(json.dumps({"call": call.__name__, "error": traceback.format_exc()}), flush=True)
