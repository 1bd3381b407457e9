"""python3 -m pytest bench/peers: what the table says, and where it goes."""

import argparse
import contextlib
import http.server
import importlib
import json
import pathlib
import sys
import threading
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import engines
import gguf_files
import gpu
import report
import run as peers_run
from install import keep_tile_config


def run(engine, rate, round_=0, **more):
    key = {"format": "bf16", "cell": "server-8", "engine": engine, "round": round_}
    return key | {"rate": rate, "probe_gbs": 30.0} | more


def data(*runs):
    facts = {"model": "shape", "cpu": "CPU", "threads": 2, "date": "2000-01-01", "versions": {"A": "A 1"}}
    return facts | {"engines": ["Quire", "A", "B"], "runs": list(runs)}


def test_ratio_is_of_medians_to_the_best_peer():
    runs = [run("Quire", rate, i, ttft_ms=500) for i, rate in enumerate((100, 300, 200))]
    runs += [run("A", 80), run("B", 160), {**run("A", 1, 1), "cell": "decode-1"}]
    text = report.table(data(*runs))
    assert "| bf16 | server, 8 clients | 200 ±50%, 0.50 s | 80.0 | 160 | **1.25** |" in text
    assert "| bf16 | decode, 1 stream |  | 1.0 |  |  |" in text
    assert text.index("decode, 1") < text.index("server, 8")


def test_each_way_of_quire_has_its_ratio():
    both = data(run("Quire", 60), run("Quire, int8 activations", 120), run("A", 80))
    versions = {"Quire": "Quire v1", "Quire, int8 activations": "Quire v1", "A": "A 1"}
    text = report.table(both | {"engines": ["Quire", "Quire, int8 activations", "A"], "versions": versions})
    assert ". Quire v1; A 1. " in text
    assert "| Quire; Quire, int8 activations / best peer |" in text
    assert "| 60.0 | 120 | 80.0 | **0.75**; **1.50** |" in text


def test_cells_of_long_prompts_have_rows_of_their_own():
    runs = [{**run("Quire", 50), "cell": "depth-16384"}, {**run("A", 20), "cell": "depth-16384"}]
    runs += [{**run("Quire", 90, ttft_ms=500, long_ms=20000), "cell": "beside-8"}]
    runs += [{**run("Quire", 9000, ttft_ms=230, cached_tokens=2047), "cell": "turn-2048"}]
    text = report.table(data(*runs))
    assert "| bf16 | second turn of a chat, after 2,048 tokens | 9,000, 0.23 s |" in text
    assert "| bf16 | decode after 16,384 tokens | 50.0 | 20.0 | **2.50** |" in text
    assert "| bf16 | server, 8 clients, while a prompt of 16,384 tokens comes | 90.0, 0.50 s, 20.00 s |" in text
    assert text.index("decode after") < text.index("server, 8")


