"""flash_attn_func and flash_attn_varlen_func, as FlashAttention 2 defines them, on the CPU.

Shapes: B sequences, S tokens, H query heads, K key and value heads (H is a multiple of K; head h reads head h // (H / K)), D the
dimension of a head. Masks are aligned to the bottom right: query i of Sq is at position i + Sk - Sq, and sees keys up to there if
`causal`, or those from window_size[0] before it to window_size[1] behind it (-1: no limit). A query that sees no key gives 0 and
a log-sum-exp of minus infinity. Results do not depend on the batch, the layout of the keys or the number of threads, not by a bit.

Errors name the argument: TypeError for a wrong kind or dtype, ValueError for a wrong shape or value.
"""

from . import _core
from ._arrays import arrays_of, describe_ints, ints, refuse_gradients
from ._attention import Call, Pool, lse_by_sequence


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
    arrays = arrays_of("q", q)
    for name, x in (("q", q), ("k", k), ("v", v)):
        arrays.check(name, x, 4)
    batch, seqlen_q = q.shape[:2]
    if k.shape[0] != batch:
        raise ValueError(f"k has {k.shape[0]} sequences, but q has {batch}")
    call = Call(arrays, q, k, v, ("k", "v"), batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    pool = Pool(arrays, ("k", "v"), k, v, in_place=False).padded()
    places = batch, pool.length, None, None, pool.blocks()
    out, lse = call.run(_core.attend_cache, q, pool, return_attn_probs, places, 0, seqlen_q)
    return (out, lse_by_sequence(lse, batch, seqlen_q), None) if return_attn_probs else out


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
    arrays = arrays_of("q", q)
    kv_dims = 3 if block_table is None else 4
    for name, x, ndim in (("q", q, 3), ("k", k, kv_dims), ("v", v, kv_dims)):
        arrays.check(name, x, ndim)
    cu_q, cu_k = ints("cu_seqlens_q", cu_seqlens_q, (None,)), ints("cu_seqlens_k", cu_seqlens_k, (None,))
    batch = len(cu_q) - 1
    call = Call(arrays, q, k, v, ("k", "v"), batch, softmax_scale, causal, window_size, softcap, alibi_slopes, s_aux)
    if block_table is None:
        k, v = k[None], v[None]
    else:
        block_table = ints("block_table", block_table, (batch, None))
    pool = Pool(arrays, ("k", "v"), k, v, in_place=False).padded()
    longest = (-1 if x is None else int(x) for x in (max_seqlen_q, max_seqlen_k))
    where = describe_ints(cu_q), describe_ints(cu_k), *longest, describe_ints(block_table), pool.blocks()
    out, lse = call.run(_core.attend_packed, q, pool, return_attn_probs, *where)
    return (out, lse, None) if return_attn_probs else out
