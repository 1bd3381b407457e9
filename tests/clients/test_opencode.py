"""OpenCode, through its provider for servers that speak OpenAI's chat API.

As with Codex: a task with a prompt that the demo model was trained for, then OpenCode as it is, which is about the protocol."""
import json

from agents.agent import Agent, version
from agents.recorder import Recorder

CLIENT = "opencode " + version("opencode-ai")

# What it would fetch when it starts: updates, lists of models, plugins, language servers.
QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
         "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_PURE": "1", "npm_config_offline": "true"}


def opencode(tmp_path, recorder, context):
    agent = Agent("opencode", tmp_path, **QUIET)
    demo = {"name": "demo", "temperature": True, "limit": {"context": context, "output": 200}}
    config = {
        "share": "disabled", "autoupdate": False, "enabled_providers": ["quire"], "model": "quire/quire-demo",
        "small_model": "quire/quire-demo", "permission": {"*": "allow"},
        "provider": {"quire": {"npm": "@ai-sdk/openai-compatible", "name": "Quire", "api": recorder.url + "/v1",
                               "options": {"apiKey": "none"}, "models": {"quire-demo": demo}}},
        "agent": {"reader": {"mode": "primary", "prompt": "Be kind.", "temperature": 0, "tools": {"*": False, "read": True}}}}
    (agent.work / "opencode.json").write_text(json.dumps(config))
    return agent


def of_type(events, kind):
    return [event["part"] for event in events if event["type"] == kind]


def test_task(greedy_server, tmp_path, keep):
    """It reads a file, is told what is in it, and ends."""
    with Recorder(greedy_server) as recorder:
        agent = opencode(tmp_path, recorder, 2048)
        events = agent.run("run", "--format", "json", "--agent", "reader", *"Call the function read with filePath = notes.".split())
    [use] = of_type(events, "tool_use")
    assert use["tool"] == "read" and use["state"]["status"] == "completed" and "579" in use["state"]["output"]
    assert "579" in of_type(events, "text")[-1]["text"]
    assert [step["reason"] for step in of_type(events, "step_finish")] == ["tool-calls", "stop"]
    first, second = recorder.turns()
    assert first.status == second.status == 200
    call, result = second.body["messages"][-2:]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] and result["role"] == "tool" and "579" in result["content"]
    usage = [exchange.events()[-1]["usage"] for exchange in (first, second)]
    assert usage[1]["prompt_tokens_details"]["cached_tokens"] > 0.9 * usage[0]["prompt_tokens"]
    keep("opencode", agent, [exchange.body for exchange in recorder.seen if exchange.body])


def test_as_it_comes(long_server, tmp_path):
    """Its own prompt and tools, and a second question: the session begins where it ended."""
    with Recorder(long_server) as recorder:
        agent = opencode(tmp_path, recorder, 32768)
        runs = [agent.run("run", "--format", "json", *more, question) for more, question in (((), "Hello"), (("--continue",), "Again"))]
    assert all(of_type(events, "step_finish") for events in runs), runs
    assert not [event for events in runs for event in events if event["type"] == "error"]
    turns = recorder.turns()
    assert len(turns) >= 2 and all(exchange.status == 200 for exchange in turns)
    first, last = (exchange.events()[-1]["usage"] for exchange in (turns[0], turns[-1]))
    assert first["prompt_tokens"] > 3000
    assert last["prompt_tokens_details"]["cached_tokens"] > 0.9 * first["prompt_tokens"]
