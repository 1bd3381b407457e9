"""pydantic-ai, which checks every answer strictly."""
import importlib.metadata

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from conftest import MODEL

CLIENT = "pydantic-ai " + importlib.metadata.version("pydantic-ai-slim")
QUESTION = "What is 123 + 456?"
SETTINGS = {"temperature": 0, "max_tokens": 200}


class Sum(BaseModel):
    a: int
    b: int


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel], ids=["chat", "responses"])
def model(request, base_url):
    return request.param(MODEL, provider=OpenAIProvider(base_url=base_url, api_key="none"))


def test_text(model):
    assert "579" in Agent(model, model_settings=SETTINGS).run_sync(QUESTION).output


def test_tool_output(model):
    agent = Agent(model, output_type=ToolOutput(Sum, name="add"), model_settings=SETTINGS, retries=0)
    assert agent.run_sync(QUESTION).output == Sum(a=123, b=456)


def test_native_output(model):
    agent = Agent(model, output_type=NativeOutput(Sum), model_settings=SETTINGS, retries=0)
    assert isinstance(agent.run_sync(QUESTION).output, Sum)


async def test_stream(model):
    async with Agent(model, model_settings=SETTINGS).run_stream(QUESTION) as answer:
        assert "579" in await answer.get_output()
