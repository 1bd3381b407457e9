"""soak.py and chaos.py in a few seconds each, so that they go on working and find what is found at once."""
import asyncio
import os

import pytest

import chaos
import kinds
import clients
import soak

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")


def test_soak():
    for answers, kills in soak.main(["--minutes", "0.1", "--active", "24", "--idle", "200", "--each", "1"]):
        assert answers > 0 and kills > 0 and answers + kills >= 24  # each client has done something


@pytest.mark.parametrize("model, configurations", [(0, ["all at once"]), (1, ["small chunks", "tight memory"])])
def test_chaos(model, configurations):
    chaos.main(["--seconds", "1", "--each", "1", "--clients", "12", "--models", soak.MODELS[model], "--configurations",
                *configurations])


def test_there_are_enough_kinds_and_configurations():
    assert len(kinds.kinds()) >= 32 and len(chaos.CONFIGURATIONS) >= 10


def test_a_slow_machine_warms_up_for_longer():
    seconds = []

    async def load(some_seconds):
        seconds.append(some_seconds)
        return soak.WARM_UP_ANSWERS // 3, 7

    answers, kills = asyncio.run(soak.warm_up(load))
    assert answers >= soak.WARM_UP_ANSWERS and kills == 7 * len(seconds) == 28


def test_slope_is_least_squares():
    assert clients.slope_per_minute([(t, 3 * t + 7) for t in (0, 1, 5, 9)]) == pytest.approx(180)


def test_an_answer_in_a_stream_is_its_chunks_joined():
    request = kinds.Request("stream", "/", {"stream": True})
    chunks = ['{"id": 1, "choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"]}, "finish_reason": null}]}',
              '{"id": 2, "choices": [{"index": 0, "text": "b", "logprobs": {"tokens": ["b"]}, "finish_reason": "stop"}]}', "[DONE]"]
    answer = kinds.answer_of(request, "".join(f"data: {chunk}\n\n" for chunk in chunks).encode())
    assert answer["choices"][0]["text"] == "ab" and answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["logprobs"] == {"tokens": ["a", "b"]}
