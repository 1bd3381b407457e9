"""Errors name the argument."""

import numpy as np
import pytest

import quire_kernels as qk


def arrays(**replaced):
    zeros = lambda *shape: np.zeros(shape, dtype=np.float32)  # noqa: E731
    given = {"q": zeros(2, 3, 4, 32), "k_cache": zeros(2, 50, 2, 32), "v_cache": zeros(2, 50, 2, 32), **replaced}
    return {name: x for name, x in given.items() if x is not None}


ZEROS = np.zeros((2, 3, 2, 32), dtype=np.float32)
COS = np.ones((60, 16), dtype=np.float32)
NEW = {"k": ZEROS, "v": ZEROS, "cache_seqlens": 5}
PAGED = {"k_cache": np.zeros((9, 16, 2, 32), dtype=np.float32), "v_cache": np.zeros((9, 16, 2, 32), dtype=np.float32)}
READ_ONLY = np.zeros((2, 50, 2, 32), dtype=np.float32)
READ_ONLY.flags.writeable = False
BAD_CALLS = [
    (TypeError, "q", {"q": [1.0]}),
    (TypeError, "q", {"q": np.zeros((2, 3, 4, 32))}),
    (ValueError, "q", {"q": np.zeros((2, 3, 32), dtype=np.float32)}),
    (ValueError, "q", {"q": np.zeros((2, 3, 4, 520), dtype=np.float32)}),
    (ValueError, "q", {"q": np.zeros((2, 3, 3, 32), dtype=np.float32)}),
    (TypeError, "k_cache", {"k_cache": np.zeros((2, 50, 2, 32), dtype=np.float16)}),
    (TypeError, "v_cache", {"v_cache": np.zeros((2, 50, 2, 32), dtype=np.float16)}),
    (ValueError, "k_cache", {"k_cache": np.zeros((2, 50, 2, 40), dtype=np.float32)}),
    (ValueError, "v_cache", {"v_cache": np.zeros((2, 51, 2, 32), dtype=np.float32)}),
    (ValueError, "k_cache", {"k_cache": np.zeros((1, 50, 2, 32), dtype=np.float32), "v_cache": np.zeros((1, 50, 2, 32), dtype=np.float32)}),
    (ValueError, "k_cache", {"k_cache": np.zeros((2, 2, 50, 32), dtype=np.float32).swapaxes(1, 2)}),
    (ValueError, "v needs k", {"v": ZEROS}),
    (ValueError, "k needs v", {"k": ZEROS, "cache_seqlens": 5}),
    (ValueError, "cache_seqlens", {"k": ZEROS, "v": ZEROS}),
    (ValueError, "k must have shape", {**NEW, "k": ZEROS[:1]}),
    (ValueError, "v must have shape", {**NEW, "v": ZEROS[:, :2]}),
    (TypeError, "v is float16", {**NEW, "v": ZEROS.astype(np.float16)}),
    (ValueError, "cache_seqlens", {**NEW, "cache_seqlens": 48}),
    (ValueError, "cache_seqlens", {"cache_seqlens": 51}),
    (ValueError, "cache_seqlens", {"cache_seqlens": np.array([1, -1])}),
    (ValueError, "cache_seqlens", {"cache_seqlens": np.array([1, 2, 3])}),
    (TypeError, "cache_seqlens", {"cache_seqlens": np.array([1.0, 2.0])}),
    (ValueError, "k_cache is read-only", {**NEW, "k_cache": READ_ONLY}),
    (ValueError, "cache_batch_idx", {"cache_batch_idx": np.array([0, 2])}),
    (ValueError, "cache_leftpad", {"cache_leftpad": np.array([0, 51])}),
    (ValueError, "cache_leftpad", {**PAGED, "cache_leftpad": np.array([0, 1]), "block_table": np.zeros((2, 2), dtype=np.int32)}),
    (ValueError, "cache_batch_idx", {**PAGED, "cache_batch_idx": np.array([0, 1]), "block_table": np.zeros((2, 2), dtype=np.int32)}),
    (ValueError, "block_table", {**PAGED, "block_table": np.array([[0, 9], [1, 2]]), "cache_seqlens": 20}),
    (ValueError, "block_table", {**PAGED, "block_table": np.array([[0, 1], [1, -1]]), "cache_seqlens": 20}),
    (ValueError, "block_table", {**PAGED, "block_table": np.array([[0, 1]]), "cache_seqlens": 20}),
    (ValueError, "cache_seqlens", {**PAGED, "block_table": np.array([[0, 1], [1, 2]]), "cache_seqlens": 33}),
    (TypeError, "block_table", {**PAGED, "block_table": np.zeros((2, 2)), "cache_seqlens": 20}),
    (ValueError, "block_table", {**PAGED, "block_table": np.array([[0, 2**32], [1, 2]]), "cache_seqlens": 20}),
    (ValueError, "rotary_sin", {**NEW, "rotary_cos": COS}),
    (ValueError, "rotary_cos", {"rotary_cos": COS, "rotary_sin": COS, "cache_seqlens": 5}),
    (ValueError, "rotary_cos", {**NEW, "rotary_cos": COS[:, :4], "rotary_sin": COS[:, :4]}),
    (ValueError, "rotary_cos", {**NEW, "rotary_cos": COS[:7], "rotary_sin": COS[:7]}),
    (TypeError, "rotary_cos", {**NEW, "rotary_cos": COS.astype(np.float16), "rotary_sin": COS}),
    (ValueError, "softmax_scale", {"softmax_scale": float("nan")}),
    (ValueError, "softmax_scale", {"softmax_scale": -1.0}),
    (ValueError, "softcap", {"softcap": -2.0}),
    (ValueError, "window_size", {"window_size": 5}),
    (ValueError, "alibi_slopes", {"alibi_slopes": np.zeros(5, dtype=np.float32)}),
    (TypeError, "alibi_slopes", {"alibi_slopes": np.zeros(4)}),
    (ValueError, "window_size", {"window_size": (1.5, 0)}),
    (ValueError, "s_aux must have shape", {"s_aux": np.zeros(3, dtype=np.float32)}),
    (TypeError, "s_aux must hold floating-point", {"s_aux": np.zeros(4, dtype=np.int32)}),
    (ValueError, "num_splits", {"num_splits": -1}),
]


