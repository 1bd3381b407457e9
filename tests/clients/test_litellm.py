"""litellm: its openai and hosted_vllm providers, its bridge to Anthropic's API, its Responses API."""
import importlib.metadata
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its table of prices comes with it: nothing is fetched
import litellm  # noqa: E402
import pytest  # noqa: E402

from conftest import MODEL  # noqa: E402

CLIENT = "litellm " + importlib.metadata.version("litellm")
QUESTION = [{"role": "user", "content": "What is 123 + 456?"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}
litellm.telemetry = False


def providers(server):
    return {"openai": server.url + "/v1", "hosted_vllm": server.url + "/v1", "anthropic": server.url}


def ask(server, provider, **fields):
    return litellm.completion(model=f"{provider}/{MODEL}", api_base=providers(server)[provider], api_key="none",
                              messages=QUESTION, temperature=0, max_tokens=200, num_retries=0, **fields)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_chat(server, provider):
    assert "579" in ask(server, provider).choices[0].message.content


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_stream(server, provider):
    chunks = list(ask(server, provider, stream=True))
    assert "579" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_tools(server, provider):
    answer = ask(server, provider, tools=[ADD], tool_choice="required")
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "add" and "123" in call.function.arguments


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_too_long_is_its_own_exception(server, provider):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(model=f"{provider}/{MODEL}", api_base=providers(server)[provider], api_key="none", num_retries=0,
                           max_tokens=5, messages=[{"role": "user", "content": "apple " * 20000}])


def test_responses(server):
    answer = litellm.responses(model=f"openai/{MODEL}", api_base=server.url + "/v1", api_key="none",
                               input="What is 123 + 456?", temperature=0)
    assert "579" in "".join(part.text for item in answer.output if item.type == "message" for part in item.content)


def test_embeddings(server):
    answer = litellm.embedding(model=f"hosted_vllm/{MODEL}", api_base=server.url + "/v1", api_key="none",
                               input=["a fig", "a pear"])
    assert len(answer.data) == 2
