"""Codex and OpenCode with the configurations of docs/serving.md, as they stand there but for the server's address and the model's
name."""
import re

from agents.agent import Agent, version
from agents.recorder import Recorder
from conftest import ROOT
from test_opencode import QUIET

CLIENT = f"the guide's agents: codex {version('@openai/codex')}, opencode {version('opencode-ai')}"


def block(language, url):
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs/serving.md").read_text(), re.M | re.S)
    for old, new in (("http://127.0.0.1:8000", url), ("Qwen/Qwen3-0.6B", "quire-demo")):
        assert old in text
        text = text.replace(old, new)
    return text


def test_codex(long_server, tmp_path):
    with Recorder(long_server) as recorder:
        agent = Agent("codex", tmp_path, LLM_KEY="none")
        (agent.home / ".codex").mkdir()
        (agent.home / ".codex/config.toml").write_text(block("toml", recorder.url))
        events = agent.run("exec", "--json", "--skip-git-repo-check", "Hello")
    assert events[-1]["type"] == "turn.completed", events
    assert recorder.turns() and all(exchange.status == 200 for exchange in recorder.turns())


def test_opencode(long_server, tmp_path):
    with Recorder(long_server) as recorder:
        agent = Agent("opencode", tmp_path, **QUIET)
        (agent.work / "opencode.json").write_text(block("json", recorder.url))
        events = agent.run("run", "--format", "json", "Hello")
    assert [event for event in events if event["type"] == "step_finish"], events
    assert not [event for event in events if event["type"] == "error"]
    assert recorder.turns() and all(exchange.status == 200 for exchange in recorder.turns())
