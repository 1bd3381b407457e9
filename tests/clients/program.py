"""Runs a program that prints a line of JSON for each call of a client: {"call"}, and {"error"} if it failed."""
import json
import os
import pathlib
import subprocess

ENVIRONMENTS = pathlib.Path(os.environ.get("QUIRE_CLIENTS_ENV", "build/clients")).resolve()


def outcomes(command, folder):
    """{call: error or None}, and what it printed, for calls that are missing."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"call"')]
    return {line["call"]: line.get("error") for line in lines}, f"{done.stdout}\n{done.stderr}"


def check(found, call):
    errors, printed = found
    assert call in errors, f"it ended before {call}:\n{printed}"
    assert errors[call] is None, f"{call}: {errors[call]}"
