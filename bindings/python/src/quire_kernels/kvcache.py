"""flash_attn_with_kvcache, as FlashAttention 2 defines it, on the CPU; conventions as in flash_attn.py."""

import numbers

import numpy as np

from . import _core
from ._arrays import arrays_of, describe_ints, dtype_name, ints, refuse_gradients, to_numpy
from ._attention import Call, Pool, lse_by_sequence, windows

_NAMES = ("k_cache", "v_cache")


class _Places:
    """Where the tokens of each sequence lie in a pool, before new ones: what the extension calls CachePlaces.

    lens: an int or [B]; table [B, W] or None; starts [B], the first token of each, or None.
    """

    def __init__(self, pool, batch, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_new):
        self.pool, self.batch = pool, batch
        self.table = self.starts = None
        if block_table is not None:
            for name, x in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
                if x is not None:
                    raise ValueError(f"{name} cannot be combined with block_table")
            self.table = ints("block_table", block_table, (batch, None))
        elif cache_batch_idx is None and pool.rows < batch:
            raise ValueError(f"k_cache has {pool.rows} sequences, but q has {batch}")
        capacity = pool.length if self.table is None else self.table.shape[1] * pool.length
        if cache_seqlens is None:
            self.lens = capacity
        elif isinstance(cache_seqlens, numbers.Integral):
            self.lens = int(cache_seqlens)
        else:
            self.lens = ints("cache_seqlens", cache_seqlens, (batch,))
        self.old_lens = self.lens
        if cache_batch_idx is not None or cache_leftpad is not None:
            self._move_starts(cache_batch_idx, cache_leftpad, num_new)

    def _move_starts(self, cache_batch_idx, cache_leftpad, num_new):
        rows, lens, capacity = np.arange(self.batch), self.positions([0])[:, 0], self.pool.length
        if lens.max(initial=0) > capacity - num_new:
            raise ValueError(f"cache_seqlens is {lens.max()}: with {num_new} new tokens that is over the cache's {capacity}")
        if cache_batch_idx is not None:
            rows = to_numpy("cache_batch_idx", cache_batch_idx, np.int64, (self.batch,))
            if (rows < 0).any() or (rows >= self.pool.rows).any():
                raise ValueError(f"cache_batch_idx must lie in [0, {self.pool.rows})")
        self.starts = rows * self.pool.step
        if cache_leftpad is not None:
            leftpad = to_numpy("cache_leftpad", cache_leftpad, np.int64, (self.batch,))
            if (leftpad < 0).any() or (leftpad > lens + num_new).any():
                raise ValueError("cache_leftpad must lie between 0 and the sequence's length")
            self.starts, self.lens = self.starts + leftpad, lens - leftpad

    def positions(self, steps):
        """[B, n]: places in the sequences, `steps` [n] behind the tokens that are there."""
        if isinstance(self.old_lens, int):
            lens = np.full(self.batch, self.old_lens, dtype=np.int64)
        else:
            lens = to_numpy("cache_seqlens", self.old_lens, np.int64)
        if (lens < 0).any():
            raise ValueError("cache_seqlens must not be negative")
        return lens[:, None] + np.asarray(steps)

    def describe(self):
        lens = self.lens if isinstance(self.lens, int) else describe_ints(self.lens)
        return self.batch, lens, describe_ints(self.table), describe_ints(self.starts), self.pool.blocks()


