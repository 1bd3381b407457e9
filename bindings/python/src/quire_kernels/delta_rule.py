"""The gated delta rule (arXiv:2412.06464) of Qwen3-Next and Qwen3.5, on the CPU.

Shapes: T tokens, K key heads, H value heads (a multiple of K; value head h goes with key head h // (H / K)), Dk and Dv the
dimensions of a head.
"""

import numpy as np

from . import _core
from ._arrays import arrays_of, describe_ints, dtype_name, refuse_gradients, to_numpy

_BLOCK = 64  # rows of Dv that a slot keeps side by side
_MAX_KEY_DIM = 256


def _swap_blocks(arrays, x, rows_first):
    """x [.., Dv, Dk] in blocks of 64 rows, each from [rows][Dk] to [Dk][rows] or back."""
    x = arrays.contiguous(x)
    *lead, rows, dim = x.shape
    out = arrays.empty(x.shape, x)
    flat, flat_out = x.reshape(*lead, rows * dim), out.reshape(*lead, rows * dim)
    for first in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - first)
        part = slice(first * dim, (first + count) * dim)
        shape = (count, dim) if rows_first else (dim, count)
        flat_out[..., part] = flat[..., part].reshape(*lead, *shape).swapaxes(-1, -2).reshape(*lead, count * dim)
    return out


def state_of_matrices(matrices):
    """Matrices [.., H, Dv, Dk] float32 in the order in which gated_delta_rule keeps them in its state, as a new array."""
    return _swap_blocks(arrays_of("matrices", matrices), matrices, rows_first=True)


def matrices_of_state(state):
    """The matrices [.., H, Dv, Dk] of a state of that shape, as a new array."""
    return _swap_blocks(arrays_of("state", state), state, rows_first=False)


def _check(arrays, qkv, a, b, a_log, dt_bias, state):
    slots, heads, v_dim, k_dim = state.shape
    if k_dim < 4 or k_dim % 4 != 0 or k_dim > _MAX_KEY_DIM or v_dim < 1 or heads < 1:
        raise ValueError(f"state has shape {tuple(state.shape)}: Dk must be a multiple of 4 up to {_MAX_KEY_DIM}")
    keys = qkv.shape[1] - heads * v_dim
    if keys < 2 * k_dim or keys % (2 * k_dim) != 0 or heads % (keys // (2 * k_dim)) != 0:
        raise ValueError(f"qkv has shape {tuple(qkv.shape)}, which does not fit state's {tuple(state.shape)}")
    for name, x in (("a", a), ("b", b)):
        if tuple(x.shape) != (qkv.shape[0], heads):
            raise ValueError(f"{name} must have shape {(qkv.shape[0], heads)}, not {tuple(x.shape)}")
        if x.dtype != qkv.dtype:
            raise TypeError(f"{name} is {dtype_name(x.dtype)}, but qkv is {dtype_name(qkv.dtype)}")
    for name, x in (("a_log", a_log), ("dt_bias", dt_bias), ("state", state)):
        if dtype_name(x.dtype) != "float32":
            raise TypeError(f"{name} must be float32, not {dtype_name(x.dtype)}")
        if name != "state" and tuple(x.shape) != (heads,):
            raise ValueError(f"{name} must have shape ({heads},), not {tuple(x.shape)}")
    if not arrays.is_contiguous(state) or not arrays.writable(state):
        raise ValueError("state must be contiguous and writable: it is advanced where it lies")


def _check_sequences(cu_seqlens, slots, fresh, tokens, num_slots):
    cu = to_numpy("cu_seqlens", cu_seqlens, np.int64, (None,))
    if len(cu) < 1 or cu[0] != 0 or cu[-1] != tokens or (np.diff(cu) < 0).any():
        raise ValueError(f"cu_seqlens must ascend from 0 to qkv's {tokens} tokens")
    batch = len(cu) - 1
    slots = np.arange(batch) if slots is None else to_numpy("slots", slots, np.int64, (batch,))
    if (slots < 0).any() or (slots >= num_slots).any() or len(np.unique(slots)) != batch:
        raise ValueError(f"slots must be different ones of state's {num_slots}, one for each of {batch} sequences")
    fresh = np.full(batch, fresh) if isinstance(fresh, bool) else to_numpy("fresh", fresh, np.bool_, (batch,))
    return cu, slots, np.ascontiguousarray(fresh, dtype=np.uint8)


def gated_delta_rule(qkv, a, b, a_log, dt_bias, state, cu_seqlens, slots=None, fresh=False):
    """Advances the states of sequences packed one after the other, token after token, and reads them:

        S = decay S;  S = S + beta (v - S k) k^T;  y = S q

    with q and k divided by sqrt(sum of squares + 1e-6), q also by sqrt(Dk), decay = exp(-exp(a_log) softplus(a + dt_bias)) and
    beta = sigmoid(b). Everything is computed in float32, y is rounded once.

      qkv             [T, 2 K Dk + H Dv] float32, float16 or bfloat16: all heads of q, of k, of v
      a, b            [T, H] in qkv's dtype; a_log, dt_bias [H] float32
      state           [slots, H, Dv, Dk] float32, advanced in place; in an order of its own (state_of_matrices, matrices_of_state)
      cu_seqlens      [B + 1] first token of each sequence
      slots           [B] the slot of each sequence; None: 0, 1, ...
      fresh           bool or [B] bool: the sequence begins here, from zeros

    Returns y [T, H, Dv] in qkv's dtype. Bits do not depend on the cuts into calls, the neighbours or the threads.
    """
    refuse_gradients(qkv=qkv, a=a, b=b, a_log=a_log, dt_bias=dt_bias, state=state)
    arrays = arrays_of("qkv", qkv)
    for name, x, ndim in (("qkv", qkv, 2), ("a", a, 2), ("b", b, 2), ("a_log", a_log, 1), ("dt_bias", dt_bias, 1), ("state", state, 4)):
        arrays.check(name, x, ndim)
    kind = arrays.float_kind("qkv", qkv)
    _check(arrays, qkv, a, b, a_log, dt_bias, state)
    tokens, (num_slots, heads, v_dim, k_dim) = qkv.shape[0], state.shape
    cu, slots, fresh = _check_sequences(cu_seqlens, slots, fresh, tokens, num_slots)
    gates = arrays.empty((tokens, 2 * heads), qkv)
    gates[:, :heads], gates[:, heads:] = a, b
    y = arrays.empty((tokens, heads, v_dim), qkv)
    given = [arrays.contiguous(x) for x in (qkv, gates, a_log, dt_bias)]
    k_heads = (qkv.shape[1] - heads * v_dim) // (2 * k_dim)
    addresses = [arrays.address(x) for x in (*given, state, y)] + [0, 0]
    shape = (tokens, num_slots, k_heads, heads, k_dim, v_dim)
    _core.delta_rule(addresses, kind, False, shape, describe_ints(cu), describe_ints(slots), fresh)
    return y
