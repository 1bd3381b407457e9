"""flash_attn_with_kvcache, as FlashAttention 2 defines it, on the CPU; conventions as in flash_attn.py."""

import numbers

import numpy as np

from . import _core
from ._arrays import Arrays, refuse_gradients
from ._attention import Call, Pool, Runs, check_blocks, lse_by_sequence, windows


class _Cache:
    """Where the tokens of each sequence lie in k_cache and v_cache, before and after the new ones."""

    def __init__(self, arrays, k_cache, step, batch, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_new):
        self.arrays, self.batch, self.step = arrays, batch, step
        self.num_blocks, self.length = k_cache.shape[:2]
        self.table = None
        self.capacity = self.length
        if block_table is not None:
            for name, x in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
                if x is not None:
                    raise ValueError(f"{name} cannot be combined with block_table")
            self.table = arrays.to_numpy("block_table", block_table, np.int64, (batch, None))
            self.capacity = self.table.shape[1] * self.length
        self.rows = self._rows(cache_batch_idx) if self.table is None else None
        self.old_lens = self._lens(cache_seqlens)
        self.lens = self.old_lens + num_new
        if self.lens.max(initial=0) > self.capacity:
            raise ValueError(
                f"cache_seqlens is {self.old_lens.max()}: with {num_new} new tokens that is over the cache's {self.capacity}"
            )
        self.leftpad = np.zeros(batch, dtype=np.int64)
        if cache_leftpad is not None:
            self.leftpad = arrays.to_numpy("cache_leftpad", cache_leftpad, np.int64, (batch,))
            if (self.leftpad < 0).any() or (self.leftpad > self.lens).any():
                raise ValueError("cache_leftpad must lie between 0 and the sequence's length")

    def _lens(self, cache_seqlens):
        if cache_seqlens is None:
            return np.full(self.batch, self.capacity, dtype=np.int64)
        if isinstance(cache_seqlens, numbers.Integral):
            cache_seqlens = np.full(self.batch, int(cache_seqlens), dtype=np.int64)
        lens = self.arrays.to_numpy("cache_seqlens", cache_seqlens, np.int64, (self.batch,))
        if (lens < 0).any():
            raise ValueError("cache_seqlens must not be negative")
        return lens

    def _rows(self, cache_batch_idx):
        if cache_batch_idx is None:
            if self.num_blocks < self.batch:
                raise ValueError(f"k_cache has {self.num_blocks} sequences, but q has {self.batch}")
            return np.arange(self.batch)
        rows = self.arrays.to_numpy("cache_batch_idx", cache_batch_idx, np.int64, (self.batch,))
        if (rows < 0).any() or (rows >= self.num_blocks).any():
            raise ValueError(f"cache_batch_idx must lie in [0, {self.num_blocks})")
        return rows

    def new_positions(self, num_new):
        """[B, num_new]: places of the new tokens in their sequences."""
        return self.old_lens[:, None] + np.arange(num_new)

    def slots(self, positions):
        """Tokens of the pool that hold `positions` [B, n] of the sequences, one after the other."""
        if self.table is None:
            return (self.rows[:, None] * self.step + positions).reshape(-1)
        column = positions // self.length
        used = np.zeros(self.table.shape, dtype=bool)
        np.put_along_axis(used, column, True, axis=1)
        check_blocks(self.table, used, self.num_blocks)
        blocks = np.take_along_axis(self.table, column, axis=1).astype(np.int64)
        return (blocks * self.step + positions % self.length).reshape(-1)

    def runs(self):
        if self.table is not None:
            return Runs.paged(self.table, self.lens, self.length, self.step, self.num_blocks)
        return Runs.contiguous(self.rows * self.step + self.leftpad, self.lens - self.leftpad)


