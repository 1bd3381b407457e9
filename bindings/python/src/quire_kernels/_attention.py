"""What the three functions share: checks of their common arguments, places of keys, and the call of the kernel."""

import math
import operator

import numpy as np

from . import _core

_TYPES = {"float32": 0, "float16": 1, "bfloat16": 2}
_MAX_HEAD_DIM = 512


def windows(causal, window_size):
    """(left, right), -1 for no limit; causal is a right limit of 0."""
    try:
        left, right = (operator.index(w) for w in window_size)
    except (TypeError, ValueError):
        raise ValueError(f"window_size must be a pair of integers, not {window_size!r}") from None
    return max(left, -1), 0 if causal else max(right, -1)


def _not_negative(name, x):
    x = float(x)
    if not math.isfinite(x) or x < 0:
        raise ValueError(f"{name} must be finite and not negative, not {x}")
    return x


class Pool:
    """Keys and values as tokens [N, K, D] and [N, K, Dv], without a copy where their rows or blocks lie at equal steps.

    step: tokens from one row (or block) to the next.
    """

    def __init__(self, arrays, names, k, v, in_place):
        flat_k, flat_v = self._flat(arrays, k), self._flat(arrays, v)
        if flat_k is not None and flat_v is not None and flat_k[1] == flat_v[1]:
            (self.k, self.step), (self.v, _) = flat_k, flat_v
        elif in_place:
            name = names[0] if flat_k is None else names[1]
            raise ValueError(
                f"{name} must be contiguous in its last three dimensions, with the strides of {names[0]}: "
                "it is used where it lies"
            )
        else:
            (self.k, self.step), (self.v, _) = (self._flat(arrays, arrays.contiguous(x)) for x in (k, v))

    @staticmethod
    def _flat(arrays, x):
        """([tokens, K, D], step) of x [rows, length, K, D], or None if x cannot be seen so."""
        rows, length, heads, dim = x.shape
        token = heads * dim
        if x.shape[0] * x.shape[1] == 0:
            return x.reshape(0, heads, dim), length
        strides = arrays.strides(x)
        if strides[1:] != [token, dim, 1]:
            return None
        step = length if rows == 1 else strides[0] // token
        if step * token != strides[0] and rows > 1 or step < length:
            return None
        return arrays.as_strided(x, ((rows - 1) * step + length, heads, dim), (token, dim, 1)), step


