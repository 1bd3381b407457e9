"""aiperf beside `quire bench serve` on the same load. That their times agree is measured by load.py, on a quiet machine."""
import pathlib
import re

import load

LIST = pathlib.Path(__file__).parent / "requirements-load.txt"
CLIENT = "aiperf " + re.search(r"^aiperf==(.*)$", LIST.read_text(), re.M)[1]


def test_same_load(capsys):
    given = load.arguments(["--requests", "40", "--rounds", "1"])
    found = load.measure(given)
    for figures, requests, tokens in (rounds[0] for rounds in found.values()):
        assert (requests, tokens) == (given.requests, given.requests * given.output)
        assert all(figure > 0 for figure in figures)
    with capsys.disabled():
        print("", *load.report(found), sep="\n")
