"""Folders of quantised weights whose config or tensors are damaged: `quire run` ends with exit status 1, no text, and one
sentence that names the file, key or tensor. Each row changes one thing of a checkpoint that is served as it is."""
import concurrent.futures
import json
import os
import re
import shutil
import struct
import subprocess

import pytest

from conftest import BIN, ROOT, start_server

pytestmark = pytest.mark.skipif("QUIRE_BASE_URL" in os.environ, reason="starts programs of its own")

MODELS = ROOT / "tests/parity/models"
NAN16, NAN32, INFINITE32 = b"\xff\x7f", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I32": 4, "I64": 8, "I8": 1,
         "U32": 4, "U8": 1}


class Folder:
    """A checkpoint's config, the file beside it that some have, and tensors by name: [dtype, shape, bytes]."""

    def __init__(self, name):
        self.source = MODELS / name
        self.config = json.loads((self.source / "config.json").read_text())
        beside = self.source / "hf_quant_config.json"
        self.beside = json.loads(beside.read_text()) if beside.exists() else None
        data = (self.source / "model.safetensors").read_bytes()
        start = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:start])
        header.pop("__metadata__", None)
        cut = lambda begin, end: bytearray(data[start + begin:start + end])
        self.tensors = {name: [entry["dtype"], entry["shape"], cut(*entry["data_offsets"])]
                        for name, entry in header.items()}

    def quantization(self):
        if self.beside:
            return self.beside["quantization"]
        return self.config.get("quantization") or self.config["quantization_config"]

    def write(self, folder):
        for file in self.source.iterdir():
            if file.name.startswith(("tokenizer", "generation")):
                shutil.copy(file, folder)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.beside:
            (folder / "hf_quant_config.json").write_text(json.dumps(self.beside))
        header, data = {}, b""
        for name, (dtype, shape, content) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def key(path, value):
    """Sets a key of what is said of the quantisation; "a/b" is b in a."""
    def change(folder):
        *outer, last = path.split("/")
        at = folder.quantization()
        for name in outer:
            at = at[name]
        at[last] = value
    return change


def without(path):
    def change(folder):
        *outer, last = path.split("/")
        at = folder.quantization()
        for name in outer:
            at = at[name]
        del at[last]
    return change


def whole(value):
    """What config.json says of the quantisation, all of it."""
    def change(folder):
        folder.config.pop("quantization", None)
        folder.config["quantization_config"] = value
    return change


def missing(tensor):
    return lambda folder: folder.tensors.pop(tensor)


def renamed(tensor, other):
    def change(folder):
        folder.tensors[other] = folder.tensors.pop(tensor)
    return change


def added(tensor, dtype, shape):
    def change(folder):
        count = BYTES[dtype]
        for length in shape:
            count *= length
        folder.tensors[tensor] = [dtype, shape, bytearray(count)]
    return change


