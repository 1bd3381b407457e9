"""`quire bench` against a server and offline: what it counts must be what the server did."""
import json
import os
import re
import subprocess

import pytest

from conftest import BIN, ROOT, start_server

DEMO = ROOT / "models/quire-demo"


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", model=DEMO) as server:
        yield server


def bench(*arguments, status=0):
    done = subprocess.run([BIN, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def bench_serve(server, tmp_path, *arguments, status=0):
    text = bench("serve", "--base-url", server.url, "--tokenizer", DEMO, "--ignore-eos", "--save-result",
                 "--result-dir", tmp_path, "--result-filename", "result.json", *arguments, status=status)
    return text, json.loads((tmp_path / "result.json").read_text())


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
def test_serve_counts_what_the_server_counts(demo, tmp_path, endpoint):
    names = {"prompt": "vllm:prompt_tokens_total", "output": "vllm:generation_tokens_total"}
    before = {key: demo.metric(name) for key, name in names.items()}
    text, result = bench_serve(demo, tmp_path, "--endpoint", endpoint, "--random-input-len", 40,
                               "--random-output-len", 12, "--num-prompts", 20, "--max-concurrency", 4,
                               "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99",
                               "--save-detailed")
    assert result["completed"] == 20 and result["failed"] == 0
    # An answer may come a moment before the step that ended it is counted.
    demo.wait_until(lambda: demo.metric(names["output"]) >= before["output"] + 240)
    after = {key: demo.metric(name) for key, name in names.items()}
    assert result["total_output_tokens"] == after["output"] - before["output"] == 240
    assert result["total_input_tokens"] == after["prompt"] - before["prompt"]
    if endpoint == "/v1/completions":
        assert result["input_lens"] == [40] * 20
    assert result["output_throughput"] == pytest.approx(240 / result["duration"])
    assert result["max_concurrent_requests"] <= 20 and result["max_concurrency"] == 4
    # The figures fit each other: a request is its first token and the gaps after it.
    for first, gaps, latency in zip(result["ttfts"], result["itls"], result["latencies"]):
        assert first + sum(gaps) == pytest.approx(latency)
    for key in ("mean", "median", "p50", "p99"):
        for metric in ("ttft", "tpot", "itl", "e2el"):
            assert result[f"{key}_{metric}_ms"] >= 0
    lines = text.splitlines()
    assert lines[0] == "============ Serving Benchmark Result ============" and lines[-1] == "=" * 50
    for name in ("Successful requests:", "Total generated tokens:", "Peak output token throughput (tok/s):",
                 "Mean TTFT (ms):", "P99 E2EL (ms):"):
        assert any(line.startswith(name) for line in lines), name


def test_serve_keeps_to_the_concurrency_and_the_rate(demo, tmp_path):
    _, result = bench_serve(demo, tmp_path, "--random-input-len", 8, "--random-output-len", 2, "--num-prompts", 20,
                            "--request-rate", 20, "--save-detailed", "--prompt-token-ids")
    assert result["input_lens"] == [8] * 20
    # vLLM stretches the arrivals so that the last one is due at count / rate.
    assert max(result["start_times"]) == pytest.approx(1.0, abs=0.3)
    assert result["start_times"] == sorted(result["start_times"])
    _, result = bench_serve(demo, tmp_path, "--random-input-len", 8, "--random-output-len", 8, "--num-prompts", 6,
                            "--max-concurrency", 1, "--save-detailed")
    ends = [start + latency for start, latency in zip(result["start_times"], result["latencies"])]
    assert all(start >= end for start, end in zip(result["start_times"][1:], ends)), "one at a time"


def test_serve_repeats_prefixes_that_the_cache_finds(demo, tmp_path):
    before = demo.metric("vllm:prefix_cache_hits_total")
    _, result = bench_serve(demo, tmp_path, "--dataset-name", "prefix_repetition", "--num-prompts", 12,
                            "--prefix-repetition-prefix-len", 64, "--prefix-repetition-suffix-len", 8,
                            "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 2,
                            "--max-concurrency", 1)
    assert result["completed"] == 12
    assert demo.metric("vllm:prefix_cache_hits_total") - before >= 10 * 48


def test_serve_says_what_failed(demo, tmp_path):
    text, result = bench_serve(demo, tmp_path, "--model", "no-such-model", "--num-prompts", 2, "--random-input-len", 8,
                               status=1)
    assert result["failed"] == 2 and result["completed"] == 0
    assert "HTTP 404" in text and "no-such-model" in text
    assert "no server answers" in bench("serve", "--base-url", "http://127.0.0.1:1", "--tokenizer", DEMO, status=1)
    assert "--tokenizer" in bench("serve", "--base-url", demo.url, status=1)
    assert "https" in bench("serve", "--base-url", "https://127.0.0.1:1", "--tokenizer", DEMO, status=1)


def test_throughput_of_a_data_set(tmp_path):
    file = tmp_path / "t.json"
    text = bench("throughput", DEMO, "--num-prompts", 10, "--input-len", 32, "--output-len", 8, "--output-json", file)
    assert re.search(r"Throughput: \S+ requests/s, \S+ total tokens/s, \S+ output tokens/s", text)
    result = json.loads(file.read_text())
    assert result["num_requests"] == 10 and result["total_num_tokens"] == 10 * 40
    assert result["tokens_per_second"] == pytest.approx(400 / result["elapsed_time"])
    assert result["device"] in ("cpu", "cuda") and result["device_description"]


@pytest.mark.parametrize("ablation", [(), ("--eval-per-layer", "--project-all-rows", "--no-async-scheduling")])
def test_throughput_with_a_profile(tmp_path, ablation):
    file = tmp_path / "t.json"
    text = bench("throughput", DEMO, "--concurrency", "3,2", "--input-len", 16, "--output-len", 9, "--profile",
                 "--output-json", file, *ablation)
    assert re.search(r"^decode, batch 2: 8 steps of 2.0 tokens", text, re.M), text
    assert text.count("decode, batch") == 2 and "0 steps" not in text, text
    row = json.loads(file.read_text())[1]
    profile = {(step["kind"], step["sequences"]): step for step in row["profile"]}
    decode = profile["decode", 2]
    counts = {(k["name"].split("/")[0], k["width"]): k["count"] for k in decode["kernels"]}
    config = json.loads((DEMO / "config.json").read_text())
    assert counts["paged_attention", 0] == 8 * config["num_hidden_layers"]
    assert counts["linear", config["vocab_size"]] == 8
    kernels = sum(k["seconds"] for k in decode["kernels"])
    assert kernels > 0
    if os.environ.get("QUIRE_DEEP_TESTS"):  # a busy machine may hold up a kernel for as long as it likes
        assert kernels <= decode["wall_seconds"] * 1.5
    assert set(decode["phases"]) == {"plan", "build batch", "build graph", "sampling rows", "launch",
                                     "wait for tokens", "commit"}


def test_latency_prints_vllms_percentiles(tmp_path):
    file = tmp_path / "l.json"
    text = bench("latency", DEMO, "--input-len", 8, "--output-len", 4, "--batch-size", 2, "--num-iters", 5,
                 "--num-iters-warmup", 1, "--output-json", file)
    assert re.search(r"^Avg latency: \S+ seconds$", text, re.M)
    for percent in (10, 25, 50, 75, 90, 99):
        assert re.search(rf"^{percent}% percentile latency: \S+ seconds$", text, re.M)
    result = json.loads(file.read_text())
    assert len(result["latencies"]) == 5
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 5)
    assert result["percentiles"]["50"] == sorted(result["latencies"])[2]


def test_ops_measures_the_roofline_and_a_kernel(tmp_path):
    file = tmp_path / "o.json"
    text = bench("ops", "--filter", "^(rms_norm|scale/embedding)/T=32$", "--min-time", 0.01, "--threads", 1, "--output-json", file)
    assert "roofline" in text
    result = json.loads(file.read_text())
    assert result["threads"] == 1 and result["roofline"]["read_bytes_per_second"] > 0
    assert {k["name"] for k in result["kernels"]} == {"rms_norm/T=32", "scale/embedding/T=32"}
    for kernel in result["kernels"]:
        assert 0 < kernel["best_seconds"] <= kernel["median_seconds"]
        assert re.fullmatch(rf"{kernel['name'].split('/')[0]}/cpu_\w+", kernel["ran"])
    assert "--filter" in bench("ops", "--filter", "(", status=1)
    assert "no case matches" in bench("ops", "--filter", "nothing", "--threads", 1, status=1)


def test_scheduler_needs_no_model(tmp_path):
    file = tmp_path / "s.json"
    bench("scheduler", "--min-time", 0, "--output-json", file)
    rows = json.loads(file.read_text())
    assert len(rows) == 14 and all(0 < row["best_us"] <= row["median_us"] for row in rows)


def test_ablations_of_kernels_and_of_the_engine(tmp_path):
    file = tmp_path / "a.json"
    text = bench("ablations", DEMO, "--rounds", 2, "--input-len", 16, "--output-len", 24, "--concurrency", 2, "--threads", 1,
                 "--device", "cpu", "--output-json", file)
    assert "too short" not in text, text
    result = json.loads(file.read_text())
    assert [row["way"] for row in result["kernels"]] == [
        "in place", "a functional update", "one call for all", "a call for each, awaited"]
    assert [row["variant"] for row in result["engine"]] == [
        "usual", "node by node", "eval per layer", "no lookahead", "project all rows"]
    assert all(row["decode_many_tokens_per_second"] > 0 for row in result["engine"])
    assert "nothing to compare" in bench("ablations", "--no-kernels", status=1)
