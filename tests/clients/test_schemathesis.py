"""schemathesis makes requests up from /openapi.json: no answer may be a 5xx or differ from what the document says."""
import collections
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse

from conftest import MODEL, ROOT, start_server

CLIENT = "schemathesis " + importlib.metadata.version("schemathesis")
PROGRAM = pathlib.Path(sys.executable).parent / "st"
PROGRAMS = pathlib.Path(__file__).parent / "programs"
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
          "response_schema_conformance")


def statuses(report):
    """{path: {status: count}} of all that was asked."""
    found = collections.defaultdict(collections.Counter)
    for line in report.read_text().splitlines():
        for exchange in json.loads(line).get("ScenarioFinished", {}).get("recorder", {}).get("interactions", {}).values():
            if exchange["response"]:
                found[urllib.parse.urlparse(exchange["request"]["uri"]).path][int(exchange["response"]["status_code"])] += 1
    return found


def test_answers_are_as_described(tmp_path):
    """The same requests in every run. Generation is short, since the context is."""
    report = tmp_path / "report.ndjson"
    with start_server("--disable-access-log", "--max-model-len", "256", model=ROOT / "models" / MODEL) as server:
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "openapi_hooks", "PYTHONPATH": str(PROGRAMS)}
        done = subprocess.run(
            [PROGRAM, "run", server.url + "/openapi.json", "--seed", "1", "--generation-database", "none", "-n", "40",
             "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--request-timeout", "120", "--no-color",
             "--report", "ndjson", "--report-ndjson-path", report],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stdout + done.stderr
        paths = [path.replace("{name}", MODEL) for path in server.get("/openapi.json").json()["paths"]
                 if path != "/openapi.json"]  # schemathesis leaves that out
    found = statuses(report)
    shallow = {path: found[path] for path in paths if found[path][200] < 3}
    assert not shallow, f"hardly an answer from: {shallow}"
    assert not [status for counts in found.values() for status in counts if status >= 500]
