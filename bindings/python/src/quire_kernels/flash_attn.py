"""flash_attn_func and flash_attn_varlen_func, as FlashAttention 2 defines them, on the CPU.

Shapes: B sequences, S tokens, H query heads, K key and value heads (H is a multiple of K; head h reads head h // (H / K)), D the
dimension of a head. Masks are aligned to the bottom right: query i of Sq is at position i + Sk - Sq, and sees keys up to there if
`causal`, or those from window_size[0] before it to window_size[1] behind it (-1: no limit). A query that sees no key gives 0 and
a log-sum-exp of minus infinity. Results do not depend on the batch, the layout of the keys or the number of threads, not by a bit.

Errors name the argument: TypeError for a wrong kind or dtype, ValueError for a wrong shape or value.
"""

import numpy as np

from ._arrays import Arrays, refuse_gradients
from ._attention import Call, Pool, Runs, lse_by_sequence


def check_dropout(dropout_p):
    if dropout_p != 0.0:
        raise ValueError(f"dropout_p must be 0, not {dropout_p}: these functions are for inference")


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False, *, s_aux=None,
):  # fmt: skip
    """Attention of q [B, Sq, H, D] over k [B, Sk, K, D] and v [B, Sk, K, Dv].

      softmax_scale  on q.k; None: D^-1/2
      softcap        > 0: scores become softcap * tanh(score / softcap), before masks and ALiBi
      alibi_slopes   [H] or [B, H] float32: scores get -slope * |distance|
      deterministic  always so
      s_aux          [H], by name only (FlashAttention 2 has none): attention sinks, one more score for every query of a head, with no
                     value; lse counts it, too

    Returns out [B, Sq, H, Dv], or (out, lse [B, H, Sq] float32, None) if return_attn_probs is true: without dropout there are no
    probabilities to return.
    """
    check_dropout(dropout_p)
    refuse_gradients(q=q, k=k, v=v, alibi_slopes=alibi_slopes, s_aux=s_aux)
    arrays = Arrays(q)
    q, k, v = (arrays.check(name, x, 4) for name, x in (("q", q), ("k", k), ("v", v)))
    batch, seqlen_q, heads, dim = q.shape
    if k.shape[0] != batch:
        raise ValueError(f"k has {k.shape[0]} sequences, but q has {batch}")
    call = Call(arrays, q, k, v, ("k", "v"), batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    pool = Pool(arrays, ("k", "v"), k, v, in_place=False)
    runs = Runs.contiguous(np.arange(batch) * pool.step, np.full(batch, k.shape[1]))
    out, lse = call.run(q.reshape(-1, heads, dim), pool, np.arange(batch + 1) * seqlen_q, runs, return_attn_probs)
    out = out.reshape(batch, seqlen_q, heads, call.value_dim)
    return (out, lse_by_sequence(lse, batch, seqlen_q), None) if return_attn_probs else out


def _check_cu_seqlens(arrays, name, cu, longest_name, longest):
    cu = arrays.to_numpy(name, cu, np.int64, (None,))
    if len(cu) < 1 or cu[0] != 0 or (np.diff(cu) < 0).any():
        raise ValueError(f"{name} must ascend from 0")
    if longest is not None and len(cu) > 1 and np.diff(cu).max() > int(longest):
        raise ValueError(f"{longest_name} is {int(longest)}, but {name} has a sequence of {np.diff(cu).max()}")
    return cu


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None,
    *, s_aux=None,
):  # fmt: skip
    """Attention of sequences packed one after the other; arguments as in flash_attn_func, and

      q             [Tq, H, D]; sequence b has the rows cu_seqlens_q[b] .. cu_seqlens_q[b + 1] (int32, [B + 1])
      k, v          [Tk, K, D] and [Tk, K, Dv], likewise by cu_seqlens_k; with block_table [B, max_blocks] int32 they are pools
                    [N, P, K, D] of blocks of any size P, and cu_seqlens_k says only how many keys each sequence has
      max_seqlen_*  the longest sequence's length: not needed, but checked

    Returns out [Tq, H, Dv], or (out, lse [H, Tq] float32, None) if return_attn_probs is true.
    """
    check_dropout(dropout_p)
    refuse_gradients(q=q, k=k, v=v, alibi_slopes=alibi_slopes, s_aux=s_aux)
    arrays = Arrays(q)
    kv_dims = 3 if block_table is None else 4
    q, k, v = (arrays.check(name, x, n) for name, x, n in (("q", q, 3), ("k", k, kv_dims), ("v", v, kv_dims)))
    cu_q = _check_cu_seqlens(arrays, "cu_seqlens_q", cu_seqlens_q, "max_seqlen_q", max_seqlen_q)
    cu_k = _check_cu_seqlens(arrays, "cu_seqlens_k", cu_seqlens_k, "max_seqlen_k", max_seqlen_k)
    batch, lens = len(cu_q) - 1, np.diff(cu_k)
    if len(cu_k) != batch + 1:
        raise ValueError(f"cu_seqlens_k has {len(cu_k)} entries, but cu_seqlens_q has {batch + 1}")
    if cu_q[-1] != q.shape[0]:
        raise ValueError(f"cu_seqlens_q ends at {cu_q[-1]}, but q has {q.shape[0]} rows")
    call = Call(arrays, q, k, v, ("k", "v"), batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    if block_table is None:
        if cu_k[-1] > k.shape[0]:
            raise ValueError(f"cu_seqlens_k ends at {cu_k[-1]}, but k has {k.shape[0]} rows")
        pool = Pool(arrays, ("k", "v"), k[None], v[None], in_place=False)
        runs = Runs.contiguous(cu_k[:-1], lens)
    else:
        table = arrays.to_numpy("block_table", block_table, np.int64, (batch, None))
        pool = Pool(arrays, ("k", "v"), k, v, in_place=False)
        runs = Runs.paged(table, lens, k.shape[1], pool.step, k.shape[0])
    out, lse = call.run(q, pool, cu_q, runs, return_attn_probs)
    return (out, lse, None) if return_attn_probs else out
