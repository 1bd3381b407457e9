"""Prometheus' own parser reads /metrics."""
import importlib.metadata

from prometheus_client.parser import text_string_to_metric_families

CLIENT = "prometheus-client " + importlib.metadata.version("prometheus-client")


def families(server):
    return {family.name: family for family in text_string_to_metric_families(server.get("/metrics").body.decode())}


def test_parse(server):
    server.chat(max_tokens=3)
    found = families(server)
    for name in ("vllm:num_requests_running", "vllm:time_to_first_token_seconds", "vllm:prefix_cache_hits",
                 "vllm:prompt_tokens_cached", "vllm:request_max_num_generation_tokens", "process_resident_memory_bytes",
                 "process_cpu_seconds", "process_start_time_seconds", "process_open_fds"):
        assert name in found, sorted(found)
        assert found[name].documentation and found[name].type != "unknown"


def test_histograms_add_up(server):
    for family in families(server).values():
        if family.type != "histogram":
            continue
        buckets = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
        [count] = [sample.value for sample in family.samples if sample.name.endswith("_count")]
        assert buckets == sorted(buckets) and buckets[-1] == count


def test_dashboard_asks_for_what_there_is(server):
    import json
    import pathlib
    import re

    board = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/grafana.json").read_text())
    asked = {name for panel in board["panels"] for target in panel.get("targets", [])
             for name in re.findall(r"\b((?:vllm|quire):\w+|process_\w+|http_\w+)", target["expr"])}
    there = {sample.name for family in families(server).values() for sample in family.samples}
    assert asked and asked <= there, asked - there
