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


def histograms(server):
    """{name: (bounds, buckets, sum, count)}"""
    found = {}
    for family in families(server).values():
        if family.type == "histogram":
            of = {end: [sample for sample in family.samples if sample.name == family.name + end] for end in ("_bucket", "_sum", "_count")}
            [total], [count] = of["_sum"], of["_count"]
            found[family.name] = ([float(sample.labels["le"]) for sample in of["_bucket"]],
                                  [sample.value for sample in of["_bucket"]], total.value, count.value)
    return found


def test_histograms_add_up(server):
    before = histograms(server)
    tokens = [7, 11]
    for count in tokens:
        assert server.chat(max_tokens=count).status == 200
    server.wait_until(server.is_idle)
    after = histograms(server)
    assert len(after) >= 10 and after.keys() == before.keys()
    for name, (bounds, buckets, total, count) in after.items():
        assert bounds == sorted(bounds) and bounds[-1] == float("inf"), name
        assert buckets == sorted(buckets) and buckets[-1] == count >= before[name][3], name
        steps = [upper - lower for lower, upper in zip([0, *buckets], buckets)]
        # A value is above the bound of the bucket before its own.
        assert sum(step * low for step, low in zip(steps, [0, *bounds])) <= total + 1e-6, name

    def more(name, field):
        return after[name][field] - before[name][field]

    for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
                 "vllm:request_prompt_tokens", "vllm:request_generation_tokens"):
        assert more(name, 3) == len(tokens), name
    assert more("vllm:request_generation_tokens", 2) == sum(tokens)
    assert more("vllm:inter_token_latency_seconds", 3) == sum(tokens) - len(tokens)
    assert 0 < more("vllm:time_to_first_token_seconds", 2) < more("vllm:e2e_request_latency_seconds", 2)


def test_dashboard_asks_for_what_there_is(server):
    import json
    import pathlib
    import re

    board = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/grafana.json").read_text())
    asked = {name for panel in board["panels"] for target in panel.get("targets", [])
             for name in re.findall(r"\b((?:vllm|quire):\w+|process_\w+|http_\w+)", target["expr"])}
    there = {sample.name for family in families(server).values() for sample in family.samples}
    assert asked and asked <= there, asked - there
