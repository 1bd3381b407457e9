"""What the functions of attention share: checks of their common arguments, pools of tokens, and the call of the kernel."""

import math
import operator

import numpy as np

from ._arrays import dtype_name, to_float32, to_numpy

_MAX_HEAD_DIM = 512


def windows(causal, window_size):
    """(left, right), -1 for no limit; causal is a right limit of 0."""
    try:
        left, right = window_size
        left, right = operator.index(left), operator.index(right)
    except (TypeError, ValueError):
        raise ValueError(f"window_size must be a pair of integers, not {window_size!r}") from None
    return max(left, -1), 0 if causal else max(right, -1)


def _not_negative(name, x):
    x = float(x)
    if not math.isfinite(x) or x < 0:
        raise ValueError(f"{name} must be finite and not negative, not {x}")
    return x


class Pool:
    """Keys [rows, length, K, D] and values [rows, length, K, Dv] whose rows or blocks lie at equal steps; copied if they do not.

    step: tokens from one row (or block) to the next.
    """

    def __init__(self, arrays, names, k, v, in_place):
        step, v_step = _step(arrays, k), _step(arrays, v)
        if step is None or step != v_step:
            if in_place:
                name = names[0] if step is None else names[1]
                raise ValueError(
                    f"{name} must be contiguous in its last three dimensions, with the strides of {names[0]}: "
                    "it is used where it lies"
                )
            k, v = arrays.contiguous(k), arrays.contiguous(v)
            step = k.shape[1]
        self.arrays, self.k, self.v, self.step = arrays, k, v, step
        self.rows, self.length, self.kv_heads, self.key_dim = k.shape
        self.value_dim = v.shape[-1]

    def describe(self):
        """k and v for the extension: every token from the first row's first to the last row's last."""
        tokens = (self.rows - 1) * self.step + self.length if self.rows else 0
        k = self.arrays.address(self.k), tokens, self.kv_heads, self.key_dim
        return k, (self.arrays.address(self.v), tokens, self.kv_heads, self.value_dim)

    def blocks(self):
        return self.length, self.step, self.rows

    def padded(self):
        """With head dimensions that are multiples of 8: this pool, or a wider copy."""
        widths = _multiple_of_8(self.key_dim), _multiple_of_8(self.value_dim)
        if widths == (self.key_dim, self.value_dim):
            return self
        k, v = (self.arrays.contiguous(self.arrays.pad_last(x, w)) for x, w in zip((self.k, self.v), widths))
        return Pool(self.arrays, ("k", "v"), k, v, in_place=False)


def _multiple_of_8(dim):
    return -(-dim // 8) * 8


def _step(arrays, x):
    """Tokens from one row of x [rows, length, K, D] to the next; None if x is not contiguous within its rows."""
    rows, length, heads, dim = x.shape
    if arrays.is_contiguous(x):
        return length
    strides, token = arrays.strides(x), heads * dim
    for axis in (3, 2, 1):  # strides of dimensions of size 1 mean nothing
        if x.shape[axis] == 1:
            strides[axis] = strides[axis + 1] * x.shape[axis + 1] if axis < 3 else 1
    if strides[1:] != [token, dim, 1]:
        return None
    if rows == 1:
        return length
    step = strides[0] // token
    return step if step >= length and step * token == strides[0] else None


class Call:
    """One attention: its arguments checked, then run by one of the extension's functions."""

    def __init__(self, arrays, q, k, v, names, batch, scale, causal, window_size, softcap, alibi_slopes, s_aux=None):
        """q [.., H, D], k [.., K, D], v [.., K, Dv]; names: of k and v."""
        self.arrays = arrays
        self.kind = arrays.float_kind("q", q)
        for name, x in ((names[0], k), (names[1], v)):
            if x.dtype != q.dtype:
                raise TypeError(f"{name} is {dtype_name(x.dtype)}, but q is {dtype_name(q.dtype)}")
        k_shape, v_shape = k.shape, v.shape
        (heads, dim), (kv_heads, self.value_dim) = q.shape[-2:], v_shape[-2:]
        for name, d in (("q", dim), (names[1], self.value_dim)):
            if not 1 <= d <= _MAX_HEAD_DIM:
                raise ValueError(f"{name} has a head dimension of {d}, which is not from 1 to {_MAX_HEAD_DIM}")
        if k_shape[-1] != dim:
            raise ValueError(f"{names[0]} has a head dimension of {k_shape[-1]}, but q has {dim}")
        if k_shape[:-1] != v_shape[:-1]:
            raise ValueError(f"{names[1]} has shape {tuple(v_shape)}, which does not fit {names[0]}'s {tuple(k_shape)}")
        if kv_heads < 1 or heads % kv_heads != 0:
            raise ValueError(f"q has {heads} heads, which is no multiple of {names[0]}'s {kv_heads}")
        scale = dim**-0.5 if scale is None else _not_negative("softmax_scale", scale)
        self.scores = scale, _not_negative("softcap", softcap), *windows(causal, window_size)
        self.slopes = None if alibi_slopes is None else _slopes(alibi_slopes, batch, heads)
        self.sinks = None if s_aux is None else _sinks(s_aux, heads)

    def run(self, function, q, pool, want_lse, *where):
        """function(arrays, scores, slopes, sinks, *where) of q [.., H, D] -> (out [.., H, Dv], lse [H, T] or None).

        The kernel takes head dimensions that are multiples of 8: others are copied into wider arrays. `pool` is padded.
        """
        arrays = self.arrays
        q = arrays.contiguous(arrays.pad_last(q, pool.key_dim))
        *lead, heads, dim = q.shape
        rows = math.prod(lead)
        out = arrays.empty((*lead, heads, pool.value_dim), q)
        lse = arrays.empty_float32((heads, rows)) if want_lse else None
        described = (
            (arrays.address(q), rows, heads, dim), *pool.describe(), (arrays.address(out), rows, heads, pool.value_dim),
            0 if lse is None else arrays.address(lse), self.kind,
        )  # fmt: skip
        function(described, self.scores, self.slopes, self.sinks, *where)
        return (out if pool.value_dim == self.value_dim else out[..., : self.value_dim]), lse


def _slopes(slopes, batch, heads):
    slopes = to_numpy("alibi_slopes", slopes, np.float32)
    if slopes.shape not in ((heads,), (batch, heads)):
        raise ValueError(f"alibi_slopes must have shape ({heads},) or ({batch}, {heads}), not {slopes.shape}")
    return np.ascontiguousarray(np.broadcast_to(slopes, (batch, heads)))


def _sinks(sinks, heads):
    sinks = to_float32("s_aux", sinks)
    if sinks.shape != (heads,):
        raise ValueError(f"s_aux must have shape ({heads},), not {sinks.shape}")
    return sinks


def lse_by_sequence(lse, batch, seqlen_q):
    """[H, B * Sq] as [B, H, Sq]."""
    return lse.reshape(lse.shape[0], batch, seqlen_q).swapaxes(0, 1)
