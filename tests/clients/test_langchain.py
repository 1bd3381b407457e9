"""langchain-openai."""
import importlib.metadata
import json

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from conftest import MODEL

CLIENT = "langchain-openai " + importlib.metadata.version("langchain-openai")
QUESTION = "What is 123 + 456?"


class Sum(BaseModel):
    """Two numbers to add."""

    a: int
    b: int


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def get_weather(city: str) -> str:
    """Get the weather for a city"""
    return json.dumps({"city": city, "temperature": 7, "condition": "rainy"})


@pytest.fixture(scope="module")
def chat(base_url):
    return ChatOpenAI(model=MODEL, base_url=base_url, api_key="none", temperature=0, max_retries=0, max_tokens=200)


def test_invoke(chat):
    answer = chat.invoke(QUESTION)
    assert "579" in answer.content and answer.usage_metadata["output_tokens"] > 0


def test_stream(chat):
    assert "579" in "".join(chunk.content for chunk in chat.stream(QUESTION))


@pytest.mark.parametrize("choice", ["any", "add"])
def test_bind_tools(chat, choice):
    [call] = chat.bind_tools([add], tool_choice=choice).invoke(QUESTION).tool_calls
    assert call["name"] == "add" and call["args"] == {"a": 123, "b": 456}


def test_bind_tools_auto(chat):
    """It chooses to call, and reads the result."""
    asked = [HumanMessage("What is the weather in Paris?")]
    bound = chat.bind_tools([get_weather], tool_choice="auto")
    answer = bound.invoke(asked)
    [call] = answer.tool_calls
    assert call["args"] == {"city": "Paris"}
    assert "rainy" in bound.invoke([*asked, answer, get_weather.invoke(call)]).content


def test_stream_of_tool_chunks(chat):
    whole = None
    for chunk in chat.bind_tools([add], tool_choice="any").stream(QUESTION):
        whole = chunk if whole is None else whole + chunk
    assert [call["args"] for call in whole.tool_calls] == [{"a": 123, "b": 456}]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output(chat, method):
    question = QUESTION if method == "function_calling" else "Make a JSON object with a = 123 and b = 456."
    answer = chat.with_structured_output(Sum, method=method, include_raw=True).invoke(question)
    assert answer["parsed"] == Sum(a=123, b=456), answer


def test_embeddings(base_url):
    embeddings = OpenAIEmbeddings(model=MODEL, base_url=base_url, api_key="none", check_embedding_ctx_length=False)
    assert len(embeddings.embed_documents(["a fig", "a pear"])) == 2
    assert embeddings.embed_query("a fig") == pytest.approx(embeddings.embed_documents(["a fig"])[0])
