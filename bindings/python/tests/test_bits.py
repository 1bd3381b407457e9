"""A row's bits depend on its query, its keys and their order alone: not on the batch, the window, pages, threads or splits."""

import numpy as np
import pytest

import quire_kernels as qk
from reference import DTYPES

HEADS, KV_HEADS, CAPACITY = 8, 2, 1100


def setup(dtype, dim, rows, seed=0):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32).astype(DTYPES[dtype])  # noqa: E731
    return rng, normal(1, rows, HEADS, dim), normal(1, CAPACITY, KV_HEADS, dim), normal(1, CAPACITY, KV_HEADS, dim)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("rows, context", [(2, 2), (5, 40), (16, 512), (33, 1100)])
def test_row_of_a_window_is_the_single_row(dtype, dim, rows, context):
    _, q, k, v = setup(dtype, dim, rows)
    window = qk.flash_attn_with_kvcache(q, k, v, cache_seqlens=context, causal=True)
    for i in range(rows):
        row = q[:, i : i + 1].copy()
        single = qk.flash_attn_with_kvcache(row, k, v, cache_seqlens=context - rows + 1 + i, causal=True)
        assert same(single[0, 0], window[0, i])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_pages_and_batch(dtype, rows):
    rng, q, k, v = setup(dtype, 64, rows)
    alone, lse = qk.flash_attn_with_kvcache(q, k, v, causal=True, return_softmax_lse=True)
    for page in (1, 7, 16, 256):
        blocks = -(-CAPACITY // page)
        table = rng.permutation(2 * blocks)[:blocks].astype(np.int32)
        at = np.arange(CAPACITY)
        pools = []
        for x in (k, v):
            pool = np.full((2 * blocks, page, *x.shape[2:]), np.inf, dtype=x.dtype)  # what no one may read
            pool[table[at // page], at % page] = x[0]
            pools.append(pool)
        out = qk.flash_attn_with_kvcache(q, *pools, cache_seqlens=CAPACITY, block_table=table[None], causal=True)
        assert same(out, alone)
    others = [np.concatenate([x, x[:, ::-1], x]) for x in (q, k, v)]
    lens = np.array([CAPACITY, 500, CAPACITY])
    batch, lses = qk.flash_attn_with_kvcache(*others, cache_seqlens=lens, causal=True, return_softmax_lse=True)
    assert same(batch[:1], alone) and same(batch[2:], alone) and same(lses[:1].copy(), lse.copy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 6, 100])
def test_threads_and_splits(dtype, rows, threads):
    _, q, k, v = setup(dtype, 128, rows)
    results = []
    for count in (1, 2, 3, 8):
        threads(count)
        assert qk.num_threads() == count
        results += [qk.flash_attn_with_kvcache(q, k, v, causal=True, num_splits=s) for s in (0, 1, 5)]
    assert all(same(x, results[0]) for x in results)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 6, 100])
@pytest.mark.parametrize("extras", [{}, {"softcap": 10.0}, {"window_size": (100, 3)}])
def test_instruction_sets_with_fma_agree(dtype, rows, extras):
    _, q, k, v = setup(dtype, 64, rows)
    results = {}
    for name in qk.available_isas():
        if name == "portable":  # its multiply-adds round twice
            continue
        if name == "avx512_bf16" and dtype == "bfloat16":  # has an order of sums of its own
            continue
        qk.force_isa(name)
        results[name] = qk.flash_attn_with_kvcache(q, k, v, causal=not extras, **extras)
    qk.force_isa("")
    first = next(iter(results.values()))
    assert all(same(x, first) for x in results.values()), list(results)


def test_order_of_calls_from_many_threads():
    """Calls take turns on the one pool of threads."""
    import concurrent.futures

    _, q, k, v = setup("bfloat16", 64, 9)
    want = qk.flash_attn_with_kvcache(q, k, v, causal=True)
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        jobs = [executor.submit(qk.flash_attn_with_kvcache, q, k, v, causal=True) for _ in range(40)]
        assert all(same(job.result(), want) for job in jobs)
