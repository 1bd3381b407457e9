"""What mlx-lm makes of the tensors of transformers' models, and back."""

import re

import torch


def is_shifted(name: str) -> bool:
    """Whether a norm is stored around zero by transformers and around one by mlx-lm."""
    kinds = ("layernorm.weight", "q_norm.weight", "k_norm.weight", "model.norm.weight")
    return name.endswith((*kinds, "language_model.norm.weight"))


def to_mlx(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As mlx-lm converts a hybrid model."""
    converted = {}
    for name, tensor in tensors.items():
        if name.startswith(("model.visual.", "mtp.")):
            continue
        if name.endswith("conv1d.weight"):
            tensor = tensor.transpose(1, 2).contiguous()
        if is_shifted(name):
            tensor = (tensor.float() + 1.0).to(tensor.dtype)
        if name.startswith("model.language_model."):
            name = "language_model.model." + name.removeprefix("model.language_model.")
        converted[name] = tensor
    return converted


def from_mlx(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    restored = {}
    for name, tensor in dense.items():
        if name.startswith("language_model.model."):
            name = "model.language_model." + name.removeprefix("language_model.model.")
        if name.endswith("conv1d.weight"):
            tensor = tensor.transpose(1, 2)
        restored[name] = tensor - 1.0 if is_shifted(name) else tensor
    return restored


def to_mlx_gemma(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As mlx-lm converts Gemma 4."""
    converted = {}
    for name, tensor in tensors.items():
        if re.match(r"model\.(vision|audio|embed_vision|embed_audio)", name):
            continue
        if name.startswith("model.language_model."):
            name = "language_model.model." + name.removeprefix("model.language_model.")
        stem = re.sub(r"(experts\.).*", r"\1switch_glu.", name)
        if name.endswith("experts.gate_up_proj"):
            for part, rows in zip(("gate", "up"), tensor.chunk(2, 1)):
                converted[f"{stem}{part}_proj.weight"] = rows.contiguous()
        elif name.endswith("experts.down_proj"):
            converted[stem + "down_proj.weight"] = tensor
        else:
            converted[name] = tensor
    return converted


def from_mlx_gemma(dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    restored = {}
    for name, tensor in dense.items():
        if name.startswith("language_model.model."):
            name = "model.language_model." + name.removeprefix("language_model.model.")
        restored[name] = tensor
        if name.endswith("switch_glu.down_proj.weight"):
            stem = name.removesuffix("switch_glu.down_proj.weight")
            parts = [dense[f"{stem}switch_glu.{part}_proj.weight"] for part in ("gate", "up")]
            restored[stem + "gate_up_proj"] = torch.cat(parts, 1)
            restored[stem + "down_proj"] = tensor
    return restored
