"""instructor: its modes TOOLS, TOOLS_STRICT and JSON_SCHEMA, and a stream of parts."""
import pathlib
import re

import pytest

from conftest import MODEL
from program import ENVIRONMENTS, check, outcomes

PROGRAM = pathlib.Path(__file__).parent / "programs/instructor_calls.py"
LIST = pathlib.Path(__file__).parent / "requirements-instructor.txt"
CLIENT = "instructor " + re.search(r"^instructor==(.*)$", LIST.read_text(), re.M)[1]


@pytest.fixture(scope="module")
def found(base_url):
    return outcomes([ENVIRONMENTS / "instructor/bin/python", PROGRAM, base_url, MODEL], ENVIRONMENTS)


@pytest.mark.parametrize("call", ["tools", "tools_strict", "json_schema", "stream_of_parts"])
def test_instructor(found, call):
    check(found, call)
