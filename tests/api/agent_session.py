#!/usr/bin/env python3
"""Writes a session of a coding agent and its two sub-agents, for `quire replay`: the requests that Claude Code (/v1/messages),
OpenCode (/v1/chat/completions) and Codex (/v1/responses) would send, in words of our own. The same for the same arguments.

What is in it that prefix caches meet: a billing line that differs with each request, the time of day in the newest message and,
now and then, in a system prompt; thinking that is taken out of older turns; old results of tools that are cleared; three
conversations that take turns."""
import argparse
import datetime
import json
import random
import sys

import codex_body

START = datetime.datetime(2026, 1, 5, 9, 0)
RULES = ["Read a file before you change it.", "Say what you did in one line.", "Never touch what the task does not name.",
         "Run the tests that belong to a change.", "Ask when two readings of a task differ.", "Prefer a small change to a large one.",
         "Keep to the style of what is there.", "Do not invent paths; list the folder first."]
NAMES = ["parser", "cache", "index", "worker", "buffer", "config", "report", "client", "ledger", "socket", "router", "digest"]
CLEARED = "[Old tool result content cleared]"


class Words:
    """Text that looks like rules, code and thoughts."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def rules(self, size):
        lines, length = [], 0
        while length < size:
            lines.append(f"{len(lines) + 1}. {self.random.choice(RULES)} It holds for {self.random.choice(NAMES)}.py, too.")
            length += len(lines[-1]) + 1
        return "\n".join(lines)

    def code(self, size):
        lines, length = [], 0
        while length < size:
            name, other = self.random.sample(NAMES, 2)
            lines.append(f"{len(lines) + 1:5}\tdef {name}_{self.random.randrange(100)}(self, {other}): return {other}.{name}()")
            length += len(lines[-1]) + 1
        return "\n".join(lines)

    def path(self):
        return f"src/{self.random.choice(NAMES)}/{self.random.choice(NAMES)}.py"

    def thought(self):
        return f"The {self.random.choice(NAMES)} is made in {self.path()}, so I look there first."


def tool(name, description, *parameters):
    return {"name": name, "description": description, "schema": {
        "type": "object", "required": list(parameters[:1]),
        "properties": {parameter: {"type": "string", "description": f"The {parameter}."} for parameter in parameters}}}


TOOLS = [tool("Read", "Reads a file.", "file_path", "offset"), tool("Bash", "Runs a command.", "command", "timeout"),
         tool("Edit", "Replaces a text in a file.", "file_path", "old_string", "new_string"),
         tool("Grep", "Searches files.", "pattern", "path"), tool("Task", "Starts a sub-agent.", "prompt", "description")]


class Claude:
    """The main agent: a question, then a file read in each turn. Thinking stays in its last turn only, the time is in the newest
    message only, and after twelve turns the oldest results are cleared."""
    path = "/v1/messages"

    def __init__(self, scale, seed):
        self.words, self.scale, self.seed = Words(seed), scale, seed
        self.rules = "You are a coding agent.\n" + self.words.rules(int(120_000 * scale))
        self.steps = []  # (question or None, thought, path, result)

    def messages(self, now):
        messages = []

        def add(role, block):
            if not messages or messages[-1]["role"] != role:
                messages.append({"role": role, "content": []})
            messages[-1]["content"].append(block)

        for number, (question, thought, path, result) in enumerate(self.steps):
            if question:
                add("user", {"type": "text", "text": question})
            if result is None:  # the answer that is asked for
                break
            if number == len(self.steps) - 2:
                add("assistant", {"type": "thinking", "thinking": thought, "signature": "c2lnbmF0dXJl"})
            call = f"toolu_{self.seed}_{number:03}"
            add("assistant", {"type": "text", "text": f"I look at {path}."})
            add("assistant", {"type": "tool_use", "id": call, "name": "Read", "input": {"file_path": path}})
            text = CLEARED if len(self.steps) > 12 and number < 8 else result
            add("user", {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": text}]})
        add("user", {"type": "text", "text": f"<system-reminder>It is {now:%Y-%m-%d %H:%M:%S}.</system-reminder>"})
        return messages

    def turn(self, now, number):
        if self.steps:
            self.steps[-1][3] = self.words.code(max(150, int(1_800 * self.scale)))
        question = f"Why does {self.words.path()} keep its {self.words.random.choice(NAMES)}?" if number % 5 == 0 else None
        self.steps.append([question, self.words.thought(), self.words.path(), None])
        billing = f"x-anthropic-billing-header: cc_version=2.1.7; cc_entrypoint=cli; cch={self.words.random.randrange(16**5):05x};"
        return {
            "model": "claude", "max_tokens": 32000, "stream": True, "temperature": 1, "metadata": {"user_id": "user_of_the_session"},
            "system": [{"type": "text", "text": billing}, {"type": "text", "text": self.rules, "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in TOOLS],
            "messages": self.messages(now),
        }


class OpenCode:
    """A sub-agent whose system prompt ends with the time, which moves on at every fourth turn; it sends no reasoning back."""
    path = "/v1/chat/completions"

    def __init__(self, scale, seed):
        self.words, self.scale, self.seed = Words(seed), scale, seed
        self.rules = self.words.rules(int(27_000 * scale))
        self.history, self.time = [], None

    def turn(self, now, number):
        if number % 4 == 0:
            self.time = f"<env>\n  Working directory: /home/user/project\n  Time: {now:%H:%M}\n</env>"
        if not self.history:
            self.history.append({"role": "user", "content": f"Find out who calls {self.words.path()}."})
        body = {
            "model": "any", "max_tokens": 8000, "temperature": 0.3, "stream": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": f"You search code.\n{self.rules}\n{self.time}"}, *self.history],
            "tools": [{"type": "function", "function": {"name": t["name"].lower(), "description": t["description"],
                                                        "parameters": t["schema"]}} for t in TOOLS[:4]],
            "tool_choice": "auto",
        }
        call, path = f"call_{self.seed}_{number:03}", self.words.path()
        self.history += [
            {"role": "assistant", "content": "", "tool_calls": [{"id": call, "type": "function", "function": {
                "name": "grep", "arguments": json.dumps({"pattern": self.words.random.choice(NAMES), "path": path})}}]},
            {"role": "tool", "tool_call_id": call, "content": self.words.code(max(150, int(1_200 * self.scale)))}]
        return body


class Codex:
    """A sub-agent whose reasoning is sealed, so that none of it comes back; a developer's message comes in the middle."""
    path = "/v1/responses"

    def __init__(self, scale, seed):
        self.words, self.scale, self.seed = Words(seed), scale, seed
        body = codex_body.first_turn("any", f"Write a test for {self.words.path()}.")
        rules = "You are a coding agent.\n" + self.words.rules(int(20_000 * scale))
        developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": rules}]}
        tools = codex_body.TOOLS if scale >= 0.5 else codex_body.TOOLS[:2]
        self.body = {**body, "tools": tools, "input": [developer, body["input"][-1]], "max_output_tokens": 8000}

    def turn(self, now, number):
        body = self.body
        call = f"call_{self.seed}_{number:03}"
        added = [{"type": "function_call", "name": "exec_command", "call_id": call,
                  "arguments": json.dumps({"cmd": f"cat {self.words.path()}"})},
                 {"type": "function_call_output", "call_id": call, "output": self.words.code(max(150, int(1_200 * self.scale)))}]
        if number == 4:
            added.append({"type": "message", "role": "developer", "content": [
                {"type": "input_text", "text": "<collaboration_mode>default</collaboration_mode>"}]})
        self.body = {**body, "input": [*body["input"], *added]}
        return body


def schedule(turns):
    """Who speaks when: half of the turns are the main agent's, which begins alone; then they take turns."""
    main = turns - 2 * (turns // 4)
    alone = min(main, max(1, turns // 10))
    order = ["main"] * alone
    for _ in range(turns // 4):
        order += ["search", "test", *(["main"] if order.count("main") < main else [])]
    return order + ["main"] * (main - order.count("main"))


def session(turns=40, scale=1.0):
    """The lines of the file, as objects."""
    agents = {"main": Claude(scale, 1), "search": OpenCode(scale, 2), "test": Codex(scale, 3)}
    spoken = dict.fromkeys(agents, 0)
    for number, name in enumerate(schedule(turns)):
        agent = agents[name]
        body = agent.turn(START + datetime.timedelta(seconds=37 * number), spoken[name])
        spoken[name] += 1
        yield {"agent": name, "path": agent.path, "body": body}


def write(file, turns=40, scale=1.0):
    for line in session(turns, scale):
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--scale", type=float, default=1.0, help="1: first bodies of 124, 29 and 29 KB")
    parser.add_argument("--output", type=argparse.FileType("w"), default=sys.stdout)
    given = parser.parse_args()
    write(given.output, given.turns, given.scale)