class Runs:
    """Where each sequence's keys lie in a pool, as the kernel takes it: blocks of `block_size` tokens.

    offsets [B + 1]: first entry in `blocks` of each sequence; lens [B]: keys of each.
    """

    def __init__(self, lens, block_size, counts, blocks):
        self.lens = np.ascontiguousarray(lens, dtype=np.int32)
        self.block_size = int(block_size)
        self.offsets = np.zeros(len(lens) + 1, dtype=np.int64)
        np.cumsum(counts, out=self.offsets[1:])
        if len(blocks) and blocks.max() > np.iinfo(np.int32).max:
            raise ValueError("the cache has more blocks than 32 bits can number")
        self.blocks = np.ascontiguousarray(blocks, dtype=np.int32)

    @classmethod
    def contiguous(cls, starts, lens):
        """Sequence b has the tokens starts[b] .. starts[b] + lens[b]: blocks as long as the starts allow."""
        starts, lens = np.asarray(starts, dtype=np.int64), np.asarray(lens, dtype=np.int64)
        size = int(np.gcd.reduce(starts, initial=0)) or max(1, int(lens.max(initial=1)))
        counts = -(-lens // size)
        first = np.cumsum(counts) - counts
        blocks = np.repeat(starts // size - first, counts) + np.arange(counts.sum())
        return cls(lens, size, counts, blocks)

    @classmethod
    def paged(cls, table, lens, page, step, num_blocks):
        """Sequence b has the pages table[b, : ceil(lens[b] / page)], `step` tokens from page to page of the pool."""
        lens = np.asarray(lens, dtype=np.int64)
        counts = -(-lens // page) if page else np.zeros_like(lens)
        over = counts > table.shape[1]
        if over.any():
            b = int(over.argmax())
            raise ValueError(f"block_table has {table.shape[1]} blocks of {page} for sequence {b}, which has {lens[b]} keys")
        used = np.arange(table.shape[1]) < counts[:, None]
        check_blocks(table, used, num_blocks)
        blocks = table[used].astype(np.int64)
        size = math.gcd(page, step) or 1
        if size != step:
            parts = page // size
            blocks = (blocks[:, None] * (step // size) + np.arange(parts)).reshape(-1)
            counts = counts * parts
        return cls(lens, size, counts, blocks)


def check_blocks(table, used, num_blocks):
    """Refuses a used entry of block_table that is no block of the cache."""
    bad = used & ((table < 0) | (table >= num_blocks))
    if bad.any():
        b, i = np.argwhere(bad)[0]
        raise ValueError(f"block_table has block {table[b, i]} for sequence {b}, which is not in [0, {num_blocks})")


class Call:
    """One attention: its arguments checked, then run."""

    def __init__(self, arrays, q, k, v, names, batch, scale, causal, window_size, softcap, alibi_slopes, s_aux=None):
        """q [.., H, D], k [.., K, D], v [.., K, Dv]; names: of k and v."""
        self.arrays = arrays
        dtype = arrays.dtype_name(q)
        if dtype not in _TYPES:
            raise TypeError(f"q must be float32, float16 or bfloat16, not {dtype}")
        self.type = _TYPES[dtype]
        for name, x in zip(names, (k, v)):
            if x.dtype != q.dtype:
                raise TypeError(f"{name} is {arrays.dtype_name(x)}, but q is {dtype}")
        (heads, dim), (kv_heads, self.value_dim) = q.shape[-2:], v.shape[-2:]
        for name, d in (("q", dim), (names[1], self.value_dim)):
            if not 1 <= d <= _MAX_HEAD_DIM:
                raise ValueError(f"{name} has a head dimension of {d}, which is not from 1 to {_MAX_HEAD_DIM}")
        if k.shape[-1] != dim:
            raise ValueError(f"{names[0]} has a head dimension of {k.shape[-1]}, but q has {dim}")
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"{names[1]} has shape {tuple(v.shape)}, which does not fit {names[0]}'s {tuple(k.shape)}")
        if kv_heads < 1 or heads % kv_heads != 0:
            raise ValueError(f"q has {heads} heads, which is no multiple of {names[0]}'s {kv_heads}")
        self.scale = dim**-0.5 if scale is None else _not_negative("softmax_scale", scale)
        self.softcap = _not_negative("softcap", softcap)
        self.window_left, self.window_right = windows(causal, window_size)
        self.slopes = None
        if alibi_slopes is not None:
            slopes = arrays.to_numpy("alibi_slopes", alibi_slopes, np.float32)
            if slopes.shape not in ((heads,), (batch, heads)):
                raise ValueError(f"alibi_slopes must have shape ({heads},) or ({batch}, {heads}), not {slopes.shape}")
            self.slopes = np.ascontiguousarray(np.broadcast_to(slopes, (batch, heads)))
        self.sinks = None
        if s_aux is not None:
            self.sinks = arrays.to_float32("s_aux", s_aux)
            if self.sinks.shape != (heads,):
                raise ValueError(f"s_aux must have shape ({heads},), not {self.sinks.shape}")

    def run(self, q, pool, cu_seqlens, runs, want_lse):
        """q [T, H, D] -> (out [T, H, Dv], lse [H, T] or None).

        The kernel takes head dimensions that are multiples of 8: others are copied into wider arrays, the pool too.
        """
        arrays = self.arrays
        key_dim, value_dim = (-(-d // 8) * 8 for d in (q.shape[-1], self.value_dim))
        q, k = (arrays.contiguous(arrays.pad_last(x, key_dim)) for x in (q, pool.k))
        v = arrays.contiguous(arrays.pad_last(pool.v, value_dim))
        out = arrays.empty((*q.shape[:-1], value_dim), q)
        lse = arrays.empty_float32((q.shape[1], q.shape[0])) if want_lse else None
        _core.attend(
            arrays.raw(q), arrays.raw(k), arrays.raw(v), arrays.raw(out), lse if lse is None else arrays.raw(lse), self.type,
            np.ascontiguousarray(cu_seqlens, dtype=np.int32), runs.lens, runs.offsets, runs.blocks, runs.block_size,
            self.scale, self.window_left, self.window_right, self.softcap, self.slopes, self.sinks,
        )  # fmt: skip
        return (out if value_dim == self.value_dim else out[..., : self.value_dim]), lse


def lse_by_sequence(lse, batch, seqlen_q):
    """[H, B * Sq] as [B, H, Sq]."""
    return lse.reshape(lse.shape[0], batch, seqlen_q).swapaxes(0, 1)