def typed(tensor, dtype):
    """Other elements: as many of them, all zero."""
    def change(folder):
        _, shape, content = folder.tensors[tensor]
        old = BYTES[folder.tensors[tensor][0]]
        folder.tensors[tensor] = [dtype, shape, bytearray(len(content) // old * BYTES[dtype])]
    return change


def shaped(tensor, shape):
    """Another shape of as many elements, or cut to it."""
    def change(folder):
        dtype, _, content = folder.tensors[tensor]
        count = BYTES[dtype]
        for length in shape:
            count *= length
        assert count <= len(content)
        folder.tensors[tensor] = [dtype, shape, content[:count]]
    return change


def bytes_at(tensor, at, value):
    def change(folder):
        content = folder.tensors[tensor][2]
        assert content[at:at + len(value)] != value and at + len(value) <= len(content)
        content[at:at + len(value)] = value
    return change


def replaced(tensor, old, new):
    """Text in a tensor, by another of the same length."""
    def change(folder):
        content = folder.tensors[tensor][2]
        assert old in content and len(old) == len(new)
        folder.tensors[tensor][2] = content.replace(old, new)
    return change


Q, UP, DOWN = (f"model.layers.0.{part}_proj" for part in ("self_attn.q", "mlp.up", "mlp.down"))
EXPERT = "model.layers.0.mlp.experts.1.up_proj"
EXPERTS = "model.layers.0.mlp.experts.down_proj"
STATE = Q + ".weight.quant_state.bitsandbytes__nf4"
SECOND = "model.layers.1.self_attn.q_proj.weight"  # with scales in bytes
GROUP = "config_groups/group_0/weights/"
MX = "config_groups/mx/weights/"

AWQ = [
    ("quant_method", whole({"quant_method": ["awq"], "bits": 4, "group_size": 32})),
    ("quantised by", whole({"quant_method": "awq2", "bits": 4, "group_size": 32})),
    ("quantization_config", whole("awq")),
    ("quantization_config", whole([{"quant_method": "awq"}])),
    ("bits", key("bits", -4)),
    ("bits", key("bits", 10**30)),
    ("bits", key("bits", [4])),
    ("bits", key("bits", 8)),
    ("group_size", key("group_size", -32)),
    (".scales has shape", key("group_size", 2**62)),
    (".scales has shape", key("group_size", 64)),
    ("group_size", key("group_size", 31)),
    ("version", key("version", "gemv_fast")),
    ("zero point that symmetric weights do not have", key("zero_point", False)),
    ("modules_to_not_convert", key("modules_to_not_convert", {"mlp.gate": True})),
    ("modules_to_not_convert", key("modules_to_not_convert", ["re:[9-0]("])),
    ("self_attn", key("modules_to_not_convert", ["mlp.gate", "self_attn"])),
    ("modules_to_not_convert", key("modules_to_not_convert", [None])),
    ("smoothing", key("smoothing", {"strength": 0.5})),
    ("embed_tokens", missing("model.embed_tokens.weight")),
    (EXPERT + ".scales", missing(EXPERT + ".scales")),
    (EXPERT + ".qzeros", missing(EXPERT + ".qzeros")),
    (EXPERT, missing(EXPERT + ".qweight")),
    (EXPERT + ".qweight has dtype F32", typed(EXPERT + ".qweight", "F32")),
    (EXPERT + ".scales has dtype", typed(EXPERT + ".scales", "F32")),
    (EXPERT + ".qzeros has shape", shaped(EXPERT + ".qzeros", [8, 2])),
    (EXPERT + ".scales has shape", shaped(EXPERT + ".qweight", [64, 4])),
    (EXPERT + ".qweight has shape", shaped(EXPERT + ".qweight", [512])),
    (EXPERT + ".scales", bytes_at(EXPERT + ".scales", 6, NAN16)),
    ("experts.*gate_proj.*: experts of different", typed(EXPERT + ".scales", "BF16")),
    (EXPERT + ".g_idx", added(EXPERT + ".g_idx", "I32", [64])),
    (EXPERT + ".g_idx", key("desc_act", True), added(EXPERT + ".g_idx", "I32", [64])),
    ("lm_head.weight", added("lm_head.weight", "F16", [320, 64])),
]
GPTQ = [
    ("bits", key("bits", 5)),
    ("bits", without("bits")),
    ("bits", key("bits", True)),
    ("qweight has shape", key("bits", 2)),
    ("group_size", key("group_size", 0)),
    ("group_size", key("group_size", None)),
    ("shape", key("group_size", -1)),
    ("checkpoint_format", key("checkpoint_format", "planar")),
    ("zero point", key("sym", True)),
    ("sym", key("sym", "yes")),
    ("desc_act", key("desc_act", 1)),
    ("q_proj.qweight is quantised", key("dynamic", {"-:.*q_proj": {}})),
    ("q_proj.qweight has shape", key("dynamic", {"+:.*q_proj": {"bits": 8}})),
    ("dynamic.*codebook", key("dynamic", {"+:.*q_proj": {"codebook": "e8p"}})),
    ("rotation", key("rotation", "hadamard")),
    ("pack_dtype", key("pack_dtype", "int16")),
    ("codebook", key("codebook", "e8p")),
    (Q + ".g_idx is missing", missing(Q + ".g_idx")),
    (Q + ".g_idx has shape", shaped(Q + ".g_idx", [32])),
    (Q + ".g_idx has dtype", typed(Q + ".g_idx", "I64")),
    (Q + ".g_idx has group 2", bytes_at(Q + ".g_idx", 4, struct.pack("<i", 2))),
    (Q + ".g_idx has group -1", bytes_at(Q + ".g_idx", 4, struct.pack("<i", -1))),
    (Q + ".g_idx has group 2147483647", bytes_at(Q + ".g_idx", 4, struct.pack("<i", 2**31 - 1))),
    (Q + ".qzeros has shape", shaped(Q + ".qzeros", [1, 8])),
    (Q + ".scales", bytes_at(Q + ".scales", 0, NAN16)),
    (Q + ".bias", bytes_at(Q + ".bias", 0, b"\x00\x3c")),
    (Q, renamed(Q + ".qweight", Q + ".weight_packed")),
]
PACKED = [
    ("format", key("format", "marlin-24")),
    ("config_groups", key("config_groups", [])),
    ("config_groups.group_0.weights.num_bits", key(GROUP + "num_bits", 3)),
    ("config_groups.group_0.weights.num_bits", key(GROUP + "num_bits", "4")),
    ("weight_packed has shape", key(GROUP + "num_bits", 8)),
    ("config_groups.group_0.weights.type", key(GROUP + "type", "float")),
    ("config_groups.group_0.weights.group_size", key(GROUP + "group_size", -2)),
    ("weight_scale has shape", key(GROUP + "strategy", "channel")),
    ("config_groups.group_0.weights.strategy", key(GROUP + "strategy", "tensor")),
    ("weight_zero_point", key(GROUP + "symmetric", True)),
    ("config_groups.group_0.targets", key("config_groups/group_0/targets", [["Linear"]])),
    ("says that it is not", key("config_groups/group_0/targets", ["Embedding"])),
    ("ignore", key("ignore", ["re:.*(q_proj"])),
    ("q_proj", key("ignore", ["re:.*q_proj"])),
    ("input_activations", key("config_groups/group_0/input_activations", {"num_bits": 8, "type": "int"})),
    ("sparsity_config", key("sparsity_config", {"format": "sparse-24-bitmask"})),
    ("transform_config", key("transform_config", {"config_groups": {"u": {"type": "hadamard"}}})),
    ("quantization_status", key("quantization_status", "calibration")),
    (Q + ".weight_scale", missing(Q + ".weight_scale")),
    (Q + ".weight_zero_point", missing(Q + ".weight_zero_point")),
    (Q + ".weight_zero_point has dtype", typed(Q + ".weight_zero_point", "I8")),
    (Q + ".weight_shape", bytes_at(Q + ".weight_shape", 0, struct.pack("<q", 64))),
    (Q + ".weight_scale", bytes_at(Q + ".weight_scale", 0, NAN16)),
    (Q + ".weight_g_idx is missing", key(GROUP + "actorder", "group")),
    (Q + ".weight_g_idx has group 7", added(Q + ".weight_g_idx", "I32", [64]),
     bytes_at(Q + ".weight_g_idx", 0, struct.pack("<i", 7))),
]
INPUTS = "config_groups/group_0/input_activations/"
W8A8 = [
    ("config_groups.group_0.format", key("config_groups/group_0/format", "int8")),
    ("config_groups.group_0.weights.num_bits", key(GROUP + "num_bits", 16)),
    ("config_groups.group_0.weights.symmetric", key(GROUP + "symmetric", False)),
    ("config_groups.group_0.weights.actorder", key(GROUP + "actorder", "group")),
    ("weight_scale has shape", key(GROUP + "strategy", "group"), key(GROUP + "group_size", 32)),
    ("config_groups.group_0.input_activations.num_bits", key(INPUTS + "num_bits", 4)),
    ("config_groups.group_0.input_activations.type", key(INPUTS + "type", "float")),
    ("config_groups.group_0.input_activations.dynamic", key(INPUTS + "dynamic", False)),
    ("config_groups.group_0.input_activations.strategy", key(INPUTS + "strategy", "tensor")),
    ("config_groups.group_0.input_activations.symmetric", key(INPUTS + "symmetric", False)),
    ("config_groups.group_0.input_activations.clip", key(INPUTS + "clip", 0.9)),
    ("config_groups.group_0.output_activations", key("config_groups/group_0/output_activations", {"num_bits": 8})),
    ("says that it is not", key("config_groups/group_0/targets", ["Embedding"])),
    (Q + ".weight has dtype U8", typed(Q + ".weight", "U8")),
    (Q + ".weight has dtype F8_E4M3", typed(Q + ".weight", "F8_E4M3")),
    (Q + ".weight_scale", missing(Q + ".weight_scale")),
    (Q + ".weight_scale", bytes_at(Q + ".weight_scale", 0, NAN32)),
    (Q + ".weight_zero_point", added(Q + ".weight_zero_point", "I8", [64])),
]
FLOATS = [
    ("weight_block_size", key("weight_block_size", [0, 128])),
    ("weight_block_size", key("weight_block_size", [2**40, 128])),
    ("weight_block_size", key("weight_block_size", "128")),
    ("weight_scale_inv has shape", key("weight_block_size", [128, 128])),
    ("weight_scale_inv has shape", without("weight_block_size")),
    ("fmt", key("fmt", "e5m2")),
    ("activation_scheme", key("activation_scheme", "smooth")),
    (".weight", key("modules_to_not_convert", ["model"])),
    (Q + ".weight_scale", missing(Q + ".weight_scale_inv")),
    (Q + ".weight_scale_inv has dtype", typed(Q + ".weight_scale_inv", "I32")),
    (Q + ".weight", bytes_at(Q + ".weight_scale_inv", 4, NAN32)),
    (Q + ".weight has dtype F8_E5M2", typed(Q + ".weight", "F8_E5M2")),
    (Q + ".weight has dtype", typed(Q + ".weight", "I8")),
    (Q + ".weight has shape", shaped(Q + ".weight", [64, 128])),
    (Q + ".weight", bytes_at(Q + ".weight", 9, b"\x7f")),
    (Q + ".input_scale", added(Q + ".input_scale", "F32", [])),
    (Q + ".input_scale", key("activation_scheme", "static"), added(Q + ".input_scale", "F32", [64])),
]
MIXED = [
    ("config_groups.mx.format", key("config_groups/mx/format", "marlin-24")),
    ("config_groups.mx.weights.type", key("config_groups/mx/format", "int-quantized")),
    ("config_groups.mx.weights.group_size", key(MX + "group_size", 16)),
    ("config_groups.mx.weights.num_bits", key(MX + "num_bits", 6)),
    ("config_groups.rows.input_activations.dynamic", key("config_groups/rows/input_activations/dynamic", "local")),
    ("config_groups.rows.input_activations.type", key("config_groups/rows/input_activations/type", "int")),
    ("config_groups.rows.weights.strategy", key("config_groups/rows/weights/strategy", "group")),
    ("self_attn", without("config_groups/rows")),
    (UP + ".weight_scale has shape", shaped(UP + ".weight_scale", [2, 96])),
    (UP + ".weight_scale", typed(UP + ".weight_scale", "F16")),
    (UP + ".weight_packed has shape", shaped(UP + ".weight_packed", [96, 16])),
    (UP + ".weight", bytes_at(UP + ".weight_scale", 0, b"\xff")),
    (DOWN + ".weight", bytes_at(DOWN + ".weight_scale", 0, INFINITE32)),
    (DOWN + ".weight_scale", missing(DOWN + ".weight_scale")),
]
NVFP4 = [
    ("config_groups.group_0.weights.group_size", key(GROUP + "group_size", 32)),
    ("config_groups.group_0.weights.strategy", key(GROUP + "strategy", "group")),
    (Q + ".weight_global_scale", missing(Q + ".weight_global_scale")),
    (Q + ".weight", bytes_at(Q + ".weight_global_scale", 0, bytes(4))),
    (Q + ".weight", bytes_at(Q + ".weight_global_scale", 0, NAN32)),
    (Q + ".weight_scale has dtype", typed(Q + ".weight_scale", "U8")),
    (Q + ".weight_scale has shape", shaped(Q + ".weight_scale", [128, 2])),
    (Q + ".weight", bytes_at(Q + ".weight_scale", 3, b"\x7f")),
    (Q + ".weight_zero_point", added(Q + ".weight_zero_point", "I32", [16, 4])),
]
MODELOPT = [
    ("hf_quant_config.json: .*quant_algo", key("quant_algo", "W4A16_AWQ")),
    ("hf_quant_config.json: .*quant_algo", key("quant_algo", 4)),
    ("hf_quant_config.json: .*group_size", key("group_size", 128)),
    ("hf_quant_config.json: .*kv_cache_quant_algo", key("kv_cache_quant_algo", "NVFP4")),
    ("hf_quant_config.json: .*exclude_modules", key("exclude_modules", ["model.[0-9]*"])),
    ("says that it is not", key("exclude_modules", ["*"])),
    ("hf_quant_config.json: .*quantized_layers", key("quantized_layers", {"model.layers.0": {"quant_algo": "FP8"}})),
    (Q + ".weight_scale_2", missing(Q + ".weight_scale_2")),
    (Q + ".weight_scale_2 has shape", added(Q + ".weight_scale_2", "F32", [2])),
    (Q + ".pre_quant_scale", added(Q + ".pre_quant_scale", "BF16", [64])),
    (Q + ".weight_scale has shape", shaped(Q + ".weight", [64, 32])),
]
MODELOPT_FLOATS = [
    (Q + ".pre_quant_scale", key("quant_algo", "FP8"), added(Q + ".pre_quant_scale", "BF16", [64])),
    ("weight_scale has shape", key("quant_algo", "FP8_PB_WO")),
    ("gate_proj.weight .48., .* have 144 outputs together", shaped("model.layers.0.mlp.gate_proj.weight", [48, 64])),
    ("has dtype F8_E4M3", key("quant_algo", "NVFP4")),
    ("k_scale", key("kv_cache_quant_algo", None)),
    ("hf_quant_config.json: .*exclude_modules", key("exclude_modules", "lm_head")),
    (Q + ".input_scale", added(Q + ".input_scale", "F32", [])),
    (Q + ".weight_scale", missing(Q + ".weight_scale")),
    (Q + ".weight_scale has shape", shaped(Q + ".weight_scale", [64])),
    (Q + ".weight_scale has dtype", typed(Q + ".weight_scale", "U8")),
    (Q, bytes_at(Q + ".weight_scale", 8, NAN32)),
]
OF_Q = "quantized_layers/" + Q
MODELOPT_MIXED = [
    ("hf_quant_config.json: .*quantized_layers", without("quantized_layers")),
    ("hf_quant_config.json: .*quantized_layers.*q_proj.quant_algo", key(OF_Q + "/quant_algo", "W4A8_AWQ")),
    ("q_proj.weight is quantised.* says that it is not", without(OF_Q)),
    ("q_proj.weight has dtype F8_E4M3", key(OF_Q + "/quant_algo", "NVFP4")),
    (Q + ".input_scale", added(Q + ".input_scale", "F32", [64])),
]
NF4 = [
    ("bnb_4bit_quant_type", key("bnb_4bit_quant_type", "fp4")),
    ("load_in_8bit", key("load_in_8bit", True)),
    ("load_in_4bit", key("load_in_4bit", "true")),
    ("bnb_4bit_quant_storage", key("bnb_4bit_quant_storage", "int16")),
    (Q + ".weight has shape", key("bnb_4bit_quant_storage", "float16"), typed(Q + ".weight", "F16")),
    ("llm_int8_skip_modules", key("llm_int8_skip_modules", 3)),
    ("bnb_4bit_blocksize", key("bnb_4bit_blocksize", 128)),
    (STATE, missing(STATE)),
    (STATE, replaced(STATE, b'"blocksize": 64', b'"blocksize": -1')),
    (STATE, replaced(STATE, b'{', b'[')),
    (STATE, typed(STATE, "I32")),
    (Q + ".weight.absmax", missing(Q + ".weight.absmax")),
    (Q + ".weight.absmax has shape", shaped(Q + ".weight.absmax", [64])),
    (Q + ".weight.absmax has dtype", typed(Q + ".weight.absmax", "U8")),
    (Q + ".weight", bytes_at(Q + ".weight.absmax", 0, NAN32)),
    (Q + ".weight.quant_map", bytes_at(Q + ".weight.quant_map", 8, bytes(4))),
    (Q + ".weight has shape", shaped(Q + ".weight", [4096])),
    (SECOND + ".nested_absmax", missing(SECOND + ".nested_absmax")),
    (SECOND, bytes_at(SECOND + ".nested_absmax", 0, NAN32)),
    (SECOND + ".nested_quant_map has shape", shaped(SECOND + ".nested_quant_map", [128])),
]
GPT_OSS = [
    ("quantised by", key("quant_method", "mxfp5")),
    (EXPERTS + "_scales", missing(EXPERTS + "_scales")),
    (EXPERTS, missing(EXPERTS + "_blocks")),
    (EXPERTS + "_blocks has shape", shaped(EXPERTS + "_blocks", [5, 64, 1, 16])),
    (EXPERTS + "_scales has shape", shaped(EXPERTS + "_scales", [5, 2, 64])),
    (EXPERTS + "_scales has dtype", typed(EXPERTS + "_scales", "F16")),
    (EXPERTS + "_blocks has dtype", typed(EXPERTS + "_blocks", "I8")),
    (EXPERTS, bytes_at(EXPERTS + "_scales", 0, b"\xff")),
    (EXPERTS + "_bias has shape", shaped(EXPERTS + "_bias", [5, 32])),
]
MLX = [
    ("bits", key("bits", 7)),
    ("bits", key("bits", "4")),
    ("groups", key("group_size", 48)),
    ("bits and group_size", without("bits")),
    ("mode", key("mode", "exponential")),
    ("q_proj", key(Q + "/bits", 1)),
    ("q_proj", key(Q + "/bits", 4)),
    (Q, key(Q, False)),
    ("up_proj", key("model.layers.1.mlp.up_proj", True)),
    (Q + ".scales", missing(Q + ".scales")),
    (Q + ".biases", missing(Q + ".biases")),
    (Q + ".biases has dtype", typed(Q + ".biases", "F16")),
    (Q + ".weight has dtype", typed(Q + ".weight", "F32")),
    (Q + ".scales has shape", shaped(Q + ".scales", [64, 2])),
    (Q + ".weight has shape", shaped(Q + ".weight", [128, 8])),
    (Q + ".scales", bytes_at(Q + ".scales", 2, b"\x80\x7f")),
    (Q + ".biases", bytes_at(Q + ".biases", 2, NAN16)),
]

FOLDERS = {"qwen3-moe-awq": AWQ, "llama3-gptq": GPTQ, "qwen3-packed-bf16": PACKED, "qwen3-w8a8-bf16": W8A8,
           "qwen3-fp8-blocks-bf16": FLOATS, "qwen3-mixed-bf16": MIXED, "qwen3-nvfp4-bf16": NVFP4, "qwen3-modelopt-bf16": MODELOPT,
           "qwen3-modelopt-fp8-bf16": MODELOPT_FLOATS,
           "qwen3-modelopt-mixed-bf16": MODELOPT_MIXED, "qwen3-nf4-bf16": NF4, "gpt-oss-mxfp4": GPT_OSS, "qwen3-4bit": MLX}


def run_changed(name, changes, tmp_path):
    """What `quire run` makes of a copy of a checkpoint with these changes."""
    tmp_path.mkdir()
    folder = Folder(name)
    for change in changes:
        change(folder)
    folder.write(tmp_path)
    command = [BIN, "run", tmp_path, "--max-tokens", "1", "Hello"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", FOLDERS)
def test_each_ends_with_an_error_that_names_file_key_or_tensor(name, tmp_path):
    unchanged = run_changed(name, [], tmp_path / "unchanged")
    assert unchanged.returncode == 0, unchanged.stderr
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        run = lambda i: run_changed(name, FOLDERS[name][i][1:], tmp_path / str(i))
        ends = list(pool.map(run, range(len(FOLDERS[name]))))
    for (named, *_), end in zip(FOLDERS[name], ends):
        lines = [line for line in end.stderr.splitlines() if line.startswith("quire: ")]
        assert (end.returncode, end.stdout, len(lines)) == (1, "", 1), (named, end)
        assert re.search(named, lines[0]), (named, lines[0])
        assert str(tmp_path) in lines[0], lines[0]


@pytest.mark.parametrize("name, said", [
    ("qwen3-fp8-blocks-bf16", "rounding them to 8-bit floats"),
    ("qwen3-fp8-static-bf16", "rounding them to 8-bit floats with scales that are stored"),
])
def test_the_start_says_what_is_left_out(name, said):
    with start_server("--kv-cache-memory", "1MiB", model=MODELS / name) as server:
        lines = [line for line in server.log if "activations stay as they are" in line]
    assert len(lines) == 1 and lines[0].startswith("weights ") and lines[0].endswith(said + "\n"), server.log


def test_there_are_enough():
    assert sum(map(len, FOLDERS.values())) > 170
