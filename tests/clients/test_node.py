"""Clients for Node.js: the programs in node/ print a line for each call."""
import pathlib
import shutil

import pytest

from conftest import MODEL
from program import ENVIRONMENTS, check, outcomes

ENV = ENVIRONMENTS / "node"
HERE = pathlib.Path(__file__).parent / "node"
CLIENT = "Node.js"


def calls_of(program):
    """The names of its calls, as they stand in the program."""
    return [line.split('"')[1] for line in (HERE / program).read_text().splitlines() if line.startswith('await report("')]


@pytest.fixture(scope="module")
def run(base_url):
    shutil.copytree(HERE, ENV, dirs_exist_ok=True)  # beside the packages, where imports look for them
    found = {}

    def of(program):
        if program not in found:
            found[program] = outcomes(["node", program, base_url, MODEL], ENV)
        return found[program]

    return of


@pytest.mark.parametrize("program, call",
                         [(program, call) for program in ("openai.mjs", "ai_sdk.mjs") for call in calls_of(program)])
def test_node(run, program, call):
    check(run(program), call)
