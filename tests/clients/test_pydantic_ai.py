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
    assert agent.run_sync("Make a JSON object with a = 123 and b = 456.").output == Sum(a=123, b=456)


def test_function_tool(model):
    """It calls the function, and its answer has what this gave."""
    agent = Agent(model, model_settings=SETTINGS, retries=0)
    calls = []

    @agent.tool_plain
    def get_weather(city: str) -> dict:
        """Get the weather for a city"""
        calls.append(city)
        return {"city": city, "temperature": 7, "condition": "rainy"}

    assert "rainy" in agent.run_sync("What is the weather in Paris?").output and calls == ["Paris"]


async def test_stream(model):
    async with Agent(model, model_settings=SETTINGS).run_stream(QUESTION) as answer:
        assert "579" in await answer.get_output()
