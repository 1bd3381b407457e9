"""The Codex command line: it knows the Responses API alone.

The demo model does a task if the prompt is not longer than it was trained for; so the first test gives Codex a short system prompt and
switches off what would make it longer. The second leaves Codex as it is, with a model whose answers end at once: it is about the
protocol."""
from agents.agent import NOTES, Agent, version
from agents.recorder import Recorder

CLIENT = "codex " + version("@openai/codex")

# Commands run as they are: the folder is a temporary one, and the question says which command.
CONFIG = """
model = "quire-demo"
model_provider = "quire"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false
{more}
[analytics]
enabled = false
[features]
apps = false
plugins = false
{features}
[model_providers.quire]
name = "Quire"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
SHORT = """
model_instructions_file = "{home}/instructions.md"
include_permissions_instructions = false
include_environment_context = false
[agents]
enabled = false
[skills]
include_instructions = false
[skills.bundled]
enabled = false
"""
SHORT_FEATURES = "goals = false\ntool_suggest = false\nimage_generation = false\nunified_exec = true"


def codex(tmp_path, recorder, short):
    agent = Agent("codex", tmp_path)
    (agent.home / ".codex").mkdir()
    (agent.home / "instructions.md").write_text("You are helpful.\n")
    more = SHORT.format(home=agent.home) if short else ""
    (agent.home / ".codex/config.toml").write_text(CONFIG.format(url=recorder.url, more=more, features=SHORT_FEATURES if short else ""))
    return agent


def of_type(events, kind):
    return [event["item"] for event in events if event["type"] == "item.completed" and event["item"]["type"] == kind]


def test_task(greedy_server, tmp_path, keep):
    """It runs a command, reads what this printed, and ends."""
    with Recorder(greedy_server) as recorder:
        agent = codex(tmp_path, recorder, short=True)
        events = agent.run("exec", "--json", "--skip-git-repo-check", "Call the function exec_command with cmd = cat notes.")
    commands = of_type(events, "command_execution")
    assert len(commands) == 1, events
    [command] = commands
    assert command["exit_code"] == 0 and command["aggregated_output"] == NOTES
    assert "579" in of_type(events, "agent_message")[-1]["text"] and events[-1]["type"] == "turn.completed"
    first, second = recorder.turns()
    assert first.status == second.status == 200 and second.events()[-1]["type"] == "response.completed"
    call, result = second.body["input"][-2:]
    assert call["type"] == "function_call" and result["type"] == "function_call_output" and NOTES in result["output"]
    assert call["call_id"] == result["call_id"]
    usage = [exchange.events()[-1]["response"]["usage"] for exchange in (first, second)]
    assert usage[1]["input_tokens_details"]["cached_tokens"] > 0.9 * usage[0]["input_tokens"]
    keep("codex", agent, [exchange.body for exchange in recorder.seen if exchange.body])


def test_as_it_comes(long_server, tmp_path):
    """Its own prompt and tools, and a second question: the session begins where it ended."""
    with Recorder(long_server) as recorder:
        agent = codex(tmp_path, recorder, short=False)
        runs = [agent.run("exec", *more, "--json", "--skip-git-repo-check", question)
                for more, question in (((), "What is 123 + 456?"), (("resume", "--last"), "Go on."))]
    assert [events[-1]["type"] for events in runs] == ["turn.completed"] * 2
    assert all(exchange.status == 200 for exchange in recorder.turns())
    used = [events[-1]["usage"] for events in runs]
    assert used[0]["input_tokens"] > 5000
    last = recorder.turns()[-1].events()[-1]["response"]["usage"]
    assert last["input_tokens_details"]["cached_tokens"] > 0.9 * used[0]["input_tokens"]
