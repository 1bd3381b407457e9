"""`quire list`, `quire show` and `quire rm`."""
import fcntl
import json
import shutil

import huggingface_hub
from fake_hub import Repo
from gguf_keys import Header, with_keys
from hub_quire import MODELS, hub, model_files, quire  # noqa: F401 (fixtures)


def shown(text):
    return {line[:13].strip(): line[14:].strip() for line in text.splitlines()}


def test_list_shows_what_is_there_and_what_is_not_whole(quire, hub):
    code, out, err = quire("list")
    assert (code, out) == (0, "") and "no models in" in err and "quire pull" in err
    hub.repos["org/other"] = Repo(model_files("qwen3", README__md=b"x"))
    quire.pull()
    folder = quire.pull("org/other")
    (folder / "model.safetensors").unlink()
    (quire.cache / "datasets--org--data").mkdir()
    code, out, err = quire("list")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0 and lines[0] == ["NAME", "REVISION", "SIZE", "FETCHED"]
    assert [line[:2] for line in lines[1:]] == [["org/other", "main"], ["org/tiny", "main"]]
    assert "(lacks model.safetensors)" in out.splitlines()[1] and "lacks" not in out.splitlines()[2]
    cache = huggingface_hub.scan_cache_dir(quire.cache)
    sizes = {repo.repo_id: repo.size_on_disk for repo in cache.repos}
    assert f"{round(sizes['org/tiny'] / 1000)} kB" in out.splitlines()[2]


def test_show_a_folder(quire, hub):
    code, out, err = quire("show", str(MODELS / "qwen3"))
    facts = shown(out)
    config = json.loads((MODELS / "qwen3/config.json").read_text())
    assert code == 0 and facts["supported"] == "yes", out
    assert facts["architecture"].startswith(f"Qwen3ForCausalLM, {config['num_hidden_layers']} layers")
    assert facts["context"] == f"{config['max_position_embeddings']} tokens"
    assert facts["weights"].startswith("F32, 4") and "GiB are free" in facts["memory"]
    assert "reasoning" in facts["chat"] or "no template" in facts["chat"]


def count(model):
    """Parameters of a model by the headers of its files."""
    total = 0
    for path in (MODELS / model).glob("*.safetensors"):
        data = path.read_bytes()
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        for name, tensor in header.items():
            if name != "__metadata__":
                size = 1
                for dim in tensor["shape"]:
                    size *= dim
                total += size
    return total


def test_parameters_are_those_of_the_model_before_it_was_quantised(quire, hub):
    expected = f"{round(count('qwen3-bf16') / 1000)} K"
    assert shown(quire("show", str(MODELS / "qwen3-bf16"))[1])["parameters"] == expected
    for quantised in ("qwen3-4bit", "qwen3-6bit", "qwen3-mxfp4"):
        facts = shown(quire("show", str(MODELS / quantised))[1])
        assert facts["parameters"] == expected, (quantised, facts)
        assert "-bit" in facts["weights"]


def test_show_a_gguf_file(quire, hub):
    for name in ("qwen3-gguf-k", "qwen3-gguf-q8", "qwen3-moe-gguf-q5"):
        path = MODELS / name / "model.gguf"
        code, out, err = quire("show", str(path))
        facts = shown(out.split("\n\n")[0])
        assert code == 0 and facts["supported"] == "yes", out
        assert facts["parameters"] == f"{round(Header(path.read_bytes()).parameters / 1000)} K", (name, facts)
        assert "GiB are free" in facts["memory"] and "cache" in facts["memory"]


def test_show_the_tokenizer_and_the_templates_of_a_gguf_file(quire, hub, tmp_path):
    path = tmp_path / "model.gguf"
    whole = (MODELS / "qwen3-gguf-q4-k-m/model.gguf").read_bytes()
    other = "{{ messages[0].content }}\x1b[31m, said twice\n{{ tools }}"
    path.write_bytes(with_keys(whole, {"tokenizer.chat_template.tool_use": other}))
    values = Header(whole).values
    tokens = values["tokenizer.ggml.tokens"]
    code, out, err = quire("show", str(path))
    assert code == 0, out + err
    lines = [line.split(None, 1) for line in out.split("\n\n")[0].splitlines()]
    facts = {line[0]: line[1] for line in lines if line[0] != "tensors"}
    assert facts["tokenizer"] == "gpt2 qwen2" and facts["tokens"] == str(len(tokens))

    def named(id):
        return f"{id} {tokens[id]}"

    for name in ("bos", "eos", "padding"):
        assert facts.get(name) == (named(values[key]) if (key := f"tokenizer.ggml.{name}_token_id") in values else None)
    assert "eos" in facts and facts["answers"].startswith("end ")
    ends = facts["answers"].removeprefix("end").strip().split(", ")
    assert named(tokens.index("<|im_end|>")) in ends and named(values["tokenizer.ggml.eos_token_id"]) in ends
    main, variant = out.split("\n\ntokenizer.chat_template")[1:]
    assert main == f":\n{values['tokenizer.chat_template']}"
    assert variant.startswith(".tool_use:\n{{ messages[0].content }}") and variant.endswith("said twice\n{{ tools }}\n")
    assert "\x1b" not in out