@pytest.mark.parametrize("error, words, replaced", BAD_CALLS)
def test_kvcache(error, words, replaced):
    given = arrays(**replaced)
    before = {name: x.copy() for name, x in given.items() if isinstance(x, np.ndarray)}
    with pytest.raises(error, match=words):
        qk.flash_attn_with_kvcache(**given)
    assert all((given[name] == x).all() for name, x in before.items()), "an error must leave the cache as it was"


Q, K = np.zeros((5, 4, 32), dtype=np.float32), np.zeros((9, 2, 32), dtype=np.float32)
VARLEN = {"q": Q, "k": K, "v": K, "cu_seqlens_q": np.array([0, 5]), "cu_seqlens_k": np.array([0, 9]), "max_seqlen_q": 5, "max_seqlen_k": 9}


@pytest.mark.parametrize(
    "error, words, replaced",
    [
        (ValueError, "dropout_p", {"dropout_p": 0.1}),
        (ValueError, "cu_seqlens_q", {"cu_seqlens_q": np.array([0, 6])}),
        (ValueError, "cu_seqlens_q", {"cu_seqlens_q": np.array([1, 5])}),
        (ValueError, "cu_seqlens_q", {"cu_seqlens_q": np.array([0, 4])}),
        (ValueError, "cu_seqlens_k", {"cu_seqlens_k": np.array([0, 10]), "max_seqlen_k": 10}),
        (ValueError, "cu_seqlens_k", {"cu_seqlens_k": np.array([0, 4, 9])}),
        (ValueError, "cu_seqlens_k", {"cu_seqlens_k": np.array([0, 9, 4]), "cu_seqlens_q": np.array([0, 2, 5])}),
        (ValueError, "max_seqlen_q", {"max_seqlen_q": 4}),
        (ValueError, "max_seqlen_k", {"max_seqlen_k": 8}),
        (ValueError, "k must have 4 dimensions", {"block_table": np.array([[0]])}),
        (TypeError, "v must be", {"v": None}),
    ],
)
def test_varlen(error, words, replaced):
    with pytest.raises(error, match=words):
        qk.flash_attn_varlen_func(**{**VARLEN, **replaced})


def test_dense():
    q, k = Q[None], K[None]
    for error, words, call in (
        (ValueError, "dropout_p", {"dropout_p": 0.5}),
        (ValueError, "k has 2 sequences", {"k": np.zeros((2, 9, 2, 32), dtype=np.float32)}),
        (ValueError, "v has shape", {"v": k[:, :8]}),
    ):
        with pytest.raises(error, match=words):
            qk.flash_attn_func(**{"q": q, "k": k, "v": k, **call})


def test_reshape_and_cache():
    k, cache = np.zeros((2, 2, 8), dtype=np.float32), np.zeros((3, 4, 2, 8), dtype=np.float32)
    for error, words, call in (
        (ValueError, "slot_mapping", {"slot_mapping": np.array([0, 12])}),
        (ValueError, "slot_mapping", {"slot_mapping": np.array([0])}),
        (TypeError, "slot_mapping", {"slot_mapping": np.array([0.0, 1.0])}),
        (TypeError, "k is float16", {"k": k.astype(np.float16)}),
        (ValueError, "v must have shape", {"v": k[:, :1]}),
        (ValueError, "v_cache has shape", {"v_cache": cache[:2]}),
    ):
        with pytest.raises(error, match=words):
            qk.reshape_and_cache(**{"k": k, "v": k, "k_cache": cache, "v_cache": cache, "slot_mapping": np.array([0, 1]), **call})


def test_unknown_instruction_set():
    with pytest.raises(RuntimeError, match="not available here"):
        qk.force_isa("sparc")
    with pytest.raises(ValueError, match="threads"):
        qk.set_num_threads(0)
