"""The same functions with torch tensors: no copies, torch's own arithmetic as the yardstick, no silent loss of gradients."""

import pathlib
import sys

import numpy as np
import pytest

import quire_kernels as qk
from kvcache_case import Problem, draw
from reference import assert_as_good

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch): the torch half of the tests is left out")


sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench"))


def to_torch(x):
    if not isinstance(x, np.ndarray):
        return x
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def to_numpy(x):
    return x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy()


def same(tensor, array):
    return tensor.shape == array.shape and (to_numpy(tensor) == array.astype(to_numpy(tensor).dtype)).all()


@pytest.mark.parametrize("seed", range(40))
def test_same_bits_as_numpy(seed):
    """Results and caches, over the grid of test_kvcache.py."""
    problem = Problem(draw(2000 + seed, [(1, 128), (3, 339), (20, 300)]))
    args, kwargs = problem.arguments()
    tensors, named = [to_torch(x) for x in args], {name: to_torch(x) for name, x in kwargs.items()}
    out, lse = qk.flash_attn_with_kvcache(*tensors, **named)
    want, want_lse = qk.flash_attn_with_kvcache(*args, **kwargs)
    assert out.dtype == tensors[0].dtype and same(out, want) and same(lse, want_lse)
    assert same(tensors[1], args[1]) and same(tensors[2], args[2])


def attention_of_torch(q, k, v, mask, scale):
    """In the tensors' own dtype, one torch operation after the other. q [B, S, H, D]."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k * scale).masked_fill(~mask, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1).to(v.dtype), v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads, kv_heads", [(6, 6), (6, 3), (6, 1)])
@pytest.mark.parametrize("dim", [32, 59, 64, 128, 256])
@pytest.mark.parametrize("shape", [(1, 128), (3, 799), (64, 256), (128, 128)])
def test_as_good_as_torch(dtype, heads, kv_heads, dim, shape):
    """3 times torch's error in the same dtype, against torch's result in float32."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((shape[0], heads), (shape[1], kv_heads), (shape[1], kv_heads))
    q, k, v = (torch.randn(2, n, h, dim, generator=generator).to(dtype) for n, h in sizes)
    mask = torch.ones(shape, dtype=torch.bool).tril(shape[1] - shape[0])
    out = qk.flash_attn_func(q, k, v, causal=True)
    want = attention_of_torch(q.float(), k.float(), v.float(), mask, dim**-0.5)
    yardstick = attention_of_torch(q, k, v, mask, dim**-0.5)
    assert_as_good(out.float().numpy(), want.double().numpy(), yardstick.float().numpy())
    if shape[0] == shape[1]:
        swapped = [x.transpose(1, 2).float() for x in (q, k, v)]
        sdpa = torch.nn.functional.scaled_dot_product_attention(*swapped, is_causal=True, enable_gqa=True).transpose(1, 2)
        assert_as_good(sdpa.numpy(), want.double().numpy(), yardstick.float().numpy())  # the oracle itself


def test_cache_is_written_where_it_lies():
    k_cache, v_cache = torch.zeros(2, 5, 16, 2, 64, dtype=torch.bfloat16)
    k, v = torch.randn(2, 1, 3, 2, 64).to(torch.bfloat16)
    table = torch.tensor([[3, 1]], dtype=torch.int32)
    before = k_cache.data_ptr(), v_cache.data_ptr()
    q = torch.randn(1, 3, 4, 64).to(torch.bfloat16)
    qk.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=torch.tensor([14]), block_table=table, causal=True)
    assert (k_cache.data_ptr(), v_cache.data_ptr()) == before
    for new, cache in ((k, k_cache), (v, v_cache)):
        assert torch.equal(cache[3, 14:], new[0, :2]) and torch.equal(cache[1, 0], new[0, 2])
        assert cache.count_nonzero() == new.count_nonzero()


def test_gradients_are_refused():
    x = torch.randn(1, 4, 2, 32)
    leaf = x.clone().requires_grad_()
    for name in ("q", "k", "v"):
        given = {"q": x, "k": x, "v": x, name: leaf}
        with pytest.raises(ValueError, match=f"{name} requires a gradient"):
            qk.flash_attn_func(**given)
        with torch.no_grad():
            assert torch.equal(qk.flash_attn_func(**given), qk.flash_attn_func(x, x, x))


@pytest.mark.parametrize("name", ["s_aux", "alibi_slopes"])
def test_gradients_of_scores_are_refused(name):
    x, leaf = torch.randn(1, 4, 2, 32), torch.ones(2, requires_grad=True)
    calls = {
        qk.flash_attn_func: {"q": x, "k": x, "v": x},
        qk.flash_attn_with_kvcache: {"q": x, "k_cache": x, "v_cache": x},
    }
    for function, given in calls.items():
        with pytest.raises(ValueError, match=f"{name} requires a gradient"):
            function(**given, **{name: leaf})
        with torch.no_grad():
            assert torch.equal(function(**given, **{name: leaf}), function(**given, **{name: leaf.detach()}))


def test_bfloat16_where_it_may_not_be():
    x, half = torch.randn(1, 4, 2, 32), torch.ones(1, dtype=torch.bfloat16)
    for name, words in (("cache_seqlens", "hold integers"), ("cache_batch_idx", "hold integers"), ("alibi_slopes", "be float32")):
        with pytest.raises(TypeError, match=f"{name} must {words}, not bfloat16"):
            qk.flash_attn_with_kvcache(x, x, x, **{name: half})


def test_kinds_are_not_mixed():
    x = torch.randn(1, 4, 2, 32)
    with pytest.raises(TypeError, match="k must be a torch tensor"):
        qk.flash_attn_func(x, x.numpy(), x)
    with pytest.raises(TypeError, match="k must be a numpy array"):
        qk.flash_attn_func(x.numpy(), x, x.numpy())
    with pytest.raises(ValueError, match="q must be on the CPU"):
        qk.flash_attn_func(x.to("meta"), x, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_call_costs_little_beyond_its_kernel(dtype, threads):
    """One sequence with 16 heads, 8 key heads of 128 and 50 keys in pages of 16. A neighbour may slow one attempt, not all."""
    import call_cost

    threads(1)
    k_cache, v_cache = torch.randn(2, 8, 16, 8, 128).to(dtype)
    q, k, v = (torch.randn(1, 1, heads, 128).to(dtype) for heads in (16, 8, 8))
    where = {"cache_seqlens": torch.tensor([49]), "block_table": torch.tensor([[5, 2, 7, 0]], dtype=torch.int32)}
    call = lambda: qk.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, causal=True, **where)  # noqa: E731
    kernel = call_cost.kernel_of(call)
    for _ in range(20):
        whole, alone = call_cost.medians([call, kernel], 0.05)
        if whole - alone <= 30e-6:
            return
    pytest.fail(f"a call takes {whole * 1e6:.0f} us, its kernel {alone * 1e6:.0f} us: at most 30 us between them are wanted")