class Completions(http.server.BaseHTTPRequestHandler):
    """Counts a prompt's ids, but for one; answers with ids that go on from its last one; has kept all but 33."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, body))
        prompt, asked = body["prompt"], body.get("n_predict") or body["max_tokens"]
        ids = list(range(prompt[-1] + 1, prompt[-1] + 1 + asked))[: self.server.most]
        usage = {"prompt_tokens": len(prompt) - (len(prompt) == 7), "prompt_tokens_details": {"cached_tokens": len(prompt) - 33}}
        answer = {"usage": usage, "choices": [{"token_ids": ids}]} if "completions" in self.path else {"tokens": ids}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@pytest.fixture
def completions():
    with http.server.HTTPServer(("127.0.0.1", 0), Completions) as server:
        server.seen, server.most = [], 1000
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_long_prompt_is_timed_and_must_be_whole(monkeypatch, completions):
    monkeypatch.setattr(engines.LongPrompt, "AFTER", 0)
    assert 0 < engines.LongPrompt(completions.server_port, 5000).seconds() < 60
    with pytest.raises(engines.MeasurementError, match="7 tokens counted as 6"):
        engines.LongPrompt(completions.server_port, 7).seconds()


@pytest.mark.parametrize(("kind", "path"), [(engines.Quire, "/v1/completions"), (engines.LlamaCpp, "/completion")])
def test_a_second_turn_is_the_first_one_its_answer_and_a_message(monkeypatch, completions, kind, path):
    installed = types.SimpleNamespace(binary="quire", llama=pathlib.Path(), models=pathlib.Path(), checkpoint="model", formats=("bf16",))
    engine, commands = kind(installed, 2), []

    @contextlib.contextmanager
    def server(port, *command):
        commands.append(command)
        yield

    monkeypatch.setattr(engines, "server", server)
    monkeypatch.setattr(engines, "free_port", lambda: completions.server_port)
    cell = engines.Cell("turn", 1, 128, 32, requests=2)
    found = engine.measure("bf16", cell)
    assert found["rate"] == pytest.approx(160 / found["ttft_ms"] * 1e3) and found["cached_tokens"] == 127
    assert [(path, len(body["prompt"])) for path, body in completions.seen] == [(path, 64), ("/v1/completions", 160)] * 2
    first, second = (body["prompt"] for _, body in completions.seen[:2])
    assert second[:64] == first and second[64:128] == list(range(first[-1] + 1, first[-1] + 65))
    assert completions.seen[2][1]["prompt"] != first
    assert len(commands) == 1 and "--cache-ram" not in commands[0]
    completions.most = 5
    with pytest.raises(engines.MeasurementError, match="asked for 64 tokens, got 5"):
        engine.measure("bf16", cell)


def test_a_server_is_ready_when_it_no_longer_grows(monkeypatch):
    sizes, slept = iter([0, 10, 30, 40, 40, 50]), []
    monkeypatch.setattr(engines.pathlib.Path, "read_text", lambda path: f"99 {next(sizes)} 7" if path.name == "statm" else "")
    monkeypatch.setattr(engines.time, "sleep", slept.append)
    engines.settle(1)
    assert next(sizes) == 50 and slept == [1] * 5


def test_an_engine_of_one_stream_gets_no_cells_of_more():
    comparison = object.__new__(peers_run.Comparison)
    comparison.args = types.SimpleNamespace(only="*")
    facts = {"name": "one", "formats": ("bf16",), "kinds": ("prefill", "decode")}
    wanted = {
        most: [cell.name for cell in peers_run.cells(quick=True) if comparison.wanted(types.SimpleNamespace(**facts, most_streams=most), "bf16", cell)]
        for most in (1, None)
    }
    assert wanted[1] == ["prefill-512", "prefill-2048", "decode-1"]
    assert wanted[None] == wanted[1] + ["decode-8", "decode-32"]


def test_a_failed_run_is_left_out():
    failed = run("B", 0) | {"error": "died"}
    del failed["rate"]
    assert "**2.00**" in report.table(data(run("Quire", 2), run("A", 1), failed))


def test_write_docs_replaces_only_its_section(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n")
    report.write_docs(page, "a", "one\n")
    first = page.read_text()
    assert first.startswith("before\n\n## Beside") and first.count("one\n") == 1
    page.write_text(first + "after\n")
    report.write_docs(page, "a", "two \\1\n")
    changed = first.replace("one\n", "two \\1\n") + "after\n"
    assert page.read_text() == changed
    report.write_docs(page, "b", "three\n")
    assert page.read_text().startswith(changed) and page.read_text().count("## Beside other engines: b\n") == 1
    page.write_text("".join(reversed(report.markers("a"))))
    with pytest.raises(SystemExit):
        report.write_docs(page, "a", "x\n")


def test_keep_tile_config_guards_once_and_says_when_it_cannot(tmp_path):
    source = tmp_path / "mmq.cpp"
    source.write_text("{\n    _tile_loadconfig(&tc);\n}\n")
    keep_tile_config(source)
    keep_tile_config(source)
    assert source.read_text().count("__asm__") == 1
    source.write_text("fixed")
    with pytest.raises(RuntimeError):
        keep_tile_config(source)


def test_openvino_gets_other_prompts_for_each_run():
    worker = importlib.import_module("worker")
    rng = worker.np.random.default_rng(0)
    engine, seen = worker.OpenVino.__new__(worker.OpenVino), []
    engine.seconds = lambda ids, output: seen.append(ids) or float(output)
    assert engine.measure(lambda: worker.random_prompts(rng, 2, 8), 5) == (1.0, 4.0)
    assert [ids.shape for ids in seen] == [(2, 8), (2, 8)] and (seen[0] != seen[1]).any()


def test_a_short_answer_fails_the_measurement(tmp_path):
    engines = importlib.import_module("engines")
    binary = tmp_path / "quire"  # says that two answers came, with so many tokens
    binary.write_text("""#!/bin/sh
