"""Attention from its definition, in numpy: the oracle of the tests.

exact() is in float64. rounded() rounds every step to the arrays' dtype, as an implementation without fused steps does: its error
is the yardstick for the kernels', which must stay within a small multiple of it.
"""

import ml_dtypes
import numpy as np

DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def visible(sq, sk, causal, window):
    """[Sq, Sk]: query i, at position i + Sk - Sq, sees key j."""
    distance = np.arange(sk) - (np.arange(sq)[:, None] + sk - sq)
    left, right = window[0], 0 if causal else window[1]
    seen = np.ones((sq, sk), dtype=bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def _scores(q, k, scale, softcap, slopes, rnd, kind):
    rows = q.shape[0] * q.shape[1] // k.shape[1]  # that share a key head
    by_group = q.transpose(1, 0, 2).reshape(k.shape[1], rows, q.shape[2])
    scores = rnd(by_group @ rnd(k * kind(scale)).transpose(1, 2, 0)).reshape(q.shape[1], q.shape[0], k.shape[0])
    if softcap > 0:
        scores = rnd(rnd(np.tanh(rnd(scores / kind(softcap)))) * kind(softcap))
    if slopes is not None:
        sq, sk = q.shape[0], k.shape[0]
        distance = np.abs(np.arange(sq)[:, None] + sk - sq - np.arange(sk))
        scores = scores - slopes.astype(kind)[:, None, None] * distance.astype(kind)
    return scores


def _attend(q, k, v, scale, causal, window, softcap, slopes, sinks, rnd, kind):
    scores = _scores(q, k, scale, softcap, slopes, rnd, kind)
    scores = np.where(visible(q.shape[0], k.shape[0], causal, window), scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    sink = np.full((q.shape[1], 1, 1), -np.inf, dtype=kind) if sinks is None else sinks.astype(kind)[:, None, None]
    peak = np.maximum(peak, sink)
    p = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = p.sum(axis=-1, keepdims=True) + np.exp(sink - np.where(np.isfinite(peak), peak, 0))
    p = rnd(p / np.where(total > 0, total, 1))
    by_group = p.reshape(k.shape[1], q.shape[0] * q.shape[1] // k.shape[1], k.shape[0]) @ v.transpose(1, 0, 2)
    out = rnd(by_group.reshape(q.shape[1], q.shape[0], v.shape[2]).transpose(1, 0, 2))
    with np.errstate(divide="ignore"):
        lse = (np.where(np.isfinite(peak), peak, 0) + np.log(total))[..., 0]
    return out, lse


def exact(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None, sinks=None):
    """q [Sq, H, D], k [Sk, K, D], v [Sk, K, Dv], slopes [H] -> (out [Sq, H, Dv], lse [H, Sq]), float64."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return _attend(q, k, v, scale, causal, window, softcap, slopes, sinks, lambda x: x, np.float64)


def rounded(q, k, v, scale=None, causal=False, window=(-1, -1), softcap=0.0, slopes=None, sinks=None):
    """The same in q's dtype: float32 sums, rounded at every step. Only `out`."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dtype = q.dtype
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    rnd = lambda x: x.astype(dtype).astype(np.float32)  # noqa: E731
    return _attend(q, k, v, scale, causal, window, softcap, slopes, sinks, rnd, np.float32)[0]


def rotate(x, cos, sin, positions, interleaved):
    """x [S, H, D] with the first 2 * cos.shape[1] dimensions rotated at positions [S], float64."""
    half = cos.shape[1]
    x = x.astype(np.float64)
    c, s = (t.astype(np.float64)[positions][:, None, :] for t in (cos, sin))
    a, b = (np.s_[..., 0 : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]) if interleaved else (
        np.s_[..., :half], np.s_[..., half : 2 * half]
    )  # fmt: skip
    out = x.copy()
    out[a] = x[a] * c - x[b] * s
    out[b] = x[a] * s + x[b] * c
    return out


def assert_as_good(out, want, yardstick, factor=3.0, slack=1e-5):
    """|out - want| <= factor * |yardstick - want| + slack, of the largest errors."""
    assert np.isfinite(out.astype(np.float64)).all()
    error = np.abs(out.astype(np.float64) - want).max(initial=0)
    allowed = factor * np.abs(yardstick.astype(np.float64) - want).max(initial=0) + slack
    assert error <= allowed, f"error {error:.3e} is over {allowed:.3e}"
