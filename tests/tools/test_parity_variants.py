"""tools/parity: the tables of tiny checkpoints load without torch, and say what the folders hold."""
import importlib
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/parity/models"
TABLES = {"variants": "VARIANTS", "variants_frame": "FRAME_VARIANTS", "variants_gemma4": "GEMMA4_VARIANTS",
          "variants_mla": "MLA_VARIANTS", "variants_moe": "MOE_VARIANTS"}


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools/parity")
    yield
    for name in (*TABLES, "variants_gguf"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_what_the_folders_hold(table):
    found = getattr(importlib.import_module(table), TABLES[table])
    assert found
    for variant in found:
        golden = json.loads((MODELS / variant.name / "golden.json").read_text())
        assert (golden["family"], golden["weights_dtype"]) == (variant.family, variant.dtype), variant.name


# Its other checkpoints are compared where they are made, and not kept.
def test_files_in_gguf_are_of_their_table():
    table = {variant.name: variant.checkpoint.family for variant in importlib.import_module("variants_gguf").GGUF_VARIANTS}
    goldens = {path.parent.name: json.loads(path.read_text()) for path in MODELS.glob("*/golden.json")}
    kept = {name: golden["family"] for name, golden in goldens.items() if golden["weights_dtype"] == "gguf"}
    assert len(kept) > 5
    assert kept.items() <= table.items()


def test_every_table_is_tested():
    assert {*TABLES, "variants_gguf"} == {path.stem for path in (ROOT / "tools/parity").glob("variants*.py")}
