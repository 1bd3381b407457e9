"""kv_paged_write: each token lands in its page, nothing else moves, and attention sees what flash_attn_with_kvcache would have written."""

import numpy as np
import pytest

import quire_kernels as qk
from reference import DTYPES

PAGE, KV_HEADS, DIM, VALUE_DIM = 6, 2, 16, 24


def make_case(dtype, new=3, seed=0):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32).astype(DTYPES[dtype])  # noqa: E731
    key, value = normal(3, new, KV_HEADS, DIM), normal(3, new, KV_HEADS, VALUE_DIM)
    caches = normal(12, PAGE, KV_HEADS, DIM), normal(12, PAGE, KV_HEADS, VALUE_DIM)
    return key, value, *caches, np.array([[7, 2, -1], [0, 11, 5], [3, -1, -1]], dtype=np.int32), np.array([4, 12, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("new", [0, 1, 3])
@pytest.mark.parametrize("int_type", [np.int32, np.int64])
def test_tokens_land_in_their_pages(dtype, new, int_type):
    key, value, k_cache, v_cache, table, lens = make_case(dtype, new)
    wanted = k_cache.copy(), v_cache.copy()
    for b in range(3):
        for i in range(new):
            at = lens[b] + i
            for cache, x in zip(wanted, (key, value)):
                cache[table[b, at // PAGE], at % PAGE] = x[b, i]
    assert qk.kv_paged_write(key, value, k_cache, v_cache, table.astype(int_type), lens.astype(int_type)) is None
    assert (k_cache == wanted[0]).all() and (v_cache == wanted[1]).all()


def test_attention_sees_them():
    key, value, k_cache, v_cache, table, lens = make_case("bfloat16")
    q = np.random.default_rng(1).standard_normal((3, 3, 4, DIM), dtype=np.float32).astype(key.dtype)
    caches = k_cache.copy(), v_cache.copy()
    want = qk.flash_attn_with_kvcache(q, *caches, key, value, cache_seqlens=lens, block_table=table, causal=True)
    qk.kv_paged_write(key, value, k_cache, v_cache, table, lens)
    out = qk.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=lens + 3, block_table=table, causal=True)
    assert (out == want).all() and (k_cache == caches[0]).all() and (v_cache == caches[1]).all()


def test_one_length_and_pages_side_by_side():
    """Keys and values of a page in one array, and the same number of tokens in every sequence."""
    key, value, table = np.ones((2, 1, 2, 8), np.float32), np.full((2, 1, 2, 8), 2, np.float32), np.array([[1], [2]])
    both = np.zeros((4, 2, PAGE, 2, 8), dtype=np.float32)
    qk.kv_paged_write(key, value, both[:, 0], both[:, 1], table, 5)
    assert (both[1:3, 0, 5] == 1).all() and (both[1:3, 1, 5] == 2).all() and both.sum() == 2 * 16 * (1 + 2)


@pytest.mark.parametrize(
    "error, words, changed",
    [
        (TypeError, "^key must be a numpy array or", {"key": [1.0]}),
        (TypeError, "^value must be", {"value": None}),
        (ValueError, "^key must have shape", {"key": np.zeros((3, 3, 2, 8), np.float32)}),
        (ValueError, "^value must have shape", {"value": np.zeros((3, 2, 2, 24), np.float32)}),
        (TypeError, "^key is float16, but key_cache is float32", {"key": np.zeros((3, 3, 2, 16), np.float16)}),
        (ValueError, "^value_cache is", {"value_cache": np.zeros((12, 5, 2, 24), np.float32)}),
        (ValueError, "^key_cache must be contiguous", {"key_cache": np.zeros((12, 2, PAGE, 16), np.float32).swapaxes(1, 2)}),
        (ValueError, "^block_table must have shape", {"block_table": np.zeros((2, 3), np.int32)}),
        (ValueError, "^block_table has block 12 for sequence 2", {"block_table": np.array([[7, 2, -1], [0, 11, 5], [12, -1, -1]])}),
        (ValueError, "^block_table has block -1 for sequence 0", {"block_table": np.array([[-1, 2, -1], [0, 11, 5], [3, -1, -1]])}),
        (TypeError, "^seq_lens must hold integers", {"seq_lens": np.zeros(3)}),
        (ValueError, "^seq_lens must not be negative", {"seq_lens": np.array([4, -1, 0])}),
        (ValueError, "^seq_lens is 16: with 3 new tokens", {"seq_lens": np.array([4, 16, 0])}),
    ],
)
def test_errors_leave_the_cache(error, words, changed):
    names = ("key", "value", "key_cache", "value_cache", "block_table", "seq_lens")
    given = {**dict(zip(names, make_case("float32"))), **changed}
    before = given["key_cache"].copy()
    with pytest.raises(error, match=words):
        qk.kv_paged_write(**given)
    assert (given["key_cache"] == before).all()


def test_read_only_caches():
    names = ("key", "value", "key_cache", "value_cache", "block_table", "seq_lens")
    for name in names[2:4]:
        given = dict(zip(names, make_case("float32")))
        given[name].flags.writeable = False
        with pytest.raises(ValueError, match=f"^{name} is read-only"):
            qk.kv_paged_write(**given)