class _Rotary:
    """Rotation of the first R dimensions of heads by rotary_cos and rotary_sin [S, R / 2], in float32, rounded once."""

    def __init__(self, arrays, cos, sin, q, longest, interleaved, type_):
        cos, sin = arrays.check("rotary_cos", cos, 2), arrays.check("rotary_sin", sin, 2)
        if tuple(cos.shape) != tuple(sin.shape):
            raise ValueError(f"rotary_sin has shape {tuple(sin.shape)}, but rotary_cos has {tuple(cos.shape)}")
        for name, x in (("rotary_cos", cos), ("rotary_sin", sin)):
            if x.dtype != q.dtype:
                raise TypeError(f"{name} is {arrays.dtype_name(x)}, but q is {arrays.dtype_name(q)}")
        width = 2 * cos.shape[1]
        if width > q.shape[-1] or width % 16 != 0:
            raise ValueError(f"rotary_cos rotates {width} dimensions: a multiple of 16 up to q's {q.shape[-1]} is needed")
        if cos.shape[0] < longest:
            raise ValueError(f"rotary_cos has {cos.shape[0]} positions, but {longest} are needed")
        self.arrays, self.interleaved, self.type = arrays, bool(interleaved), type_
        self.cos, self.sin = arrays.contiguous(cos), arrays.contiguous(sin)

    def rotate(self, x, positions):
        """x [B, S, H, D] rotated at positions [B, S], as a new array."""
        raw, shape = self.arrays.raw, x.shape
        x = self.arrays.contiguous(x).reshape(-1, *shape[2:])
        out = self.arrays.empty(x.shape, x)
        positions = np.ascontiguousarray(positions, dtype=np.int64).reshape(-1)
        _core.rotate(raw(x), raw(out), self.type, positions, raw(self.cos), raw(self.sin), self.interleaved)
        return out.reshape(shape)


def _check_new(arrays, q, k, v, k_cache, v_cache):
    """The new keys and values, or (None, None)."""
    if k is None:
        if v is not None:
            raise ValueError("v needs k")
        return None, None
    if v is None:
        raise ValueError("k needs v")
    k, v = arrays.check("k", k, 4), arrays.check("v", v, 4)
    for name, x, cache in (("k", k, k_cache), ("v", v, v_cache)):
        wanted = (q.shape[0], k.shape[1], *cache.shape[2:])
        if tuple(x.shape) != wanted:
            raise ValueError(f"{name} must have shape {wanted}, not {tuple(x.shape)}")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {arrays.dtype_name(x)}, but q is {arrays.dtype_name(q)}")
    _check_writable(arrays, k_cache, v_cache)
    return k, v


def _check_writable(arrays, k_cache, v_cache):
    for name, x in (("k_cache", k_cache), ("v_cache", v_cache)):
        if not arrays.writable(x):
            raise ValueError(f"{name} is read-only, but new tokens are to be written into it")


