"""Bodies of the size and shape that Codex (0.169) sends to /v1/responses, in words of our own."""
import zlib

RULE = ("When you change files, keep to the style of what is there, say what you did in one line, and run the tests that "
        "belong to it before you say that you are done. ")
PLACES = ["the repository's root", "the folder of the file", "the user's home", "a folder for scratch work", "the shell's folder"]


def _schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)[:1], "additionalProperties": False}


def _text(words):
    return {"type": "string", "description": words}


def _function(name, description, **properties):
    return {"type": "function", "name": name, "description": description, "strict": False, "parameters": _schema(**properties)}


TOOLS = [
    _function("exec_command", "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
              cmd=_text("Shell command to execute."), workdir=_text("Working directory; defaults to the turn's."),
              yield_time_ms={"type": "number", "description": "How long to wait for output before yielding."},
              max_output_tokens={"type": "number", "description": "Excess output will be cut."}),
    _function("write_stdin", "Writes characters to an existing session and returns recent output.",
              session_id={"type": "number", "description": "Identifier of the running session."}, chars=_text("Bytes to write.")),
    {**_function("update_plan", "Updates the task plan. " + RULE * 4), "parameters": _schema(
        plan={"type": "array", "items": _schema(step=_text("One step."), status={"enum": ["pending", "in_progress", "completed"]})},
        explanation=_text("Why the plan has changed."))},
    _function("view_image", "Shows a local image.", path=_text("Local path to an image file.")),
    {"type": "custom", "name": "apply_patch", "description": "A free-form tool that edits files.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin Patch\" LF\nLF: /\\n/"}},
    {"type": "web_search", "external_web_access": False},
    {"type": "namespace", "name": "multi_agent", "description": "Tools for spawning and steering sub-agents.", "tools": [
        _function("spawn_agent", "Starts a sub-agent. " + RULE * 3, task=_text("What it is to do."), place=_text(", ".join(PLACES))),
        _function("send_message", "Sends a message to a sub-agent.", id=_text("Its id."), message=_text("The message.")),
        _function("wait_agent", "Waits for sub-agents.", ids={"type": "array", "items": {"type": "string"}})]},
    {"type": "namespace", "name": "mcp__files", "description": "Tools in the mcp__files namespace.", "tools": [
        _function(f"{verb}_file", f"{verb} a file. " + RULE, path=_text("Its path.")) for verb in ("read", "list", "move", "stat")]},
    _function("request_user_input", "Asks the user one to three short questions. " + RULE, questions={
        "type": "array", "items": _schema(id=_text("Stable identifier."), question=_text("One sentence."))}),
]


def _message(role, *texts):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "id": f"msg_{zlib.crc32(texts[0].encode()):08x}", "role": role,
            "content": [{"type": kind, "text": text} for text in texts]}


def first_turn(model, question="What is 123 + 456?"):
    """Some 40 KB: two developer's messages with rules, a user's with the surroundings, the question."""
    rules = "".join(f"{i}. {RULE}It holds for {PLACES[i % len(PLACES)]}.\n" for i in range(120))
    permissions = "<permissions instructions>\n" + RULE * 25 + "</permissions instructions>"
    guide = "# AGENTS.md instructions\n<INSTRUCTIONS>\n" + RULE * 30 + "\n</INSTRUCTIONS>"
    surroundings = "<environment_context>\n  <cwd>/home/user/project</cwd>\n  <shell>bash</shell>\n</environment_context>"
    return {
        "model": model,
        "input": [_message("developer", "You are a coding agent.\n" + rules), _message("developer", permissions),
                  _message("user", guide, surroundings), _message("user", question)],
        "tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True,
        "reasoning": {"summary": "auto"}, "store": False, "stream": True,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "01890a5d-ac96-774b-bcce-b302099a8057",
        "client_metadata": {"x-codex-installation-id": "4d1f1f2e-0000-4000-8000-000000000000"},
    }


def next_turn(body, output, result="1 file changed"):
    """The same with the answer's items as Codex gives them back (no ids, no text of reasoning that is sealed), a call of a
    tool in a namespace and its result, and another developer's message."""
    given_back = []
    for item in output:
        kept = {key: value for key, value in item.items() if key not in ("id", "status")}
        if kept["type"] == "reasoning":
            kept.pop("content", None)
        given_back.append(kept)
    call = {"type": "function_call", "name": "spawn_agent", "namespace": "multi_agent", "arguments": "{\"task\": \"look\"}",
            "call_id": "call_of_the_test"}
    return {**body, "input": [*body["input"], *given_back, call,
                              {"type": "function_call_output", "call_id": "call_of_the_test", "output": result},
                              _message("developer", "<collaboration_mode>default</collaboration_mode>"),
                              _message("user", "Go on.")]}