class _Rotary:
    """Rotation of the first R dimensions of heads by rotary_cos and rotary_sin [S, R / 2], in float32, rounded once."""

    def __init__(self, arrays, cos, sin, q, longest, interleaved, kind):
        arrays.check("rotary_cos", cos, 2)
        arrays.check("rotary_sin", sin, 2)
        if tuple(cos.shape) != tuple(sin.shape):
            raise ValueError(f"rotary_sin has shape {tuple(sin.shape)}, but rotary_cos has {tuple(cos.shape)}")
        for name, x in (("rotary_cos", cos), ("rotary_sin", sin)):
            if x.dtype != q.dtype:
                raise TypeError(f"{name} is {dtype_name(x.dtype)}, but q is {dtype_name(q.dtype)}")
        width = 2 * cos.shape[1]
        if width > q.shape[-1] or width % 16 != 0:
            raise ValueError(f"rotary_cos rotates {width} dimensions: a multiple of 16 up to q's {q.shape[-1]} is needed")
        if cos.shape[0] < longest:
            raise ValueError(f"rotary_cos has {cos.shape[0]} positions, but {longest} are needed")
        self.arrays, self.interleaved, self.kind = arrays, bool(interleaved), kind
        self.cos, self.sin = arrays.contiguous(cos), arrays.contiguous(sin)

    def rotate(self, x, positions):
        """x [B, S, H, D] rotated at positions [B, S], as a new array."""
        address, x = self.arrays.address, self.arrays.contiguous(x)
        out = self.arrays.empty(x.shape, x)
        batch, seqlen, heads, dim = x.shape
        positions = np.ascontiguousarray(positions, dtype=np.int64)
        tables = address(self.cos), address(self.sin), *self.cos.shape
        rows = address(x), batch * seqlen, heads, dim
        _core.rotate(rows, address(out), self.kind, describe_ints(positions), tables, self.interleaved)
        return out


def _check_new(arrays, names, k, v, caches, batch, dtype, dtype_of):
    """Refuses new keys and values that are not [B, Snew, K, D] and [B, Snew, K, Dv] in `dtype`, that of the array `dtype_of`."""
    arrays.check(names[0], k, 4)
    for name, x, cache in zip(names, (k, v), caches):
        arrays.check(name, x, 4)
        wanted = (batch, k.shape[1], *cache.shape[2:])
        if x.shape != wanted:
            raise ValueError(f"{name} must have shape {wanted}, not {tuple(x.shape)}")
        if x.dtype != dtype:
            raise TypeError(f"{name} is {dtype_name(x.dtype)}, but {dtype_of} is {dtype_name(dtype)}")


def _check_writable(arrays, names, caches):
    for name, x in zip(names, caches):
        if not arrays.writable(x):
            raise ValueError(f"{name} is read-only, but new tokens are to be written into it")


