"""Embeddings, reranking and scores of the demo model, through the socket."""

import base64
import json
import math
import shutil
import struct
import subprocess
import sys

import pytest

from conftest import BIN, ROOT, start_server

sys.path.append(str(ROOT / "tests/hub"))
from gguf_keys import with_keys  # noqa: E402

TEXTS = ["Once upon a time", "123 + 456 = 579", "sort: pear apple fig"]


@pytest.fixture(scope="module")
def demo():
    with start_server("--disable-access-log", model=ROOT / "models/quire-demo") as server:
        yield server


def embed(demo, **fields):
    return demo.post("/v1/embeddings", {"model": "quire-demo", "input": TEXTS, **fields})


def vectors(demo, **fields):
    response = embed(demo, **fields)
    assert response.status == 200, response.json()
    data = response.json()["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


def as_floats(values):
    """The shortest spellings of floats are read as other doubles."""
    return list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values)))


def length(vector):
    return math.sqrt(sum(value * value for value in vector))


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_vectors_have_length_one_and_do_not_depend_on_their_company(demo, pooling):
    together = vectors(demo, pooling=pooling)
    assert all(length(vector) == pytest.approx(1, abs=1e-6) for vector in together)
    alone = [vectors(demo, pooling=pooling, input=text)[0] for text in TEXTS]
    assert together == alone
    assert len({tuple(vector) for vector in together}) == len(TEXTS)


def test_base64_is_the_same_numbers(demo):
    floats = vectors(demo)
    for text, values in zip(vectors(demo, encoding_format="base64"), floats):
        raw = base64.b64decode(text)
        assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == as_floats(values)


def test_dimensions_are_the_first_ones_at_length_one(demo):
    whole, cut = vectors(demo, normalize=False)[0], vectors(demo, dimensions=16)[0]
    first = whole[:16]
    assert cut == pytest.approx([value / length(first) for value in first], rel=1e-6)


def test_ids_are_the_text_that_they_are_of(demo):
    ids = demo.post("/tokenize", {"prompt": TEXTS[0]}).json()["tokens"]
    assert vectors(demo, input=[ids]) == vectors(demo, input=ids) == vectors(demo, input=TEXTS[0])


def test_the_openai_client_reads_them(demo):
    answer = demo.openai().embeddings.create(model="quire-demo", input=TEXTS)  # asks for base64 by itself
    assert [one.embedding for one in answer.data] == [as_floats(vector) for vector in vectors(demo)]
    tokens = sum(len(demo.post("/tokenize", {"prompt": text}).json()["tokens"]) for text in TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens


def test_scores_are_the_share_of_yes_as_log_probabilities_say_it(demo):
    fields = {"text_1": "What is 2 + 2?", "text_2": ["4", "a fig"]}
    answer = demo.post("/v1/score", {"model": "quire-demo", **fields})
    assert answer.status == 200, answer.json()
    prompt = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    for one, document in zip(answer.json()["data"], fields["text_2"]):
        text = prompt.format(fields["text_1"], document)
        logprobs = [forced_logprob(demo, text, word) for word in ("no", "yes")]
        assert one["score"] == pytest.approx(1 / (1 + math.exp(logprobs[0] - logprobs[1])), rel=1e-5)


def forced_logprob(demo, prompt, word):
    """Of a word behind a prompt: as the last token of a longer prompt."""
    fields = {"model": "quire-demo", "prompt": prompt + word, "max_tokens": 1, "prompt_logprobs": 0}
    choice = demo.post("/v1/completions", fields).json()["choices"][0]
    [entry] = choice["prompt_logprobs"][-1].values()
    assert entry["decoded_token"] == word
    return entry["logprob"]


def test_reranking_is_the_scores_in_order(demo):
    documents = ["apple", "4", "Once upon a time", "579"]
    scored = demo.post("/v1/score", {"text_1": "What is 2 + 2?", "text_2": documents}).json()["data"]
    ranked = demo.post("/v1/rerank", {"query": "What is 2 + 2?", "documents": documents}).json()["results"]
    assert sorted((one["score"] for one in scored), reverse=True) == [one["relevance_score"] for one in ranked]
    for one in ranked:
        assert one["document"]["text"] == documents[one["index"]]
        assert one["relevance_score"] == scored[one["index"]]["score"]


def test_the_prefix_of_a_query_is_cached(demo):
    """Last-token pooling reads the cache; a mean needs the states of all tokens."""
    long = "the quick brown fox " * 20

    def cached(**fields):
        return embed(demo, input=long, **fields).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0
    assert cached() > 0
    assert cached(pooling="mean") == 0


def test_the_flag_takes_capitals_as_vllm_spells_them(demo):
    with start_server("--pooling", "MEAN", model=ROOT / "models/quire-demo") as server:
        assert vectors(server) == vectors(demo, pooling="mean") != vectors(demo, pooling="last")


@pytest.mark.parametrize("number, pooling", [(1, "mean"), (3, "last")])
def test_a_gguf_file_says_how_vectors_are_made(tmp_path, number, pooling):
    file = tmp_path / "model.gguf"
    whole = (ROOT / "tests/parity/models/qwen3-gguf-q8/model.gguf").read_bytes()
    file.write_bytes(with_keys(whole, {"qwen3.pooling_type": number}))
    other = "last" if pooling == "mean" else "mean"
    with start_server("--served-model-name", "quire-demo", model=file) as server:
        assert vectors(server) == vectors(server, pooling=pooling) != vectors(server, pooling=other)
        expected = vectors(server, pooling=other)
    with start_server("--served-model-name", "quire-demo", "--pooling", other, model=file) as server:
        assert vectors(server) == expected


def without_head(source, folder):
    """A copy as models for embeddings are saved: no head, no `model.` before names, the architecture's base class."""
    shutil.copytree(source, folder)
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8:8 + size]), raw[8 + size:]
    kept, out = {}, b""
    for name, tensor in header.items():
        if name in ("lm_head.weight", "__metadata__"):
            continue
        begin, end = tensor["data_offsets"]
        kept[name.removeprefix("model.")] = {**tensor, "data_offsets": [len(out), len(out) + end - begin]}
        out += data[begin:end]
    text = json.dumps(kept).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + out)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = [config["architectures"][0].replace("ForCausalLM", "Model")]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["llama3", "mistral"])
def test_untied_models_without_a_head_give_embeddings(tmp_path, name):
    whole = ROOT / "tests/parity/models" / name
    headless = without_head(whole, tmp_path / name)
    body = {"input": [[5, 6, 7], [8]]}
    with start_server("--disable-access-log", model=whole) as server:
        expected = server.post("/v1/embeddings", body).json()["data"]
    with start_server("--disable-access-log", "--runner", "pooling", model=headless) as server:
        assert server.post("/v1/embeddings", body).json()["data"] == expected
        refused = server.post("/v1/rerank", {"query": "q", "documents": ["d"]})
        assert refused.status == 400 and "no head" in refused.error()["message"]
        assert server.post("/v1/completions", {"prompt": "x"}).status == 404
    done = subprocess.run([BIN, "serve", headless, "--port", "0"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "lm_head.weight" in done.stderr and "--runner pooling" in done.stderr