while [ "$1" != --result-dir ]; do shift; done
echo '{"completed": 2, "total_output_tokens": 7, "output_throughput": 3.5}' >"$2/load.json"
""")
    binary.chmod(0o755)
    installed = argparse.Namespace(binary=binary, checkpoint=tmp_path)
    with pytest.raises(engines.MeasurementError, match="7 tokens came in 2 answers of 4"):
        engines.load(installed, 1, 4)
    binary.write_text(binary.read_text().replace(": 7", ": 8"))
    assert engines.load(installed, 1, 4)["output_throughput"] == 3.5


def test_redo_forgets_only_what_is_named(tmp_path):
    results = importlib.import_module("run").Results
    path = tmp_path / "results.json"
    runs = [run("Quire", 1), run("A", 2), run("B", 3) | {"error": "died"}]
    del runs[2]["rate"]
    path.write_text(json.dumps({"runs": [found | {"seconds": 4} for found in runs]}))
    found = results(path, resume=True)
    assert found.done == {("bf16", "server-8", "Quire", 0), ("bf16", "server-8", "A", 0)}
    found.forget(lambda one: one["engine"] == "A")
    assert found.done == {("bf16", "server-8", "Quire", 0)}
    assert found.seconds[("bf16", "server-8", "A")] == 4


def test_a_replay_is_told_turn_by_turn():
    def session(*times):
        turns = [{"agent": "main", "prompt_tokens": 100, "cached_tokens": 90, "ttft_ms": time} for time in times]
        return {"details": turns, "cache_hit_rate": 0.9, "prompt_tokens": 200}

    replay = importlib.import_module("replay")
    rounds = [{"Quire": session(*ours) | {"different_from_cold": 0}, "llama.cpp": session(*theirs)}
              for ours, theirs in (((1000, 10), (3000, 50)), ((3000, 30), (5000, 90)), ((2000, 20), (4000, 40)))]
    lines = list(replay.report(rounds))
    assert lines[1].split() == ["1", "main", "100", "2000", "90", "4000", "90", "2.0"]
    assert lines[2].split()[-1] == "2.5"
    assert "all first tokens 2.0 s" in lines[3] and "90.0% of 200" in lines[4]
    assert lines[5] == "llama.cpp / Quire: 2.00 of all, 2.50 without the first"
    assert lines[6] == "Quire: 0 of 2 turns differ from a cold run"


@pytest.fixture
def make_gguf(monkeypatch):
    """The module, whose packages only the peers' own environment has, with a writer that keeps what it gets."""
    numpy = pytest.importorskip("numpy")
    kinds = types.SimpleNamespace(BF16="bf16", MXFP4="mxfp4")
    gguf = types.SimpleNamespace(GGMLQuantizationType=kinds, GGUFWriter=None)
    monkeypatch.setitem(sys.modules, "gguf", gguf)
    monkeypatch.setitem(sys.modules, "ml_dtypes", types.SimpleNamespace(bfloat16=numpy.uint16))
    monkeypatch.delitem(sys.modules, "make_gguf", raising=False)
    yield importlib.import_module("make_gguf")
    sys.modules.pop("make_gguf")


