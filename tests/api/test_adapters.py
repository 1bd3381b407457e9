"""Several LoRA adapters on one model: --lora-modules, --max-loras, --max-lora-rank."""
import json
import os
import subprocess

import pytest
from conftest import BIN, ROOT, start_server, write_adapter

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts servers of its own")
MODEL = str(ROOT / "tests/parity/models/qwen3")
ADAPTERS = ROOT / "tests/parity/adapters/qwen3"


@pytest.fixture(scope="module")
def adapted():
    as_json = json.dumps({"name": "some", "path": str(ADAPTERS / "some")})
    with start_server("--lora-modules", f"all={ADAPTERS / 'all'}", as_json, "--served-model-name", "tiny", model=MODEL) as server:
        yield server


@pytest.fixture(scope="module")
def plain():
    with start_server("--served-model-name", "tiny", model=MODEL) as server:
        yield server


def answer_of(server, model, **fields):
    return server.completion(model=model, temperature=0, logprobs=2, **fields).json()


def test_models_are_listed_with_their_parent(adapted):
    cards = {card["id"]: card for card in adapted.get("/v1/models").json()["data"]}
    assert list(cards) == ["tiny", "all", "some"]
    assert cards["tiny"]["parent"] is None and cards["tiny"]["root"] == "tiny"
    assert cards["all"]["parent"] == "tiny" and cards["all"]["root"] == str(ADAPTERS / "all")
    assert adapted.get("/v1/models/some").json() == cards["some"]
    assert adapted.get("/v1/models/none").status == 404


def test_the_model_chooses_the_adapter_and_base_answers_are_as_without(adapted, plain):
    answers = {model: answer_of(adapted, model) for model in ("tiny", "all", "some")}
    for model, answer in answers.items():
        assert answer["model"] == model
    texts = {answer["choices"][0]["text"] for answer in answers.values()}
    prints = {answer["system_fingerprint"] for answer in answers.values()}
    assert len(texts) == len(prints) == 3
    without = answer_of(plain, "tiny")
    assert without["choices"] == answers["tiny"]["choices"]
    assert without["system_fingerprint"] == answers["tiny"]["system_fingerprint"]
    assert answer_of(adapted, "", max_tokens=4)["model"] == "tiny"
    unknown = adapted.completion(model="none")
    assert unknown.status == 404 and unknown.error()["code"] == "model_not_found"


def test_a_prompt_is_cached_for_its_adapter_alone(adapted):
    prompt = "a prompt of some length, which is more than a block of sixteen tokens"
    for model in ("all", "some", "tiny"):
        usages = [answer_of(adapted, model, prompt=prompt, max_tokens=2)["usage"] for _ in range(2)]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert cached[0] == 0 and cached[1] > 0, model


def test_every_endpoint_takes_them(adapted):
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
    asked = {"/v1/chat/completions": chat, "/v1/messages": chat,
             "/v1/responses": {"input": "Hello", "max_output_tokens": 4, "temperature": 0},
             "/v1/embeddings": {"input": "Hello"}}
    for path, body in asked.items():
        answers = {}
        for model in ("tiny", "all"):
            answer = adapted.post(path, {**body, "model": model})
            assert answer.status == 200, answer.body
            answers[model] = answer.json()
            assert answers[model]["model"] == model, path
        what = {"/v1/chat/completions": "choices", "/v1/messages": "content", "/v1/responses": "output", "/v1/embeddings": "data"}[path]
        assert answers["tiny"][what] != answers["all"][what], path
    several = adapted.completion(model="all", n=3, seed=1, max_tokens=4).json()
    assert len(several["choices"]) == 3
    assert adapted.post("/tokenize", {"model": "all", "prompt": "Hello"}).status == 200


def test_log_and_metrics_name_them(adapted):
    assert answer_of(adapted, "some", max_tokens=2)["model"] == "some"
    adapted.wait_until(lambda: any(" adapter=some " in line for line in adapted.log))
    assert any("adapter some (" in line and "rank 2" in line for line in adapted.log)
    adapted.wait_until(adapted.is_idle)  # figures follow the last token
    text = adapted.get("/metrics").body.decode()
    [line] = [line for line in text.splitlines() if line.startswith("vllm:lora_requests_info{")]
    assert 'max_lora="2"' in line and 'running_lora_adapters=""' in line, line


def refusal(*flags):
    done = subprocess.run([BIN, "serve", MODEL, "--port", "0", "--device", "cpu", *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    write_adapter(tmp_path / "narrow", "model.layers.0.mlp.down_proj", 64, 95)
    assert "model.layers.0.mlp.down_proj.lora_A.weight has shape [2, 95]" in refusal("--lora-modules", f"a={tmp_path}/narrow")
    write_adapter(tmp_path / "head", "lm_head", 320, 64)
    assert "lm_head.lora_A.weight is of a layer that" in refusal("--lora-modules", f"a={tmp_path}/head")
    assert "over --max-lora-rank 2" in refusal("--lora-modules", f"a={ADAPTERS}/all", "--max-lora-rank", "2")
    assert "there is no adapter_config.json" in refusal("--lora-modules", f"a={tmp_path}")
    assert "is the model's own name" in refusal("--lora-modules", f"tiny={ADAPTERS}/all", "--served-model-name", "tiny")
    assert "do nothing without --lora-modules" in refusal("--max-loras", "2")


def test_enable_lora_is_what_is_done_anyway():
    flags = ("--enable-lora", "--max-loras", "1", "--max-lora-rank", "3")
    with start_server(*flags, "--lora-modules", f"all={ADAPTERS}/all", f"some={ADAPTERS}/some", model=MODEL) as server:
        assert any("--enable-lora changes nothing" in line for line in server.log)
        for model in ("all", "some", "all"):
            assert answer_of(server, model, max_tokens=3)["model"] == model
