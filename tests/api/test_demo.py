"""The demo model through the HTTP API: it must be right, and right under load."""
import concurrent.futures
import json
import sys

import pytest

from conftest import ROOT, start_server

sys.path.insert(0, str(ROOT / "tools/demo_model"))
import evaluate  # noqa: E402

DEMO = ROOT / "models/quire-demo"
COUNT = 200


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", model=DEMO) as server:
        yield server


def answers(server, items, concurrency):
    client = server.openai()

    def ask(item):
        answer = client.chat.completions.create(model="quire-demo", messages=item[0], temperature=0, max_tokens=80)
        return answer.choices[0].message.content

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(ask, items))


def test_held_out_additions_at_concurrency_16(demo):
    """At least 95 % of additions that were kept out of training are right, and no answer depends on the load."""
    items = evaluate.items_of("additions", 2026, COUNT)
    loaded = answers(demo, items, 16)
    right = sum(judge(text) for (_, _, judge, _), text in zip(items, loaded))
    assert right >= 0.95 * COUNT, f"{right} of {COUNT}"
    assert loaded == answers(demo, items, 1)


def test_json_schema_is_kept(demo):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    for stream in (False, True):
        answer = demo.openai().chat.completions.create(
            model="quire-demo", messages=[{"role": "user", "content": "Give me a JSON object with name and age."}],
            temperature=0, max_tokens=100, stream=stream,
            response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}})
        if stream:
            chunks = [chunk.choices[0] for chunk in answer if chunk.choices]
            text, reason = "".join(c.delta.content or "" for c in chunks), chunks[-1].finish_reason
        else:
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        value = json.loads(text)
        assert set(value) == {"name", "age"} and isinstance(value["age"], int)
        assert reason == "stop"


def test_second_turn_reads_the_first_from_the_cache(demo):
    messages = [{"role": "user", "content": "My secret word is plum. " * 20},
                {"role": "assistant", "content": "Okay."}, {"role": "user", "content": "What is my secret word?"}]
    client = demo.openai()
    client.chat.completions.create(model="quire-demo", messages=messages[:1], temperature=0, max_tokens=4)
    answer = client.chat.completions.create(model="quire-demo", messages=messages, temperature=0, max_tokens=20)
    assert answer.usage.prompt_tokens_details.cached_tokens >= 64
    assert "plum" in answer.choices[0].message.content