class Written(dict):
    def add_tensor(self, name, values, raw_dtype=None):
        self[name] = values


def test_a_gguf_of_latent_attention_scores_and_answers_as_kv_b_proj_does(make_gguf):
    np = make_gguf.np
    rng = np.random.default_rng(0)
    heads, key, value, latent = 3, 4, 5, 6
    config = {"num_attention_heads": heads, "qk_nope_head_dim": key, "v_head_dim": value}
    kv_b = rng.standard_normal((heads * (key + value), latent), dtype=np.float32)
    writer = Written()
    make_gguf.add_heads(writer, "7", kv_b, config)
    q, row = rng.standard_normal((heads, key)), rng.standard_normal(latent)
    for h, both in enumerate((kv_b @ row).reshape(heads, key + value)):
        absorbed = writer["blk.7.attn_k_b.weight"][h] @ q[h]  # llama.cpp's product, over the last dimension
        assert absorbed @ row == pytest.approx(q[h] @ both[:key])
        assert writer["blk.7.attn_v_b.weight"][h] @ row == pytest.approx(both[key:])


def test_experts_are_stacked_by_their_numbers(make_gguf):
    np = make_gguf.np
    names = [f"{i}.{part}_proj.weight" for i in range(11) for part in ("gate", "up", "down")]
    of = {name: np.full((2, 3), i, np.float32) for i, name in enumerate(names)}
    writer = Written()
    make_gguf.add_stacked_experts(writer, 4, dict(sorted(of.items())))
    for part in ("gate", "up", "down"):
        stack = writer[f"blk.4.ffn_{part}_exps.weight"]
        assert stack.shape == (11, 2, 3)
        assert all((stack[i] == of[f"{i}.{part}_proj.weight"]).all() for i in range(11))


def test_agreement_is_of_what_both_name_and_of_most_prompts():
    agree = importlib.import_module("agree")
    assert agree.compare({1: -1.0, 2: -2.0, 3: -3.0}, {2: -2.5, 1: -1.25, 9: -3.0}) == (2, 0.5)
    assert agree.compare({1: -1.0}, {2: -1.0}) == (0, float("inf"))
    assert agree.agree([(20, 0.01), (20, 0.02), (14, 0.3)], 0.1)
    assert not agree.agree([(20, 0.01), (20, 0.2), (14, 0.3)], 0.1)
    assert not agree.agree([(20, 0.01), (4, 0.01), (4, 0.01)], 0.1)


def test_ids_on_a_gpu_are_those_that_quire_draws():
    # bench::Random(1008, 0).below(151936), six times
    assert gpu.quire_ids(1008, 2, 3, 151936) == [[71224, 115755, 119371], [64207, 116258, 64223]]


def test_a_rate_on_a_gpu_is_that_of_all_streams_together():
    steady = [i / 10 for i in range(11)]
    late = [0.5 + i / 20 for i in range(11)]
    assert gpu.decode_rate([steady, late]) == pytest.approx(10 + 20)


def test_the_table_of_a_gpu_has_medians_and_the_best_peer():
    def rates(value):
        return dict.fromkeys(gpu.CELLS, value)

    rounds = [{"Quire": rates(value), "A": rates(50.0), "B": rates(100.0)} for value in (100.0, 300.0, 200.0)]
    text = gpu.report(rounds)
    assert "| Quire | 200 | 200 | 200 | 200 |" in text
    assert "| Quire to the best peer | 2.00 | 2.00 | 2.00 | 2.00 |" in text


