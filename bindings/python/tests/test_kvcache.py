"""flash_attn_with_kvcache against its definition, over a grid of everything it takes."""

import numpy as np
import pytest

import quire_kernels as qk
from kvcache_case import LONG_SHAPES, Case, Problem, draw
from reference import assert_as_good

GRID = [draw(seed) for seed in range(120)]
# Every value of every choice at least once, whatever was drawn.
EDGES = [
    Case(dtype=dtype, dim=dim, causal=True, new_kv=True, rotary=1.0, page=16, sq=sq, sk=400, seed=dim)
    for dtype in ("float32", "float16", "bfloat16")
    for dim in (32, 59, 64, 80, 96, 128, 192, 256, 512)
    for sq in (1, 20)
]
LONG = [
    draw(seed, [shape], dim=32, kv_heads=1, dtype=dtype, page=page, batch_idx=False, leftpad=False)
    for seed, (shape, dtype, page) in enumerate(
        zip(LONG_SHAPES, ("bfloat16", "float16", "bfloat16", "float32"), (16, None, 256, None))
    )
]


def check(case):
    problem = Problem(case)
    args, kwargs = problem.arguments()
    out, lse = qk.flash_attn_with_kvcache(*args, **kwargs)
    results, k_cache, v_cache = problem.expected()
    assert out.shape == problem.q.shape and out.dtype == problem.q.dtype and lse.dtype == np.float32
    assert (args[2] == v_cache).all(), "the values in the cache are not those given"
    if problem.cos is None:
        assert (args[1] == k_cache).all(), "the keys in the cache are not those given"
    else:  # rounded once from float32, the expected from float64: now and then the neighbour
        np.testing.assert_allclose(args[1].astype(np.float64), k_cache.astype(np.float64), rtol=1e-2, atol=1e-3)
        assert (args[1] != k_cache).mean() < (0.01 if case.dtype != "float32" else 1)
    want = np.stack([r[0] for r in results])
    assert_as_good(out, want, np.stack([r[2] for r in results]), factor=5 if case.alibi else 3)
    want_lse = np.stack([r[1] for r in results])
    seen = np.isfinite(want_lse)
    assert (np.isfinite(lse) == seen).all() and (lse[~seen] == -np.inf).all()
    np.testing.assert_allclose(lse[seen], want_lse[seen], rtol=1e-3, atol=2e-2 if problem.cos is not None else 1e-3)
    assert (out.swapaxes(1, 2)[~seen] == 0).all(), "a query that sees no key must give 0"


@pytest.mark.parametrize("case", GRID, ids=str)
def test_grid(case):
    check(case)


@pytest.mark.parametrize("case", EDGES, ids=str)
def test_head_dims(case):
    check(case)


@pytest.mark.parametrize("case", LONG, ids=str)
def test_long(case):
    check(case)


@pytest.mark.parametrize("seed", range(1000, 1008))
def test_each_instruction_set(isa, seed):
    check(draw(seed, [(1, 128), (3, 339), (20, 300)]))


def test_full_cache_without_lengths():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 2, 32), dtype=np.float32) for n in (1, 50, 50))
    whole = qk.flash_attn_with_kvcache(q, k, v)
    assert (whole == qk.flash_attn_with_kvcache(q, k, v, cache_seqlens=50)).all()
    assert (whole == qk.flash_attn_func(q, k, v)).all()


def test_more_queries_than_keys():
    """Rows before the first key see nothing."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, n, 2, 32), dtype=np.float32) for n in (7, 3, 3))
    out, lse = qk.flash_attn_with_kvcache(q, k, v, causal=True, return_softmax_lse=True)
    assert (out[0, :4] == 0).all() and (lse[0, :, :4] == -np.inf).all()
    assert (out[0, 4:] == qk.flash_attn_func(q[:, 4:].copy(), k, v, causal=True)[0]).all()


def test_empty_sequences():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 2, 32), dtype=np.float32) for n in (2, 40, 40))
    out, lse = qk.flash_attn_with_kvcache(q, k, v, cache_seqlens=np.array([0, 33]), return_softmax_lse=True)
    assert (out[0] == 0).all() and (lse[0] == -np.inf).all() and (out[1] != 0).all()


def test_reshape_and_cache():
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((5, 2, d)).astype(np.float16) for d in (16, 24))
    k_cache, v_cache = (np.zeros((8, 6, 2, d), dtype=np.float16) for d in (16, 24))
    slots = np.array([3, 20, -1, 40, 1])
    qk.reshape_and_cache(k, v, k_cache, v_cache, slots)
    for x, cache in ((k, k_cache), (v, v_cache)):
        want = np.zeros((48, 2, x.shape[-1]), dtype=np.float16)
        want[slots[slots >= 0]] = x[slots >= 0]
        assert (cache.reshape(want.shape) == want).all()


@pytest.mark.parametrize("layout", ["interleaved", "slice"])
def test_cache_is_used_where_it_lies(layout):
    """A cache that is a view of something larger: keys and values of a block side by side, or room for more tokens."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((2, 3, 4, 32), dtype=np.float32)
    k, v = (rng.standard_normal((2, 3, 2, 32), dtype=np.float32) for _ in range(2))
    if layout == "interleaved":
        both = rng.standard_normal((12, 2, 16, 2, 32), dtype=np.float32)
        k_cache, v_cache = both[:, 0], both[:, 1]
        where = {"block_table": rng.permutation(12)[:8].astype(np.int32).reshape(2, 4)}
    else:
        both = rng.standard_normal((2, 3, 100, 2, 32), dtype=np.float32)
        k_cache, v_cache = both[0, :, :60], both[1, :, :60]
        where = {"cache_batch_idx": np.array([2, 0])}
    plain = [x.copy() for x in (k_cache, v_cache)]
    args = {"k": k, "v": v, "cache_seqlens": np.array([20, 41]), "causal": True, **where}
    out = qk.flash_attn_with_kvcache(q, k_cache, v_cache, **args)
    assert (out == qk.flash_attn_with_kvcache(q, *plain, **args)).all()
    assert (k_cache == plain[0]).all() and (v_cache == plain[1]).all()