def _write(arrays, x, tokens, slots):
    x = arrays.contiguous(x)
    _core.write(arrays.raw(x), arrays.raw(tokens), np.ascontiguousarray(slots, dtype=np.int64))


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False, *, s_aux=None,
):  # fmt: skip
    """Attention of q over a cache, which takes new keys and values in the same call; arguments as in flash_attn_func, and

      q               [B, Sq, H, D]
      k_cache         [Bc, Sc, K, D], or with block_table [B, max_blocks] int32 a pool [N, P, K, D] of blocks of any size P
      v_cache         the same with Dv. k and v are written into both in place: the last three dimensions must be contiguous
      k, v            [B, Snew, K, D] and [B, Snew, K, Dv]: written at positions cache_seqlens[b] .. of sequence b, then attended
      rotary_cos/sin  [S, R / 2] in q's dtype: k is rotated at its positions, q at cache_seqlens + i if causal or windowed, else
                      at cache_seqlens; rotary_interleaved pairs (0, 1), (2, 3), ..., otherwise (0, R / 2), (1, R / 2 + 1), ...
      cache_seqlens   int or [B]: tokens in the cache before this call; None: the cache is full
      cache_batch_idx [B]: the cache row of each sequence; if one is named twice, the last one's k and v stay
      cache_leftpad   [B]: place of the first key of each sequence
      num_splits      changes nothing: the order of sums is fixed

    Returns out [B, Sq, H, Dv], or (out, lse [B, H, Sq] float32) if return_softmax_lse is true.
    """
    refuse_gradients(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, alibi_slopes=alibi_slopes, s_aux=s_aux)
    if num_splits < 0:
        raise ValueError(f"num_splits must not be negative, not {num_splits}")
    arrays = Arrays(q)
    q = arrays.check("q", q, 4)
    k_cache, v_cache = arrays.check("k_cache", k_cache, 4), arrays.check("v_cache", v_cache, 4)
    names = ("k_cache", "v_cache")
    batch, seqlen_q, heads, dim = q.shape
    call = Call(arrays, q, k_cache, v_cache, names, batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    k, v = _check_new(arrays, q, k, v, k_cache, v_cache)
    if k is not None and cache_seqlens is None:
        raise ValueError("k needs cache_seqlens")
    num_new = 0 if k is None else k.shape[1]
    pool = Pool(arrays, names, k_cache, v_cache, in_place=True)
    cache = _Cache(
        arrays, k_cache, pool.step, batch, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_new
    )
    runs = cache.runs()
    if rotary_cos is not None or rotary_sin is not None:
        if rotary_cos is None or rotary_sin is None:
            raise ValueError(f"{'rotary_cos' if rotary_cos is None else 'rotary_sin'} is missing: both are needed")
        if k is None:
            raise ValueError("rotary_cos needs k: only new keys are rotated")
        steps = np.arange(seqlen_q) if max(windows(causal, window_size)) >= 0 else np.zeros(seqlen_q, dtype=np.int64)
        q_positions = cache.old_lens[:, None] + steps
        longest = max(q_positions.max(initial=-1) + 1, cache.lens.max(initial=0))
        rotary = _Rotary(arrays, rotary_cos, rotary_sin, q, longest, rotary_interleaved, call.type)
        q = rotary.rotate(q, q_positions)
        k = rotary.rotate(k, cache.new_positions(num_new))
    if num_new:
        slots = cache.slots(cache.new_positions(num_new))
        for x, tokens in ((k, pool.k), (v, pool.v)):
            _write(arrays, x.reshape(-1, *x.shape[2:]), tokens, slots)
    out, lse = call.run(q.reshape(-1, heads, dim), pool, np.arange(batch + 1) * seqlen_q, runs, return_softmax_lse)
    out = out.reshape(batch, seqlen_q, heads, call.value_dim)
    return (out, lse_by_sequence(lse, batch, seqlen_q)) if return_softmax_lse else out


def reshape_and_cache(k, v, k_cache, v_cache, slot_mapping):
    """Writes k [T, K, D] and v [T, K, Dv] into the pools k_cache [N, P, K, D] and v_cache [N, P, K, Dv] in place.

    Token t goes to slot slot_mapping[t] = block * P + offset; a negative slot is not written. Bytes are copied as they are.
    """
    refuse_gradients(k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    arrays = Arrays(k)
    k, v = arrays.check("k", k, 3), arrays.check("v", v, 3)
    k_cache, v_cache = arrays.check("k_cache", k_cache, 4), arrays.check("v_cache", v_cache, 4)
    for name, x, cache in (("k", k, k_cache), ("v", v, v_cache)):
        wanted = (k.shape[0], *cache.shape[2:])
        if tuple(x.shape) != wanted:
            raise ValueError(f"{name} must have shape {wanted}, not {tuple(x.shape)}")
        if x.dtype != cache.dtype:
            raise TypeError(f"{name} is {arrays.dtype_name(x)}, but {name}_cache is {arrays.dtype_name(cache)}")
    if k_cache.shape[:2] != v_cache.shape[:2]:
        raise ValueError(f"v_cache has shape {tuple(v_cache.shape)}, which does not fit k_cache's {tuple(k_cache.shape)}")
    _check_writable(arrays, k_cache, v_cache)
    slots = arrays.to_numpy("slot_mapping", slot_mapping, np.int64, (k.shape[0],))
    num_blocks, page = k_cache.shape[:2]
    if (slots >= num_blocks * page).any():
        raise ValueError(f"slot_mapping has slot {slots.max()}, but k_cache has {num_blocks * page}")
    pool = Pool(arrays, ("k_cache", "v_cache"), k_cache, v_cache, in_place=True)
    places = np.where(slots < 0, -1, slots // max(page, 1) * pool.step + slots % max(page, 1))
    for x, tokens in ((k, pool.k), (v, pool.v)):
        _write(arrays, x, tokens, places)