def test_gguf_files_compare_medians_of_one_type_and_instruction_set():
    def run(engine, rate, isa="avx2", cell="decode-8"):
        return {"type": "q8_0", "isa": isa, "engine": engine, "cell": cell, "rate": rate}

    runs = [run("Quire", rate) for rate in (30, 10, 20)] + [run("llama.cpp", 16), run("Quire", 5, "avx512")]
    runs += [run("Quire, int8", 24), run("Quire, int8", 40, cell="depth-8192"), run("llama.cpp", 10, cell="depth-8192")]
    failed = run("llama.cpp", 0) | {"error": "TimeoutExpired"}
    del failed["rate"]
    lines = gguf_files.report([*runs, failed]).splitlines()
    assert lines[0].endswith("| decode, 8 streams | decode after 8,192 tokens |")
    assert lines[2].startswith("| q8_0 | avx2 | none | 20.0 (1.25) |")
    assert lines[3] == "| q8_0 | avx2 | int8 | 24.0 (1.50) | 40.0 (4.00) |"
    assert lines[4].startswith("| q8_0 | avx512 | none | 5.0 (nan) |")


def test_gguf_files_go_through_one_cell_after_another_and_round_no_activations_of_bf16(monkeypatch, tmp_path):
    flags = "--quire Q --llama L --gguf F.gguf --cells turn-2048,decode-8 --types bf16,q8_0 --isas amx --rounds 1 --input 32 --limit 9"
    monkeypatch.setattr(sys, "argv", ["gguf_files.py", *flags.split(), "--work", str(tmp_path)])
    found = list(gguf_files.plan(gguf_files.arguments()))
    names = [(cell.name, kind, engine) for cell, kind, _, _, engine in found]
    assert names[:5] == [
        ("turn-2048", "bf16", "Quire"), ("turn-2048", "bf16", "llama.cpp"),
        ("turn-2048", "q8_0", "Quire"), ("turn-2048", "q8_0", "Quire, int8"), ("turn-2048", "q8_0", "llama.cpp"),
    ]
    assert {cell.name: (cell.input, cell.timeout) for cell, *_ in found} == {"turn-2048": (2048, 9), "decode-8": (32, 9)}


def test_a_measurement_has_its_instruction_set_and_an_error_is_a_figure(monkeypatch, tmp_path):
    class Engine:
        def __init__(self, *_):
            pass

        def measure(self, *_):
            seen.append({name: gguf_files.os.environ.get(name) for name in ("QUIRE_CPU_ISA", "LD_LIBRARY_PATH")})
            raise engines.MeasurementError("died")

    seen, args = [], argparse.Namespace(quire="Q", gguf="F", checkpoint=None, types=["bf16"], threads=2, work=tmp_path)
    (tmp_path / "llama-avx2").mkdir()
    monkeypatch.setitem(gguf_files.ENGINES, "Quire", Engine)
    before = dict(gguf_files.os.environ)
    found = gguf_files.measure(args, "bf16", "avx2", "Quire", None)
    assert found["error"] == "MeasurementError: died" and found["seconds"] >= 0
    assert seen == [{"QUIRE_CPU_ISA": "avx2", "LD_LIBRARY_PATH": str(tmp_path / "llama-avx2")}]
    assert dict(gguf_files.os.environ) == before


def test_llamas_kernels_for_one_instruction_set_lie_alone(tmp_path):
    built, work = tmp_path / "built", tmp_path / "work"
    built.mkdir(), work.mkdir()
    for name in ("llama-bench", "llama-batched-bench", "llama-server", "libllama.so.0", "libggml-cpu-haswell.so", "libggml-cpu-zen4.so", "notes"):
        (built / name).touch()
    args = argparse.Namespace(llama=built, work=work)
    found = {file.name for file in gguf_files.llama_of(args, "avx2").iterdir()}
    assert found == {"llama-bench", "llama-batched-bench", "llama-server", "libllama.so.0", "libggml-cpu-haswell.so"}
    with pytest.raises(RuntimeError, match="libggml-cpu-skylakex.so"):
        gguf_files.llama_of(args, "avx512")
