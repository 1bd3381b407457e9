"""Other people's programs against a server of the demo model. tests/clients/run.sh makes their environments and runs this.

A test function is one call of a client; its module's CLIENT names the client. The table at the end has a row for each client.
"""
import importlib.util
import json
import pathlib

import pytest

from agents.recorder import anonymous

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("api_conftest", ROOT / "tests/api/conftest.py")
_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_api)
start_server = _api.start_server

MODEL = "quire-demo"
_results = {}


@pytest.fixture(scope="session")
def server():
    with start_server("--disable-access-log", model=ROOT / "models" / MODEL) as started:
        yield started


@pytest.fixture(scope="session")
def greedy_server(tmp_path_factory):
    with start_server("--disable-access-log", model=_api.greedy_demo_model(tmp_path_factory.mktemp("models"))) as started:
        yield started


@pytest.fixture(scope="session")
def long_server(tmp_path_factory):
    """With room for an agent's prompt. What the model says so far out is noise, so every token ends an answer: an agent would take one
    that runs into its limit for a failure."""
    folder = tmp_path_factory.mktemp("models")
    vocabulary = json.loads((ROOT / "models" / MODEL / "config.json").read_text())["vocab_size"]
    model = _api.greedy_demo_model(folder, context=65536, eos_token_id=list(range(vocabulary)))
    with start_server("--disable-access-log", model=model) as started:
        yield started


@pytest.fixture(scope="session")
def base_url(server):
    return server.url + "/v1"


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true", help="keeps what the agents send as test data of tests/api")


@pytest.fixture
def keep(request):
    """keep(name, agent, bodies): writes bodies to tests/api/recorded/NAME.json, if --record was given."""
    def write(name, agent, bodies):
        if request.config.getoption("--record"):
            (ROOT / "tests/api/recorded" / f"{name}.json").write_text(anonymous(json.dumps(bodies, indent=1), agent) + "\n")

    return write


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" or report.failed or report.skipped:
        client = getattr(item.module, "CLIENT", item.module.__name__)
        _results.setdefault(client, {})[item.name.removeprefix("test_")] = report
    return report


def pytest_terminal_summary(terminalreporter):
    write = terminalreporter.write_line
    write("")
    write(f"{'client':34} {'passed':>6} {'failed':>6} {'skipped':>7}  what failed")
    for client, calls in sorted(_results.items()):
        failed = [name for name, report in calls.items() if report.failed]
        counts = [sum(getattr(report, kind) for report in calls.values()) for kind in ("passed", "failed", "skipped")]
        write(f"{client:34} {counts[0]:6} {counts[1]:6} {counts[2]:7}  {', '.join(failed)}")
