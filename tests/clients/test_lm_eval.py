"""lm-eval: its models for completions, with a tokenizer of its own and with the server's, and for chats, on tasks of our own."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from conftest import MODEL, ROOT
from program import ENVIRONMENTS

HERE = pathlib.Path(__file__).parent
CLIENT = "lm-eval " + re.search(r"^lm_eval==(.*)$", (HERE / "requirements-lm-eval.txt").read_text(), re.M)[1]
COMPLETIONS = "local-completions", "/v1/completions", ["quire_sums_prompt", "quire_choices"]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@pytest.mark.parametrize("api, arguments", [
    (COMPLETIONS, f"tokenizer_backend=huggingface,tokenizer={ROOT / 'models' / MODEL}"),
    (COMPLETIONS, "tokenizer_backend=remote"),
    (("local-chat-completions", "/v1/chat/completions", ["quire_sums"]), ""),
], ids=["completions_local_tokenizer", "completions_remote_tokenizer", "chat"])
def test_tasks(server, tmp_path, api, arguments):
    kind, path, tasks = api
    given = f"model={MODEL},base_url={server.url}{path},num_concurrent=4,max_retries=1" + ("," + arguments if arguments else "")
    command = [ENVIRONMENTS / "lm-eval/bin/lm_eval", "run", "--model", kind, "--model_args", given, "--tasks", *tasks,
               "--include_path", HERE / "programs/lm_eval_tasks", "--output_path", tmp_path / "results"]
    if kind == "local-chat-completions":
        command.append("--apply_chat_template")
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **OFFLINE}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    [written] = (tmp_path / "results").rglob("results*.json")
    results = json.loads(written.read_text())["results"]
    right = {name: values.get("exact_match,sum", values.get("acc,none")) for name, values in results.items()}
    assert right == dict.fromkeys(tasks, 1), results
