"""The few operations on arrays that the functions need, for torch and numpy alike.

The extension is given addresses and shapes: reading them takes 0.1 us an array, where DLPack or a view as a numpy array takes 2 to
4 us. Whoever takes an address holds the array until the extension has returned.
"""

import functools
import sys

import numpy as np

_NUMPY_FLOATS = {"float32": 0, "float16": 1, "bfloat16": 2}
_NUMPY_INTS = {np.dtype(f"int{8 * n}"): n for n in (1, 2, 4, 8)} | {np.dtype(f"uint{8 * n}"): -n for n in (1, 2, 4, 8)}


def is_torch(x):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def refuse_gradients(**tensors):
    """These functions are for inference: a graph through them would silently end here."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.is_grad_enabled():
        return
    for name, x in tensors.items():
        if getattr(x, "requires_grad", False):
            raise ValueError(f"{name} requires a gradient, but there is no backward pass: use torch.no_grad()")


def _check_cpu(name, x):
    if not x.is_cpu:
        raise ValueError(f"{name} must be on the CPU, not on {x.device}")


def _check_shape(name, x, shape):
    if shape is not None and (x.ndim != len(shape) or any(w is not None and w != n for n, w in zip(x.shape, shape))):
        text = ", ".join("*" if w is None else str(w) for w in shape)
        raise ValueError(f"{name} must have shape ({text}), not {tuple(x.shape)}")


def ints(name, x, shape):
    """An argument of indices as a contiguous array of torch or numpy, for describe_ints(); `shape` may hold None."""
    if is_torch(x):
        _check_cpu(name, x)
        x, kinds = x.contiguous(), _torch_arrays().int_kinds
    else:
        x, kinds = np.ascontiguousarray(x), _NUMPY_INTS
    if x.dtype not in kinds:
        raise TypeError(f"{name} must hold integers, not {dtype_name(x.dtype)}")
    _check_shape(name, x, shape)
    return x


def describe_ints(x):
    """(address, elements, bytes of one, negative if unsigned) of what ints() has returned; None for None."""
    if x is None:
        return None
    if is_torch(x):
        return x.data_ptr(), x.numel(), _torch_arrays().int_kinds[x.dtype]
    return x.__array_interface__["data"][0], x.size, _NUMPY_INTS[x.dtype]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def to_numpy(name, x, dtype, shape=None):
    """An argument as a contiguous numpy array of `dtype`, which it must have; for an integer any integers will do."""
    wanted = np.dtype(dtype)
    words = {"i": "hold integers", "b": "hold booleans"}.get(wanted.kind, f"be {wanted}")
    if is_torch(x):
        _check_cpu(name, x)
        if str(x.dtype) == "torch.bfloat16":  # which numpy does not have
            raise TypeError(f"{name} must {words}, not bfloat16")
        x = x.detach().numpy()
    x = np.asarray(x)
    if x.dtype.kind not in "iu" if wanted.kind == "i" else x.dtype != wanted:
        raise TypeError(f"{name} must {words}, not {x.dtype}")
    _check_shape(name, x, shape)
    return np.ascontiguousarray(x, dtype=wanted)


def to_float32(name, x):
    """An argument of any floating-point type as a contiguous numpy array of float32."""
    if is_torch(x):
        _check_cpu(name, x)
        if not x.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers, not {x.dtype}")
        x = x.detach().float().numpy()
    x = np.asarray(x)
    if x.dtype.kind != "f" and x.dtype.name != "bfloat16":
        raise TypeError(f"{name} must hold floating-point numbers, not {x.dtype}")
    return np.ascontiguousarray(x, dtype=np.float32)


class _Arrays:
    """What both kinds of array share; arrays_of() finds the one that a function is given."""

    def check(self, name, x, ndim):
        """Refuses what is no CPU array of the first argument's kind, or has not `ndim` dimensions."""
        self.check_kind(name, x)
        if x.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions, not {x.ndim}")

    def float_kind(self, name, x):
        """The extension's number of x's dtype."""
        kind = self.known_float_kind(x)
        if kind is None:
            raise TypeError(f"{name} must be float32, float16 or bfloat16, not {dtype_name(x.dtype)}")
        return kind

    def pad_last(self, x, width):
        """x with zeros behind its last dimension, up to `width`; x itself if it is that wide."""
        if x.shape[-1] == width:
            return x
        out = self.empty((*x.shape[:-1], width), x)
        out[..., : x.shape[-1]] = x
        out[..., x.shape[-1] :] = 0
        return out


class _NumpyArrays(_Arrays):
    def check_kind(self, name, x):
        if not isinstance(x, np.ndarray):
            raise TypeError(f"{name} must be a numpy array as the first argument is, not {type(x).__name__}")

    def known_float_kind(self, x):
        return _NUMPY_FLOATS.get(x.dtype.name)

    def address(self, x):
        return x.__array_interface__["data"][0]

    def contiguous(self, x):
        return np.ascontiguousarray(x)

    def is_contiguous(self, x):
        return x.flags.c_contiguous

    def strides(self, x):
        """In elements."""
        return [s // x.itemsize for s in x.strides]

    def writable(self, x):
        return x.flags.writeable

    def empty(self, shape, like):
        return np.empty(shape, dtype=like.dtype)

    def empty_float32(self, shape):
        return np.empty(shape, dtype=np.float32)


class _TorchArrays(_Arrays):
    def __init__(self, torch):
        self.torch = torch
        self.float_kinds = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
        self.int_kinds = {torch.int8: 1, torch.int16: 2, torch.int32: 4, torch.int64: 8}
        self.int_kinds |= {torch.uint8: -1, torch.uint16: -2, torch.uint32: -4, torch.uint64: -8}

    def check_kind(self, name, x):
        if not isinstance(x, self.torch.Tensor):
            raise TypeError(f"{name} must be a torch tensor as the first argument is, not {type(x).__name__}")
        _check_cpu(name, x)

    def known_float_kind(self, x):
        return self.float_kinds.get(x.dtype)

    def address(self, x):
        return x.data_ptr()

    def contiguous(self, x):
        return x.contiguous()

    def is_contiguous(self, x):
        return x.is_contiguous()

    def strides(self, x):
        return list(x.stride())

    def writable(self, x):
        return True

    def empty(self, shape, like):
        return self.torch.empty(shape, dtype=like.dtype)

    def empty_float32(self, shape):
        return self.torch.empty(shape, dtype=self.torch.float32)


_NUMPY = _NumpyArrays()


@functools.cache
def _torch_arrays():
    return _TorchArrays(sys.modules["torch"])


def arrays_of(name, first):
    """The operations for a function's first argument, called `name`."""
    if is_torch(first):
        return _torch_arrays()
    if isinstance(first, np.ndarray):
        return _NUMPY
    raise TypeError(f"{name} must be a numpy array or a torch tensor, not {type(first).__name__}")
