"""The checkpoints that make_folders.py writes: each format with a base, what its config says and which layers it leaves out."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Folder:
    name: str
    base: str
    dtype: torch.dtype  # of scales and of what is not quantised
    config: dict  # quantization_config, or what hf_quant_config.json says
    plain: tuple[str, ...]  # ends of the names of layers that are not quantised
    wide: tuple[str, ...] = ()  # ends of the names of layers with 8 bits by rows
    shuffled: tuple[str, ...] = ()  # ends of the names of layers whose groups are no neighbours
    signed: tuple[str, ...] = ()  # ends of the names of layers with signed bytes by rows
    whole: tuple[str, ...] | None = None  # None, or ends of the names of layers whose activations are not rounded


GROUP = 32
PACKED_4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": False}
PACKED_8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}
TOKENS_8 = {"num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True, "observer": None}
NVFP4_VALUES = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
BLOCK = [24, 48]
POWERS = {"quant_method": "fp8", "expert_dtype": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [48, 128]}


def float8_group(target: str, strategy: str) -> dict:
    activations = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True}
    return {"targets": [target], "format": "float-quantized", "weights": weights, "input_activations": activations}


VARIANTS = [
    Folder(
        "qwen3-moe-awq",
        "qwen3-moe-bf16",
        torch.float16,
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": GROUP,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": ["mlp.gate"],
        },
        ("mlp.gate", "layers.0.self_attn.o_proj"),
    ),
    # One layer's columns in the order of their activations: its groups are no neighbours.
    Folder(
        "llama3-gptq",
        "llama3",
        torch.float16,
        {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False},
        ("lm_head",),
        shuffled=("layers.1.self_attn.q_proj", "layers.0.mlp.down_proj"),
    ),
    # Layers with formats of their own, some of them parts of a fused matrix; the first rule that fits counts.
    Folder(
        "qwen3-gptq-dynamic-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": GROUP,
            "desc_act": False,
            "sym": False,
            "dynamic": {
                "lm_head": {},
                "model.embed_tokens": {},
                "-:.*layers\\.1\\.self_attn.*": {},
                "model.layers.1.mlp.down_proj": {},
                "+:.*(self_attn\\.q|mlp\\.down)_proj": {"bits": 8, "group_size": -1, "sym": True},
            },
        },
        tuple(f"layers.1.self_attn.{x}_proj" for x in "qkvo"),
        wide=("layers.0.self_attn.q_proj", "layers.0.mlp.down_proj"),
    ),
    # The last group of the layers with 96 columns is shorter; one of them has its groups' columns apart.
    Folder(
        "qwen3-gptq-ragged-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {"quant_method": "gptq", "bits": 4, "group_size": 2 * GROUP, "desc_act": True, "sym": False},
        ("lm_head",),
        shuffled=("layers.1.mlp.down_proj",),
    ),
    Folder(
        "qwen3-packed-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": PACKED_4, "input_activations": None},
                "group_1": {"targets": ["re:.*down_proj"], "weights": PACKED_8},
            },
            "ignore": ["lm_head", "re:.*layers\\.1\\.self_attn\\.o_proj"],
        },
        ("layers.1.self_attn.o_proj",),
        wide=("down_proj",),
    ),
    # Activations of 8 bits with a scale for each token, with weights of signed bytes and of packed 4 bits (W8A8, W4A8).
    Folder(
        "qwen3-w8a8-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "compressed-tensors",
            "format": "mixed-precision",
            "quantization_status": "compressed",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "format": "int-quantized",
                    "weights": PACKED_8,
                    "input_activations": TOKENS_8,
                    "output_activations": None,
                },
                "group_1": {
                    "targets": ["re:.*down_proj"],
                    "format": "pack-quantized",
                    "weights": PACKED_4,
                    "input_activations": TOKENS_8,
                },
                "group_2": {"targets": ["re:.*layers\\.1\\.self_attn\\.v_proj"], "format": "int-quantized", "weights": PACKED_8},
            },
            "ignore": ["lm_head"],
        },
        ("lm_head",),
        signed=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"),
        whole=("layers.1.self_attn.v_proj", "lm_head"),
    ),
    # Blocks that do not divide the matrices.
    Folder(
        "qwen3-fp8-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": BLOCK,
            "modules_to_not_convert": ["model.layers.0.self_attn.k_proj"],
        },
        ("layers.0.self_attn.k_proj",),
    ),
    # Blocks of whole groups of 128 columns, which stay in 8 bits; 24 rows do not divide the matrices.
    Folder(
        "qwen3-fp8-blocks-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [24, 128]},
        (),
    ),
    # Scales that are powers of two, in a byte each, as DeepSeek's later models have them.
    Folder("qwen3-fp8-e8m0-bf16", "qwen3-bf16", torch.bfloat16, POWERS, ()),
    # One scale for each matrix, and one for its activations, which stay as they are.
    Folder(
        "qwen3-fp8-static-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "fp8",
            "activation_scheme": "static",
            "dequantize": False,
            "weight_block_size": None,
            "modules_to_not_convert": ["lm_head", "model.layers.0.self_attn.k_proj"],
        },
        ("layers.0.self_attn.k_proj",),
    ),
    # Three formats: 8-bit floats with scales by rows, or one for all, and mxfp4.
    Folder(
        "qwen3-mixed-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "compressed-tensors",
            "format": "mixed-precision",
            "config_groups": {
                "rows": float8_group("re:.*self_attn", "channel"),
                "all": float8_group("re:.*down_proj", "tensor"),
                "mx": {
                    "targets": ["re:.*(gate|up)_proj"],
                    "format": "mxfp4-pack-quantized",
                    "weights": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
                },
            },
            "ignore": ["lm_head"],
        },
        (),
    ),
    # Scales of 16 columns in 8 bits, and a number for each matrix that divides them.
    Folder(
        "qwen3-nvfp4-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": NVFP4_VALUES | {"symmetric": True, "dynamic": False},
                    "input_activations": NVFP4_VALUES | {"symmetric": True, "dynamic": "local"},
                }
            },
            "ignore": ["lm_head"],
        },
        (),
    ),
    # The same with a number that multiplies, announced in a file beside config.json.
    Folder(
        "qwen3-modelopt-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": None,
            "group_size": 16,
            "exclude_modules": ["lm_head", "model.layers.1.self_attn*"],
        },
        tuple(f"layers.1.self_attn.{x}_proj" for x in "qkvo"),
    ),
    # 8-bit floats with a scale for each row, and numbers for keys and values.
    Folder(
        "qwen3-modelopt-fp8-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head", "model.layers.0.mlp*"],
        },
        tuple(f"layers.0.mlp.{x}_proj" for x in ("gate", "up", "down")),
    ),
    # Layers, or all below a name, with algorithms of their own; what none has stays as it is.
    Folder(
        "qwen3-modelopt-mixed-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_algo": "MIXED_PRECISION",
            "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head"],
            "quantized_layers": {
                **{f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"} for i in (0, 1) for x in "qkvo"},
                "model.layers.0.mlp": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                "model.layers.1.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16},
            },
        },
        ("layers.1.mlp.gate_proj", "layers.1.mlp.up_proj"),
    ),
    # Scales of 64 values in float32, or in bytes (the second layer's); rows of 96 columns begin within a block.
    Folder(
        "qwen3-nf4-bf16",
        "qwen3-bf16",
        torch.bfloat16,
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_quant_storage": "uint8",
            "llm_int8_skip_modules": ["lm_head", "model.layers.0.self_attn.k_proj"],
        },
        ("layers.0.self_attn.k_proj",),
    ),
]
