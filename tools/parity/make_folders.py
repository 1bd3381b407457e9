#!/usr/bin/env python3
"""Writes the checkpoints of tests/parity/models in formats that were made for GPUs, with goldens.

    make_folders.py [NAME ...]

AutoAWQ's, GPTQ's, compressed-tensors', modelopt's and bitsandbytes' layouts, written from their descriptions and read by Quire;
what Quire unpacks is compared with these libraries' own values in src/formats/folder_codes_test.cpp.
The oracle is transformers on the dequantised weights, (q - zero) * scale, in float32.
"""

import argparse
import json
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import golden
from folder_variants import GROUP, VARIANTS, Folder
from make_quantized import FLOAT4, FLOAT8, MODELS, decode, nearest, oracle, quantize_floats

NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)  # fmt: skip


def words_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """The stream of each row, lowest bits first, as int32; the last word is filled up with zeros."""
    stream = (codes[..., None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32)) & 1
    rows = stream.reshape(len(codes), -1).astype(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 32)))
    return np.packbits(rows, axis=-1, bitorder="little").view(np.int32)


def awq_words(codes: np.ndarray) -> np.ndarray:
    """8 neighbours of a row in a word, in AutoAWQ's order."""
    eight = codes.reshape(len(codes), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].astype(np.uint32)
    words = (eight << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return words.view(np.int32)


def quantize(w: np.ndarray, bits: int, group_of: np.ndarray, symmetric: bool, dtype: torch.dtype):
    """q [n, k], zeros [n, groups], scales [n, groups] and the dequantised matrix, float32."""
    groups, top = int(group_of.max()) + 1, 2**bits - 1
    q = np.zeros(w.shape, np.int64)
    zeros = np.zeros((len(w), groups), np.int64)
    scales = torch.zeros((len(w), groups), dtype=dtype)
    for g in range(groups):
        part = w[:, group_of == g].astype(np.float64)
        low, high = np.minimum(part.min(-1), 0), np.maximum(part.max(-1), 0)
        if symmetric:
            low, high = -np.maximum(-low, high), np.maximum(-low, high)
        scales[:, g] = torch.from_numpy(np.maximum(high - low, 1e-4) / top).to(dtype)
        s = scales[:, g].double().numpy()
        zeros[:, g] = (top + 1) // 2 if symmetric else np.clip(np.rint(-low / s), 1, top)
        q[:, group_of == g] = np.clip(np.rint(part / s[:, None]) + zeros[:, g, None], 0, top)
    values = (q - zeros[:, group_of]).astype(np.float32) * scales.float().numpy()[:, group_of]
    return q, zeros, scales, values


def float8(w: np.ndarray, rows: int, columns: int, powers: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """e4m3 values [n, k], float32 scales of blocks, or e8m0 ones, and the dequantised matrix."""
    n, k = w.shape
    at = np.arange(n)[:, None] // rows, np.arange(k)[None] // columns
    largest = np.zeros((int(at[0].max()) + 1, int(at[1].max()) + 1), np.float32)
    np.maximum.at(largest, np.broadcast_arrays(*at), np.abs(w))
    scales = torch.from_numpy(largest / 448)
    if powers:
        scales = torch.exp2(torch.ceil(torch.log2(scales))).to(torch.float8_e8m0fnu)
    values = (torch.from_numpy(w) / scales.float()[at]).to(torch.float8_e4m3fn)
    return values, scales, values.float() * scales.float()[at]


def store_floats(variant: Folder, layer: str, w: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    n, k = w.shape
    algorithm = variant.config.get("quant_algo")
    for name, own in variant.config.get("quantized_layers", {}).items():
        if f".{name}." in f".{layer}.":
            algorithm = own["quant_algo"]
    if algorithm == "FP8":
        values, scales, dense = float8(w, n, k)
        stored = {layer + ".weight": values, layer + ".weight_scale": scales.reshape(())}
        return stored | {layer + ".input_scale": torch.tensor(0.01)}, dense
    if "nvfp4" in variant.config.get("format", "") or algorithm in ("NVFP4", "W4A16_NVFP4"):
        return store_nvfp4(layer, w, divides="format" in variant.config, inputs=algorithm != "W4A16_NVFP4")
    if algorithm == "FP8_PER_CHANNEL_PER_TOKEN":
        values, scales, dense = float8(w, 1, k)
        stored = {layer + ".weight": values, layer + ".weight_scale": scales.reshape(n)}
        for name in "kv":
            if layer.endswith(name + "_proj"):
                stored[f"{layer}.{name}_scale"] = torch.tensor(0.01)
        return stored, dense
    if variant.config["quant_method"] == "bitsandbytes":
        return store_nf4(layer, w, nested="layers.1." in layer)
    if variant.config.get("activation_scheme") == "static":
        scale = torch.tensor(np.abs(w).max() / 448).to(variant.dtype)
        values = (torch.from_numpy(w) / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
        stored = {layer + ".weight": values, layer + ".weight_scale_inv": scale}
        stored[layer + ".activation_scale"] = torch.tensor(0.01, dtype=variant.dtype)
        return stored, values.float() * scale.float()
    if variant.config["quant_method"] == "fp8":
        values, scales, dense = float8(w, *variant.config["weight_block_size"], powers="scale_fmt" in variant.config)
        return {layer + ".weight": values, layer + ".weight_scale_inv": scales}, dense
    if layer.endswith(("gate_proj", "up_proj")):
        packed, scales, dense = quantize_floats(w, "mxfp4", 32)
        return {layer + ".weight_packed": packed.view(torch.uint8), layer + ".weight_scale": scales}, dense
    if layer.endswith("down_proj"):
        values, scales, dense = float8(w, n, k)
        return {layer + ".weight": values, layer + ".weight_scale": scales.reshape(1)}, dense
    values, scales, dense = float8(w, 1, k)
    return {layer + ".weight": values, layer + ".weight_scale": scales}, dense


def store_nvfp4(layer: str, w: np.ndarray, divides: bool, inputs: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    groups = w.reshape(len(w), -1, 16)
    largest = np.float32(np.abs(w).max() / (FLOAT8[-1] * FLOAT4[-1]))  # so that the largest scale is that of 8 bits
    of_matrix = np.float32(1) / largest if divides else largest
    wide = lambda scale: scale / of_matrix if divides else scale * of_matrix
    codes = nearest(np.abs(groups).max(-1) / FLOAT4[-1] / largest, FLOAT8)
    scales = wide(decode(codes, FLOAT8)).astype(np.float32)
    q = nearest(groups / np.where(scales > 0, scales, 1)[..., None], FLOAT4)
    dense = (decode(q, FLOAT4) * scales[..., None]).astype(np.float32).reshape(w.shape)
    q = q.reshape(w.shape).astype(np.uint8)
    packed = torch.from_numpy(np.ascontiguousarray(q[:, ::2] | q[:, 1::2] << 4))
    stored = {layer + ".weight_scale": torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn)}
    if divides:
        stored |= {layer + ".weight_packed": packed, layer + ".weight_global_scale": torch.tensor([of_matrix])}
        stored[layer + ".input_global_scale"] = torch.tensor([130.0])
    else:
        stored |= {layer + ".weight": packed, layer + ".weight_scale_2": torch.tensor(of_matrix)}
        stored |= {layer + ".input_scale": torch.tensor(0.01)} if inputs else {}
    return stored, torch.from_numpy(dense)


def store_nf4(layer: str, w: np.ndarray, nested: bool) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    flat = w.reshape(-1, 64)
    scales = np.abs(flat).max(-1).astype(np.float32)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(w.shape)}
    stored = {".quant_map": torch.from_numpy(NF4.copy())}
    if nested:  # what a scale differs from their mean by, of 32 scales each: published ones have 256
        block, offset = 32, np.float32(scales.mean())
        table = np.sort(np.concatenate([-np.geomspace(1, 1e-3, 127), [0], np.geomspace(1e-3, 1, 128)])).astype(np.float32)
        rest = (scales - offset).reshape(-1, block)
        factors = np.abs(rest).max(-1).astype(np.float32)
        codes = np.abs(rest[..., None] / factors[:, None, None] - table).argmin(-1).astype(np.uint8)
        scales = (table[codes] * factors[:, None]).astype(np.float32).reshape(-1) + offset
        state |= {"nested_blocksize": block, "nested_dtype": "float32", "nested_offset": float(offset)}
        stored |= {".absmax": torch.from_numpy(codes.reshape(-1)), ".nested_absmax": torch.from_numpy(factors)}
        stored[".nested_quant_map"] = torch.from_numpy(table)
    else:
        stored[".absmax"] = torch.from_numpy(scales)
    codes = np.abs(flat[..., None] / scales[:, None, None] - NF4).argmin(-1).astype(np.uint8)
    dense = (NF4[codes] * scales[:, None]).astype(np.float32).reshape(w.shape)
    codes = codes.reshape(-1)
    stored[""] = torch.from_numpy(codes[::2] << 4 | codes[1::2]).reshape(-1, 1)
    stored[".quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    return {layer + ".weight" + name: tensor for name, tensor in stored.items()}, torch.from_numpy(dense)


def store_signed(layer: str, w: np.ndarray, variant: Folder) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Scales of layer 0 are float32, as some programs leave them; those of k_proj are one for all."""
    wide = ".0." in layer
    largest = np.abs(w).max(keepdims=True) if layer.endswith("k_proj") else np.abs(w).max(-1, keepdims=True)
    scales = torch.from_numpy(np.maximum(largest, 1e-4) / 127).to(torch.float32 if wide else variant.dtype)
    q = np.clip(np.rint(w / scales.float().numpy()), -128, 127).astype(np.int8)
    stored = {layer + ".weight": torch.from_numpy(q), layer + ".weight_scale": scales}
    return stored, torch.from_numpy(q.astype(np.float32)) * scales.float()


def store(variant: Folder, layer: str, w: np.ndarray) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    if layer.endswith(variant.signed or ("-",)):
        return store_signed(layer, w, variant)
    n, k = w.shape
    method, wide = variant.config["quant_method"], layer.endswith(variant.wide or ("-",))
    bits = 8 if wide else 4
    size = k if wide else variant.config.get("group_size", GROUP)
    group_of = np.arange(k) // size
    if layer.endswith(variant.shuffled or ("-",)):
        group_of = np.random.default_rng(k).permutation(group_of)
    q, zeros, scales, values = quantize(w, bits, group_of, wide, variant.dtype)
    if method == "awq":
        parts = {"qweight": awq_words(q.T), "qzeros": awq_words(zeros.T), "scales": scales.T}
    elif method == "gptq":
        parts = {
            "qweight": words_of(q, bits).T,
            "qzeros": words_of(zeros.T - 1, bits),
            "scales": scales.T,
            "g_idx": group_of.astype(np.int32),
            "bias": torch.zeros(n, dtype=variant.dtype),  # of a family that has none
        }
    else:
        parts = {
            "weight_packed": words_of(q, bits),
            "weight_scale": scales,
            "weight_shape": np.array([n, k], np.int64),
        }
        if not wide:
            parts["weight_zero_point"] = words_of(zeros.T, bits).T
    stored = {f"{layer}.{key}": torch.as_tensor(x).contiguous() for key, x in parts.items()}
    return stored, torch.from_numpy(values)


def convert(variant: Folder, tensors: dict[str, torch.Tensor]):
    stored, dense = {}, {}
    for name, tensor in tensors.items():
        layer = name.removesuffix(".weight")
        if tensor.dim() != 2 or "embed" in name or layer.endswith(variant.plain or ("-",)):
            stored[name] = tensor.to(variant.dtype)
            dense[name] = stored[name].float()
            continue
        method = variant.config.get("quant_method")
        groups = variant.config.get("config_groups", {}).values()
        floats = method not in ("awq", "gptq") and not any(g["weights"]["type"] == "int" for g in groups)
        parts, dense[name] = (store_floats if floats else store)(variant, layer, tensor.float().numpy())
        stored |= parts
    return stored, dense


def fuse_numbered(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts as transformers' module has them: gate and up of all in one, and down."""
    fused = {name: tensor for name, tensor in dense.items() if ".experts." not in name}
    stems = sorted({name.split(".experts.")[0] for name in dense if ".experts." in name})
    for stem in stems:
        count = sum(name.startswith(stem + ".experts.") for name in dense) // 3
        of = lambda e, part: dense[f"{stem}.experts.{e}.{part}_proj.weight"]
        pairs = [torch.cat([of(e, "gate"), of(e, "up")]) for e in range(count)]
        fused[stem + ".experts.gate_up_proj"] = torch.stack(pairs)
        fused[stem + ".experts.down_proj"] = torch.stack([of(e, "down") for e in range(count)])
    return fused


def round_tokens(model: torch.nn.Module, whole: tuple[str, ...]) -> None:
    """From now on, what goes into linear layers is rounded to 8 bits, with the largest of each token as 127."""

    def rounded(_, inputs):
        largest = inputs[0].abs().amax(-1, keepdim=True).clamp_min(1e-30)
        return (torch.round(inputs[0] * (127 / largest)) * (largest / 127), *inputs[1:])

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and not name.endswith(whole):
            module.register_forward_pre_hook(rounded)


def add_rounded(model: torch.nn.Module, whole: tuple[str, ...], cases: list[dict]) -> None:
    """Beside each case, its tokens' log-probabilities with rounded activations."""
    round_tokens(model, whole)
    for one in cases:
        values = golden.next_token_log_probs(model, one["prompt"] + one["tokens"])[-golden.NEW_TOKENS :]
        one["rounded_logprobs"] = [round(float(v), 6) for v in values]


def sorted_keys(value, name: str = ""):
    """The order of rules counts, that of other keys does not."""
    if not isinstance(value, dict):
        return value
    return {key: sorted_keys(value[key], key) for key in (value if name == "dynamic" else sorted(value))}


def write(variant: Folder) -> str:
    base, folder = MODELS / variant.base, MODELS / variant.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stored, dense = convert(variant, load_file(base / "model.safetensors"))
    dense = fuse_numbered(dense)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((base / "config.json").read_text())
    if "quant_algo" in variant.config:
        beside = {"producer": {"name": "modelopt"}, "quantization": variant.config}
        (folder / "hf_quant_config.json").write_text(json.dumps(beside, indent=2, sort_keys=True) + "\n")
    else:
        config["quantization_config"] = variant.config
    key = "torch_dtype" if "torch_dtype" in config else "dtype"
    config[key] = str(variant.dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(sorted_keys(config), indent=2) + "\n")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(base / name, folder / name)
    model = oracle(base, dense, torch.float32)
    cases = [golden.case(variant.name, model, length) for length in golden.PROMPT_LENGTHS]
    rounding = {"float64": round(golden.difference(oracle(base, dense, torch.float64), cases), 7)}
    if variant.dtype == torch.bfloat16:
        rounding["bfloat16"] = round(golden.difference(oracle(base, dense, torch.bfloat16), cases), 4)
    if variant.whole is not None:
        add_rounded(oracle(base, dense, torch.float32), variant.whole, cases)
    head = {
        "checkpoint": variant.name,
        "family": config["model_type"],
        "config_keys": "old" if "torch_dtype" in config else "new",
        "weights_dtype": config[key],
    }
    return golden.write(folder, head, rounding, cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    golden.set_up()
    for variant in VARIANTS:
        if not args.names or variant.name in args.names:
            print(f"{variant.name:22} {write(variant)}", flush=True)


if __name__ == "__main__":
    main()
