"""The gated delta rule as the layers that kernels.kernelize() puts in place of transformers' functions (Qwen3-Next, Qwen3.5).

Shapes: B sequences of S tokens, K key heads, H value heads (a multiple of K; value head h goes with key head h // (H / K)), Dk and Dv
the dimensions of a head. Each layer computes, token after token and in float32,

    S = exp(g) S;  S = S + k (beta (v - k^T S));  y = q^T S / sqrt(Dk)

with q and k divided by sqrt(sum of squares + 1e-6), as gated_delta_rule() does. Bits do not depend on how a sequence is cut into
calls: chunk_gated_delta_rule, for prompts, and recurrent_gated_delta_rule, for single tokens, are the same arithmetic.
"""

import numpy as np
import torch
from torch import nn

from . import _core
from ._arrays import arrays_of, describe_ints, dtype_name, ints
from ._no_backward import without_backward

_MAX_KEY_DIM = 256

# What transformers' models hand on to each of their layers, and that says nothing about this rule. The lengths of packed sequences are in
# cu_seqlens.
_FOR_OTHERS = frozenset((
    "cu_seq_lens_k", "max_length_q", "max_length_k", "position_ids", "is_causal", "use_cache", "num_items_in_batch",
    "output_hidden_states", "output_attentions", "output_router_logits", "return_dict",
))  # fmt: skip


def _check(arrays, query, key, value, g, beta):
    for name, x, ndim in (("query", query, 4), ("key", key, 4), ("value", value, 4), ("g", g, 3), ("beta", beta, 3)):
        arrays.check(name, x, ndim)
    for name, x in (("key", key), ("value", value)):
        if x.dtype != query.dtype:
            raise TypeError(f"{name} is {dtype_name(x.dtype)}, but query is {dtype_name(query.dtype)}")
    batch, seqlen, k_heads, k_dim = query.shape
    v_heads, v_dim = value.shape[2:]
    if key.shape != query.shape:
        raise ValueError(f"key has shape {tuple(key.shape)}, but query has {tuple(query.shape)}")
    if value.shape[:2] != query.shape[:2] or k_heads < 1 or v_heads < 1 or v_heads % k_heads != 0 or v_dim < 1:
        raise ValueError(f"value has shape {tuple(value.shape)}, which does not fit query's {tuple(query.shape)}")
    if k_dim < 4 or k_dim % 4 != 0 or k_dim > _MAX_KEY_DIM:
        raise ValueError(f"query has a head dimension of {k_dim}: a multiple of 4 up to {_MAX_KEY_DIM} is needed")
    for name, x in (("g", g), ("beta", beta)):
        if x.shape != (batch, seqlen, v_heads):
            raise ValueError(f"{name} must have shape {(batch, seqlen, v_heads)}, not {tuple(x.shape)}")


def _sequence_starts(cu_seqlens, batch, seqlen):
    """[sequences + 1] first token of each sequence among the B * S tokens."""
    if cu_seqlens is None:
        return np.arange(batch + 1) * seqlen
    starts = ints("cu_seqlens", cu_seqlens, (None,))
    if batch != 1:
        raise ValueError(f"cu_seqlens needs a batch of 1, not {batch}: the sequences are packed into one row")
    return starts


def _state(initial_state, shape):
    """What the kernel advances in place, float32 [sequences, H, Dk, Dv]: a copy, as transformers' caches keep the one they have."""
    if initial_state is None:
        return torch.empty(shape, dtype=torch.float32)
    if initial_state.shape != shape:
        raise ValueError(f"initial_state must have shape {shape}, not {tuple(initial_state.shape)}")
    return initial_state.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _delta_rule(query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel, kwargs):
    if not use_qk_l2norm_in_kernel:
        raise ValueError("use_qk_l2norm_in_kernel must be true: the kernel divides queries and keys by their norms")
    if kwargs.get("seq_idx") is not None:
        raise ValueError("seq_idx is not supported: packed sequences are told apart by cu_seqlens")
    for name, given in kwargs.items():
        if given is not None and name != "cu_seqlens" and name not in _FOR_OTHERS:
            raise TypeError(f"{name} is no argument of the gated delta rule here: it would change nothing, so leave it out or pass None")
    arrays = arrays_of("query", query)
    _check(arrays, query, key, value, g, beta)
    batch, seqlen, k_heads, k_dim = query.shape
    v_heads, v_dim = value.shape[2:]
    starts = _sequence_starts(kwargs.get("cu_seqlens"), batch, seqlen)
    count, tokens = len(starts) - 1, batch * seqlen
    with torch.no_grad():
        state = _state(initial_state, (count, v_heads, k_dim, v_dim))
        qkv = torch.cat([x.reshape(tokens, -1) for x in (query, key, value)], dim=1)
        g32, beta32 = (x.to(torch.float32, memory_format=torch.contiguous_format) for x in (g, beta))
        y = torch.empty(batch, seqlen, v_heads, v_dim, dtype=query.dtype)
    addresses = [qkv.data_ptr(), 0, 0, 0, state.data_ptr(), y.data_ptr(), g32.data_ptr(), beta32.data_ptr()]
    slots, fresh = np.arange(count), np.full(count, initial_state is None, dtype=np.uint8)
    shape = (tokens, count, k_heads, v_heads, k_dim, v_dim)
    where = describe_ints(starts), describe_ints(slots), fresh
    _core.delta_rule(addresses, arrays.float_kind("query", query), True, shape, *where)
    inputs = (query, key, value, g, beta, initial_state)
    return without_backward("the gated delta rule", y, inputs), state if output_final_state else None


class chunk_gated_delta_rule(nn.Module):  # noqa: N801, the name that transformers asks for
    """forward(): query, key [B, S, K, Dk], value [B, S, H, Dv], g and beta [B, S, H]; initial_state [B, H, Dk, Dv] or None.

    Returns y [B, S, H, Dv] in query's dtype and, if output_final_state, the new state in float32, else None. cu_seqlens [N + 1]
    tells sequences apart that are packed into a batch of 1; initial_state is [N, H, Dk, Dv] then. chunk_size changes nothing, and
    neither does what models hand to all their layers alike (position_ids, ...); any other argument is a TypeError.
    """

    can_torch_compile = False
    has_backward = False

    def forward(
        self, query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
        **kwargs,
    ):  # fmt: skip
        return _delta_rule(query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel, kwargs)


class recurrent_gated_delta_rule(nn.Module):  # noqa: N801
    """chunk_gated_delta_rule without chunk_size, which transformers calls for single tokens."""

    can_torch_compile = False
    has_backward = False

    def forward(
        self, query, key, value, g, beta, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, **kwargs
    ):
        return _delta_rule(query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel, kwargs)