def test_show_a_model_that_is_not_here(quire, hub):
    code, out, err = quire("show", "org/tiny")
    facts = shown(out)
    assert code == 0 and facts["model"] == "org/tiny" and facts["supported"] == "yes", out + err
    assert facts["weights"] == "430 kB, not fetched: `quire pull` does"
    assert not hub.requests("store", "GET")
    quire.pull()
    hub.log.clear()
    facts = shown(quire("show", "org/tiny")[1])
    assert facts["weights"] == "F32, 428 kB" or facts["weights"].startswith("F32, 4")
    assert hub.requests() == []


def test_show_says_why_not(quire, hub, tmp_path):
    files = model_files("qwen3")
    config = json.loads(files["config.json"])
    hub.repos["org/old"] = Repo({**files, "config.json": json.dumps({**config, "architectures": ["GPT2LMHeadModel"]}).encode()})
    code, out, err = quire("show", "org/old")
    assert code == 1 and shown(out)["supported"].startswith("no: ") and "GPT2LMHeadModel is not supported" in out, out
    quire("pull", "org/old")
    assert not any(path.name.endswith("safetensors") for path in quire.cache.rglob("*"))
    code, out, err = quire("show", str(tmp_path))
    assert code == 1 and "config.json" in shown(out)["supported"]


def test_show_names_what_a_model_lacks(quire, hub, tmp_path):
    file = (MODELS / "qwen3-gguf-k/model.gguf").read_bytes()
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(file.replace(b"blk.0.ffn_up.weight", b"Xlk.0.ffn_up.weight", 1))
    code, out, err = quire("show", str(damaged))
    supported = shown(out.split("\n\n")[0])["supported"]
    assert code == 1 and supported.startswith("no: ") and "blk.0.ffn_up.weight" in supported, out
    damaged.unlink()
    shutil.copytree(MODELS / "qwen3", tmp_path, dirs_exist_ok=True)
    weights = tmp_path / "model.safetensors"
    part = b"model.layers.1.mlp.up_proj"
    weights.write_bytes(weights.read_bytes().replace(b'"' + part, b'"X' + part[1:], 1))
    code, out, err = quire("show", str(tmp_path))
    supported = shown(out)["supported"]
    assert code == 1 and "model.layers.1.mlp.up_proj.weight is missing" in supported, out


def test_show_says_that_the_tokenizer_is_of_another_model(quire, hub, tmp_path):
    shutil.copytree(MODELS / "qwen3", tmp_path, dirs_exist_ok=True)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    more = {**tokenizer["added_tokens"][0], "id": 320, "content": "<|more|>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**tokenizer, "added_tokens": [*tokenizer["added_tokens"], more]}))
    code, out, err = quire("show", str(tmp_path))
    assert code == 1 and "the tokenizer has 321 tokens, but the model's vocabulary is 320" in shown(out)["supported"], out


def test_rm_leaves_nothing_and_what_others_need(quire, hub):
    repo = hub.repos["org/tiny"]
    old = quire.pull()
    repo.commit_files(model_files("qwen3", generation_config__json=b'{"eos_token_id": 315}'))
    repo.refs["v2"] = repo.commit
    new = quire.pull("org/tiny@v2")
    blobs = {path.name for path in (quire.cache / "models--org--tiny/blobs").iterdir()}
    code, out, err = quire("rm", "org/tiny@main")
    assert code == 0 and out == "org/tiny@main: removed, 113 bytes\n", out + err
    assert not old.exists() and (new / "model.safetensors").read_bytes() == repo.files["model.safetensors"]
    assert len(blobs - {path.name for path in (quire.cache / "models--org--tiny/blobs").iterdir()}) == 1
    code, out, err = quire("rm", "org/tiny")
    assert code == 0 and "kB" in out
    assert not (quire.cache / "models--org--tiny").exists()
    assert not huggingface_hub.scan_cache_dir(quire.cache).repos
    for name in ("org/tiny", "org/tiny@v2"):
        code, out, err = quire("rm", name)
        assert code == 1 and "quire list" in err
    quire.pull()


def test_rm_removes_models_alone(quire, hub):
    quire.pull()
    for name in ("..", "models--org--tiny", "/", "org", str(quire.cache), "../hub", "org/../tiny"):
        code, out, err = quire("rm", name)
        assert code == 1 and "is no model's name" in err, name
    assert (quire.cache / "models--org--tiny/snapshots").exists()


def test_rm_waits_for_nobody(quire, hub):
    quire.pull()
    lock = next((quire.cache / ".locks/models--org--tiny").iterdir())
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code, out, err = quire("rm", "org/tiny")
        assert code == 1 and "another process is fetching it" in err
    assert quire("rm", "org/tiny")[0] == 0
