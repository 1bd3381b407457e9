"""gated_delta_rule against its definition in float64, its bits, and its errors."""

import numpy as np
import pytest

import quire_kernels as qk
from reference import DTYPES


class Problem:
    def __init__(self, dtype="float32", k_heads=2, heads=4, k_dim=32, v_dim=48, tokens=30, seed=0):
        rng = np.random.default_rng(seed)
        normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
        self.k_heads, self.heads, self.k_dim, self.v_dim = k_heads, heads, k_dim, v_dim
        self.qkv = normal(tokens, 2 * k_heads * k_dim + heads * v_dim).astype(DTYPES[dtype])
        self.a, self.b = (normal(tokens, heads).astype(DTYPES[dtype]) for _ in range(2))
        self.a_log, self.dt_bias = rng.uniform(-1, 2, heads).astype(np.float32), normal(heads)
        self.state = normal(5, heads, v_dim, k_dim)

    def run(self, begin, end, state, slot, fresh):
        part = slice(begin, end)
        return qk.gated_delta_rule(
            self.qkv[part], self.a[part], self.b[part], self.a_log, self.dt_bias, state, np.array([0, end - begin]),
            slots=np.array([slot]), fresh=fresh,
        )  # fmt: skip

    def expected(self, begin, end, matrices):
        """y and the matrices [H, Dv, Dk] afterwards, float64."""
        keys, group = self.k_heads * self.k_dim, self.heads // self.k_heads
        x = self.qkv[begin:end].astype(np.float64)
        q, k = (x[:, i * keys : (i + 1) * keys].reshape(len(x), self.k_heads, self.k_dim) for i in range(2))
        q, k = (np.repeat(t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6), group, axis=1) for t in (q, k))
        v = x[:, 2 * keys :].reshape(len(x), self.heads, self.v_dim)
        a, b = (t[begin:end].astype(np.float64) for t in (self.a, self.b))
        decay = np.exp(-np.exp(self.a_log.astype(np.float64)) * np.logaddexp(0, a + self.dt_bias))
        beta = 1 / (1 + np.exp(-b))
        s, ys = matrices.astype(np.float64), []
        for t in range(len(x)):
            s = s * decay[t][:, None, None]
            delta = (v[t] - np.einsum("hvk,hk->hv", s, k[t])) * beta[t][:, None]
            s = s + delta[:, :, None] * k[t][:, None, :]
            ys.append(np.einsum("hvk,hk->hv", s, q[t]) * self.k_dim**-0.5)
        return np.array(ys), s


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float16", 2e-3), ("bfloat16", 1e-2)])
@pytest.mark.parametrize("sizes", [(2, 4, 32, 48), (1, 1, 4, 1), (4, 4, 128, 128), (2, 6, 64, 100), (16, 32, 128, 128)])
@pytest.mark.parametrize("fresh", [False, True])
def test_definition(isa, dtype, tolerance, sizes, fresh):
    problem = Problem(dtype, *sizes)
    state = problem.state.copy()
    before = np.zeros_like(state[3]) if fresh else qk.matrices_of_state(state)[3]
    y = problem.run(0, 30, state, 3, fresh)
    want, matrices = problem.expected(0, 30, before)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(qk.matrices_of_state(state)[3], matrices, rtol=1e-4, atol=1e-5)
    assert (state[[0, 1, 2, 4]] == problem.state[[0, 1, 2, 4]]).all(), "other slots were touched"


def test_matrices_and_back():
    x = np.random.default_rng(0).standard_normal((3, 2, 150, 8), dtype=np.float32)
    state = qk.state_of_matrices(x)
    assert (qk.matrices_of_state(state) == x).all() and (state != x).any()
    assert (state[1, 1].reshape(-1)[: 8 * 64].reshape(8, 64) == x[1, 1, :64].T).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cuts_neighbours_and_threads_change_no_bit(dtype, threads):
    problem = Problem(dtype, 2, 4, 64, 128, tokens=60)
    whole_state = problem.state.copy()
    whole = problem.run(0, 60, whole_state, 2, True)
    state = problem.state.copy()
    parts = [problem.run(begin, end, state, 2, begin == 0) for begin, end in ((0, 1), (1, 33), (33, 34), (34, 60))]
    assert (np.concatenate(parts) == whole).all() and (state == whole_state).all()
    for count in (1, 3):
        threads(count)
        state = problem.state.copy()
        y = qk.gated_delta_rule(
            *(np.concatenate([x, x[:7], x[:0]]) for x in (problem.qkv, problem.a, problem.b)), problem.a_log, problem.dt_bias,
            state, np.array([0, 60, 67, 67]), slots=np.array([2, 0, 1]), fresh=np.array([True, False, True]),
        )  # fmt: skip
        assert (y[:60] == whole).all() and (state[2] == whole_state[2]).all() and (state[[1, 3, 4]] == problem.state[[1, 3, 4]]).all()


def test_errors_name_the_argument():
    p = Problem()
    good = {
        "qkv": p.qkv, "a": p.a, "b": p.b, "a_log": p.a_log, "dt_bias": p.dt_bias, "state": p.state, "cu_seqlens": np.array([0, 10, 30]),
    }  # fmt: skip
    for error, words, replaced in (
        (TypeError, "qkv must be", {"qkv": p.qkv.astype(np.float64)}),
        (ValueError, "qkv has shape", {"qkv": p.qkv[:, 1:]}),
        (TypeError, "a is float16", {"a": p.a.astype(np.float16)}),
        (ValueError, "b must have shape", {"b": p.b[:9]}),
        (TypeError, "a_log must be float32", {"a_log": p.a_log.astype(np.float64)}),
        (ValueError, "dt_bias must have shape", {"dt_bias": p.dt_bias[:1]}),
        (ValueError, "state must be contiguous", {"state": p.state[::2]}),
        (ValueError, "cu_seqlens", {"cu_seqlens": np.array([0, 31])}),
        (ValueError, "slots", {"slots": np.array([1, 1])}),
        (ValueError, "slots", {"slots": np.array([1, 5])}),
        (TypeError, "fresh", {"fresh": np.array([1, 0])}),
    ):
        with pytest.raises(error, match=words):
            qk.gated_delta_rule(**{**good, **replaced})
