"""Clients for Node.js: the programs in node/ print a line for each call."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import MODEL

ENV = pathlib.Path(os.environ.get("QUIRE_CLIENTS_ENV", "build/clients")) / "node"
HERE = pathlib.Path(__file__).parent / "node"
CLIENT = "Node.js"


def calls_of(program):
    """The names of its calls, as they stand in the program."""
    return [line.split('"')[1] for line in (HERE / program).read_text().splitlines() if line.startswith('await report("')]


@pytest.fixture(scope="module")
def outcomes(base_url):
    if not (ENV / "node_modules").exists():
        pytest.skip("npm is missing")
    shutil.copytree(HERE, ENV, dirs_exist_ok=True)  # beside the packages, where imports look for them
    found = {}

    def of(program):
        if program not in found:
            done = subprocess.run(["node", program, base_url, MODEL], cwd=ENV, capture_output=True, text=True, timeout=300)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"call"')]
            found[program] = {line["call"]: line.get("error") for line in lines}, done
        return found[program]

    return of


@pytest.mark.parametrize("program, call",
                         [(program, call) for program in ("openai.mjs", "ai_sdk.mjs") for call in calls_of(program)])
def test_node(outcomes, program, call):
    answers, done = outcomes(program)
    assert call in answers, f"{program} ended before {call}:\n{done.stdout}\n{done.stderr}"
    assert answers[call] is None, f"{program}, {call}: {answers[call]}"
