"""The few operations on arrays that the functions need, for torch and numpy alike."""

import numpy as np


def is_torch(x):
    return type(x).__module__.split(".")[0] == "torch"


def refuse_gradients(**tensors):
    """These functions are for inference: a graph through them would silently end here."""
    for name, x in tensors.items():
        if getattr(x, "requires_grad", False):
            import torch

            if torch.is_grad_enabled():
                raise ValueError(f"{name} requires a gradient, but there is no backward pass: use torch.no_grad()")


class Arrays:
    """Operations in the kind of array that `example`, a function's first argument, is."""

    def __init__(self, example):
        self.example = example
        self.torch = None
        if is_torch(example):
            import torch

            self.torch = torch

    def check(self, name, x, ndim):
        """x without its gradient; refuses what is no CPU array of the first argument's kind, or has not `ndim` dimensions."""
        if self.torch is not None:
            if not is_torch(x):
                raise TypeError(f"{name} must be a torch tensor as the first argument is, not {type(x).__name__}")
            if x.device.type != "cpu":
                raise ValueError(f"{name} must be on the CPU, not on {x.device}")
            x = x.detach()
        elif not isinstance(x, np.ndarray):
            wanted = "a numpy array or a torch tensor" if x is self.example else "a numpy array as the first argument is"
            raise TypeError(f"{name} must be {wanted}, not {type(x).__name__}")
        if x.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions, not {x.ndim}")
        return x

    def dtype_name(self, x):
        return str(x.dtype).removeprefix("torch.")

    def contiguous(self, x):
        return x.contiguous() if self.torch is not None else np.ascontiguousarray(x)

    def strides(self, x):
        """In elements; those of dimensions of size 1, which mean nothing, as if x were contiguous from there on."""
        strides = list(x.stride()) if self.torch is not None else [s // x.itemsize for s in x.strides]
        for axis in reversed(range(x.ndim)):
            if x.shape[axis] == 1:
                strides[axis] = strides[axis + 1] * x.shape[axis + 1] if axis + 1 < x.ndim else 1
        return strides

    def is_contiguous(self, x):
        return x.is_contiguous() if self.torch is not None else x.flags.c_contiguous

    def as_strided(self, x, shape, strides):
        if self.torch is not None:
            return x.as_strided(shape, strides)
        strides = [s * x.itemsize for s in strides]
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=x.flags.writeable)

    def writable(self, x):
        return self.torch is not None or x.flags.writeable

    def empty(self, shape, like):
        if self.torch is not None:
            return self.torch.empty(shape, dtype=like.dtype)
        return np.empty(shape, dtype=like.dtype)

    def empty_float32(self, shape):
        if self.torch is not None:
            return self.torch.empty(shape, dtype=self.torch.float32)
        return np.empty(shape, dtype=np.float32)

    def pad_last(self, x, width):
        """x with zeros behind its last dimension, up to `width`; x itself if it is that wide."""
        if x.shape[-1] == width:
            return x
        out = self.empty((*x.shape[:-1], width), x)
        out[..., : x.shape[-1]] = x
        out[..., x.shape[-1] :] = 0
        return out

    def to_numpy(self, name, x, dtype, shape=None):
        """An argument of indices or slopes as a contiguous numpy array of `dtype`; `shape` may hold None."""
        if is_torch(x):
            if x.device.type != "cpu":
                raise ValueError(f"{name} must be on the CPU, not on {x.device}")
            if str(x.dtype) == "torch.bfloat16":  # which numpy does not have
                kinds = {"i": "hold integers", "b": "hold booleans"}
                raise TypeError(f"{name} must {kinds.get(np.dtype(dtype).kind, f'be {np.dtype(dtype)}')}, not bfloat16")
            x = x.detach().numpy()
        x = np.asarray(x)
        wanted = np.dtype(dtype)
        if wanted.kind == "i" and x.dtype.kind not in "iu":
            raise TypeError(f"{name} must hold integers, not {x.dtype}")
        if wanted.kind == "b" and x.dtype != wanted:
            raise TypeError(f"{name} must hold booleans, not {x.dtype}")
        if wanted.kind == "f" and x.dtype != wanted:
            raise TypeError(f"{name} must be {wanted}, not {x.dtype}")
        if shape is not None and (
            x.ndim != len(shape) or any(w is not None and w != n for n, w in zip(x.shape, shape))
        ):
            text = ", ".join("*" if w is None else str(w) for w in shape)
            raise ValueError(f"{name} must have shape ({text}), not {tuple(x.shape)}")
        return np.ascontiguousarray(x, dtype=wanted)

    def to_float32(self, name, x):
        """An argument of any floating-point type as a contiguous numpy array of float32."""
        if is_torch(x):
            if x.device.type != "cpu":
                raise ValueError(f"{name} must be on the CPU, not on {x.device}")
            if not x.is_floating_point():
                raise TypeError(f"{name} must hold floating-point numbers, not {x.dtype}")
            x = x.detach().float().numpy()
        x = np.asarray(x)
        if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
            raise TypeError(f"{name} must hold floating-point numbers, not {x.dtype}")
        return np.ascontiguousarray(x, dtype=np.float32)

    def raw(self, x):
        """x as the extension takes it, without a copy: a numpy array, 16-bit floats that numpy does not have as plain bits."""
        if self.torch is not None:
            return x.view(self.torch.int16).numpy() if x.dtype == self.torch.bfloat16 else x.numpy()
        return x.view(np.uint16) if x.dtype.name == "bfloat16" else x