def _append(arrays, k, v, pool, places, lens_name="cache_seqlens"):
    """Writes k and v [B, Snew, K, D] behind the tokens that the sequences have; nothing if one of the places is wrong."""
    k, v = arrays.contiguous(k), arrays.contiguous(v)
    batch, num_new, heads, dim = k.shape
    rows = (arrays.address(k), batch * num_new, heads, dim), (arrays.address(v), batch * num_new, heads, v.shape[-1])
    _core.append(*rows, *pool.describe(), k.itemsize, places, num_new, lens_name)


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
    arrays = arrays_of("q", q)
    for name, x in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        arrays.check(name, x, 4)
    batch, seqlen_q = q.shape[:2]
    call = Call(arrays, q, k_cache, v_cache, _NAMES, batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    num_new = 0
    if k is not None or v is not None:
        if k is None or v is None:
            raise ValueError("v needs k" if k is None else "k needs v")
        if cache_seqlens is None:
            raise ValueError("k needs cache_seqlens")
        _check_new(arrays, ("k", "v"), k, v, (k_cache, v_cache), batch, q.dtype, "q")
        _check_writable(arrays, _NAMES, (k_cache, v_cache))
        num_new = k.shape[1]
    pool = Pool(arrays, _NAMES, k_cache, v_cache, in_place=True)
    places = _Places(pool, batch, cache_seqlens, cache_batch_idx, cache_leftpad, block_table, num_new)
    if rotary_cos is not None or rotary_sin is not None:
        if rotary_cos is None or rotary_sin is None:
            raise ValueError(f"{'rotary_cos' if rotary_cos is None else 'rotary_sin'} is missing: both are needed")
        if k is None:
            raise ValueError("rotary_cos needs k: only new keys are rotated")
        moves = max(windows(causal, window_size)) >= 0
        q_positions = places.positions(np.arange(seqlen_q) if moves else np.zeros(seqlen_q, dtype=np.int64))
        k_positions = places.positions(np.arange(num_new))
        longest = max(x.max(initial=-1) + 1 for x in (q_positions, k_positions))
        rotary = _Rotary(arrays, rotary_cos, rotary_sin, q, longest, rotary_interleaved, call.kind)
        q, k = rotary.rotate(q, q_positions), rotary.rotate(k, k_positions)
    where = places.describe()
    if num_new:
        _append(arrays, k, v, pool, where)
    out, lse = call.run(_core.attend_cache, q, pool.padded(), return_softmax_lse, where, num_new, seqlen_q)
    return (out, lse_by_sequence(lse, batch, seqlen_q)) if return_softmax_lse else out


def reshape_and_cache(k, v, k_cache, v_cache, slot_mapping):
    """Writes k [T, K, D] and v [T, K, Dv] into the pools k_cache [N, P, K, D] and v_cache [N, P, K, Dv] in place.

    Token t goes to slot slot_mapping[t] = block * P + offset; a negative slot is not written. Bytes are copied as they are.
    """
    refuse_gradients(k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    arrays = arrays_of("k", k)
    for name, x, ndim in (("k", k, 3), ("v", v, 3), ("k_cache", k_cache, 4), ("v_cache", v_cache, 4)):
        arrays.check(name, x, ndim)
    for name, x, cache in (("k", k, k_cache), ("v", v, v_cache)):
        wanted = (k.shape[0], *cache.shape[2:])
        if tuple(x.shape) != wanted:
            raise ValueError(f"{name} must have shape {wanted}, not {tuple(x.shape)}")
        if x.dtype != cache.dtype:
            raise TypeError(f"{name} is {dtype_name(x.dtype)}, but {name}_cache is {dtype_name(cache.dtype)}")
    if k_cache.shape[:2] != v_cache.shape[:2]:
        raise ValueError(f"v_cache has shape {tuple(v_cache.shape)}, which does not fit k_cache's {tuple(k_cache.shape)}")
    _check_writable(arrays, _NAMES, (k_cache, v_cache))
    slots = ints("slot_mapping", slot_mapping, (k.shape[0],))
    pool = Pool(arrays, _NAMES, k_cache, v_cache, in_place=True)
    k, v = arrays.contiguous(k), arrays.contiguous(v)
    rows = (arrays.address(k), *k.shape), (arrays.address(v), *v.shape)
    _core.write_slots(*rows, *pool.describe(), k.itemsize, describe_ints(slots), pool.blocks())


def kv_paged_write(key, value, key_cache, value_cache, block_table, seq_lens):
    """Writes new keys and values of all sequences into pages in place, behind the tokens that the sequences have. Bytes are copied.

      key, value    [B, Snew, K, D] and [B, Snew, K, Dv]: of sequence b at positions seq_lens[b] .. seq_lens[b] + Snew
      key_cache     [N, P, K, D], a pool of blocks of any size P, in key's dtype; value_cache the same with Dv
      block_table   [B, max_blocks] the blocks of each sequence; those that its tokens, the new ones included, lie in are checked
      seq_lens      int or [B]: tokens in the cache before this call
    """
    refuse_gradients(key=key, value=value, key_cache=key_cache, value_cache=value_cache)
    names, caches = ("key_cache", "value_cache"), (key_cache, value_cache)
    arrays = arrays_of("key", key)
    arrays.check("key", key, 4)
    for name, x in zip(names, caches):
        arrays.check(name, x, 4)
    if key_cache.shape[:3] != value_cache.shape[:3] or key_cache.dtype != value_cache.dtype:
        raise ValueError(
            f"value_cache is {dtype_name(value_cache.dtype)} of shape {tuple(value_cache.shape)}, which does not fit key_cache's "
            f"{dtype_name(key_cache.dtype)} and {tuple(key_cache.shape)}"
        )
    batch = key.shape[0]
    _check_new(arrays, ("key", "value"), key, value, caches, batch, key_cache.dtype, "key_cache")
    _check_writable(arrays, names, caches)
    table = ints("block_table", block_table, (batch, None))
    if not isinstance(seq_lens, numbers.Integral):
        seq_lens = ints("seq_lens", seq_lens, (batch,))
    lens = int(seq_lens) if isinstance(seq_lens, numbers.Integral) else describe_ints(seq_lens)
    pool = Pool(arrays, names, key_cache, value_cache, in_place=True)
    _append(arrays, key, value, pool, (batch, lens, describe_ints(table), None, pool.blocks()), "seq_lens")
