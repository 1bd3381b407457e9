"""flash_attn_varlen_func and flash_attn_func against the definition."""

import itertools
import random

import numpy as np
import pytest

import quire_kernels as qk
import reference
from reference import DTYPES, assert_as_good

LENGTHS = [
    [(1, 523), (1, 37), (1, 2011)],
    [(1, 1328), (5, 18), (129, 463)],
    [(8, 128), (16, 256)],
    [(113, 203), (64, 64), (0, 10), (3, 0), (20, 7)],
    [(256, 256)],
]
MASKS = [
    {"causal": True},
    {},
    {"window_size": (100, 0)},
    {"window_size": (17, 40), "softcap": 20.0},
    {"causal": True, "window_size": (64, 9), "alibi": True},
    {"causal": True, "softcap": 5.0, "softmax_scale": 0.3},
    {"causal": True, "window_size": (100, 0), "sinks": True},
]
HEADS = [(4, 4), (8, 2), (6, 1)]
DIMS = [(64, 64), (128, 128), (80, 80), (96, 64), (40, 112)]  # of keys, of values
# Every mask with every dtype and page size, the rest drawn.
CASES = []
for _i, (_dtype, _mask, _page) in enumerate(itertools.product(DTYPES, range(len(MASKS)), (None, 1, 16, 33))):
    _rng = random.Random(_i)
    CASES.append((_dtype, _mask, _page, _rng.choice(LENGTHS), _rng.choice(HEADS), _rng.choice(DIMS)))


def pack(rng, lengths, heads, kv_heads, dims, dtype):
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32).astype(dtype)  # noqa: E731
    cu_q, cu_k = (np.cumsum([0, *(n[i] for n in lengths)], dtype=np.int32) for i in range(2))
    return normal(cu_q[-1], heads, dims[0]), normal(cu_k[-1], kv_heads, dims[0]), normal(cu_k[-1], kv_heads, dims[1]), cu_q, cu_k


def to_pages(rng, x, cu, page):
    """x [Tk, K, D] spread over pages in random order, and the table."""
    lens = np.diff(cu)
    table = np.full((len(lens), int(max(-(-lens // page)) + 1)), -1, dtype=np.int32)
    order = rng.permutation(2 * table.size).astype(np.int32)
    pool = rng.standard_normal((len(order), page, *x.shape[1:]), dtype=np.float32).astype(x.dtype)
    for b, n in enumerate(lens):
        count = -(-int(n) // page)
        table[b, :count], order = order[:count], order[count:]
        at = np.arange(n)
        pool[table[b, at // page], at % page] = x[cu[b] : cu[b + 1]]
    return pool, table


def check(q, k, v, cu_q, cu_k, out, lse, mask):
    want, yardstick, want_lse = np.zeros(out.shape), np.zeros(out.shape), np.zeros(lse.shape)
    rule = {"causal": mask.get("causal", False), "window": mask.get("window_size", (-1, -1)), "softcap": mask.get("softcap", 0.0)}
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        if rows.start == rows.stop:
            continue
        rule["slopes"] = None if mask.get("alibi_slopes") is None else mask["alibi_slopes"]
        rule["sinks"] = mask.get("s_aux")
        args = (q[rows], k[keys], v[keys], mask.get("softmax_scale"))
        want[rows], want_lse[:, rows] = reference.exact(*args, **rule)
        yardstick[rows] = reference.rounded(*args, **rule)
    assert_as_good(out, want, yardstick, factor=5 if "alibi_slopes" in mask else 3)
    seen = np.isfinite(want_lse)
    assert (np.isfinite(lse) == seen).all()
    np.testing.assert_allclose(lse[seen], want_lse[seen], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype, mask, page, lengths, heads, dims", CASES)
def test_varlen(dtype, mask, page, lengths, heads, dims):
    rng = np.random.default_rng(CASES.index((dtype, mask, page, lengths, heads, dims)))
    q, k, v, cu_q, cu_k = pack(rng, lengths, *heads, dims, DTYPES[dtype])
    mask = dict(MASKS[mask])
    if mask.pop("alibi", False):
        mask["alibi_slopes"] = rng.random(heads[0], dtype=np.float32) * 0.2
    if mask.pop("sinks", False):
        mask["s_aux"] = rng.standard_normal(heads[0], dtype=np.float32)
    longest = [max(n[i] for n in lengths) for i in range(2)]
    if page is None:
        out, lse, nothing = qk.flash_attn_varlen_func(q, k, v, cu_q, cu_k, *longest, return_attn_probs=True, **mask)
    else:
        k_pool, table = to_pages(np.random.default_rng(7), k, cu_k, page)
        v_pool, _ = to_pages(np.random.default_rng(7), v, cu_k, page)
        out, lse, nothing = qk.flash_attn_varlen_func(
            q, k_pool, v_pool, cu_q, cu_k, *longest, return_attn_probs=True, block_table=table, **mask
        )
    assert nothing is None and out.shape == (*q.shape[:2], dims[1]) and lse.shape == q.shape[1::-1]
    check(q, k, v, cu_q, cu_k, out, lse, mask)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(113, 203), (1, 239), (128, 217), (128, 64), (3, 3)])
def test_dense(dtype, causal, shape):
    """flash_attn_func, also with arrays in which the heads come before the tokens."""
    rng = np.random.default_rng(0)
    sizes = ((shape[0], 6), (shape[1], 3), (shape[1], 3))
    q, k, v = (rng.standard_normal((2, n, h, 64), dtype=np.float32).astype(DTYPES[dtype]) for n, h in sizes)
    out, lse, _ = qk.flash_attn_func(q, k, v, causal=causal, return_attn_probs=True)
    for b in range(2):
        check(q[b], k[b], v[b], [0, shape[0]], [0, shape[1]], out[b], lse[b], {"causal": causal})
    by_head = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    assert (qk.flash_attn_func(*by_head, causal=causal) == out).all()


def test_nothing_to_do():
    q, k = np.zeros((0, 4, 32), dtype=np.float32), np.zeros((5, 2, 32), dtype=np.float32)
    none = np.array([0], dtype=np.int32)
    assert qk.flash_attn_varlen_func(q, k, k, none, none, 0, 0).shape == (0, 4, 32)
    assert qk.flash_attn_func(q[None], k[None], k[None]).shape == (1, 0, 4, 32)
    assert (qk.flash_attn_func(np.ones((1, 2, 4, 32), dtype=np.float32), k[None, :0], k[None, :0]) == 0).all()
