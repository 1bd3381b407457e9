"""Attention under a mask of torch, against torch's own, and in how few segments."""

import pytest

from reference import assert_as_good

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch): left out")

from quire_kernels._masks import Segments, masked_attention  # noqa: E402


def random_mask(generator, batch, q_len, k_len):
    """Each row of the batch of a kind of its own, so that cuts of one kind meet those of another."""

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    seen = torch.zeros(batch, q_len, k_len, dtype=torch.bool)
    key, query = torch.arange(k_len), torch.arange(q_len)[:, None] + k_len - q_len
    for b in range(batch):
        kind = number(0, 5)
        if kind == 0:
            seen[b] = torch.rand(q_len, k_len, generator=generator) < 0.5
        elif kind == 1:
            seen[b] = torch.rand(k_len, generator=generator) < 0.7  # not causal, with holes
        else:
            seen[b] = (key <= query) & (key > query - number(1, k_len)) if kind == 2 else key <= query
            if kind == 3:
                seen[b, :, : number(0, k_len)] = False
            elif kind == 4:
                seen[b, :, number(0, k_len) :] = False
            elif kind == 5:
                seen[b] &= torch.arange(k_len) // 4 == torch.arange(q_len)[:, None] // 4
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_random_masks(seed):
    generator = torch.Generator().manual_seed(seed)
    batch, q_len = 1 + seed % 4, (1, 3, 17, 40)[seed % 4 if seed % 3 else 2]
    k_len = q_len + (0, 1, 25)[seed // 4 % 3]
    q = torch.randn(batch, 4, q_len, 16, generator=generator)
    k, v = torch.randn(2, batch, 2, k_len, 16, generator=generator)
    seen = random_mask(generator, batch, q_len, k_len)
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    out = masked_attention(*swapped, seen[:, None], None, True, (-1, -1), 0.0, None)

    def torchs(dtype):
        args = (x.to(dtype) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*args, attn_mask=seen[:, None], enable_gqa=True)
        return out.masked_fill(~seen.any(2)[:, None, :, None], 0).transpose(1, 2).double().numpy()

    assert_as_good(out.numpy(), torchs(torch.float64), torchs(torch.float32), slack=1e-6)


def segments(seen):
    return len(Segments(seen).cu_seqlens) - 1


def test_padded_batches_are_few_segments():
    causal = torch.ones(3, 50, 50, dtype=torch.bool).tril()
    assert segments(causal) == 3
    assert segments(causal & (torch.arange(50) >= 20)) == 6  # what the padding sees, nothing, and the rest
    assert segments(causal & torch.ones(50, 50, dtype=torch.bool).triu(-8)) == 3
    assert segments(causal[:, -1:] & (torch.arange(50) >= 20)) == 3
    assert segments(causal & (torch.arange(50) < 20)) == 3 * (1 + 30)


def test_a_mask_that_changes_is_looked_at_again():
    q, k, v = torch.randn(3, 1, 4, 2, 16)
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()

    def run():
        return masked_attention(q, k, v, mask, None, True, (-1, -1), 0.0, None)

    first = run()
    assert torch.equal(run(), first)
    mask[..., 0] = False
    assert not torch.equal(run(), first)


def test_keys_that_exist():
    """[B, n]: the last of n keys is the last query's, and later ones are never read."""
    q = torch.randn(2, 3, 4, 16)
    k, v = torch.randn(2, 2, 12, 2, 16)
    exist = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1]])
    k[:, 7:], v[:, 7:] = torch.nan, torch.nan
    k[0, :2], v[0, :2] = torch.nan, torch.nan
    out = masked_attention(q, k, v, exist, None, True, (2, 0), 0.0, None)
    for b, begin in ((0, 2), (1, 0)):
        alone = [x[b : b + 1, begin:7].transpose(1, 2) for x in (k, v)]
        distance = torch.arange(begin, 7) - torch.arange(4, 7)[:, None]
        seen = (distance <= 0) & (distance >= -2)
        want = torch.nn.functional.scaled_dot_product_attention(
            q[b : b + 1].transpose(1, 2), *alone, attn_mask=seen, enable_gqa=True
        )
        torch.testing.assert_close(out[b], want.transpose(1, 2)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "mask, words", [
        (torch.ones(1, 1, 3), "2 or 4 dimensions, not 3"),
        (torch.full((1, 1, 3, 3), 0.5), "biases"),
        (torch.ones(1, 2, 3, 3).tril_(-1).bool() & torch.tensor([True, False]).reshape(1, 2, 1, 1), "between heads"),
        (torch.ones(1, 1, 3, 2).bool(), "3 keys"),
        (torch.ones(2, 1, 3, 3).bool(), "1 x 3 queries"),
        (torch.ones(2, 3).bool(), "2 sequences"),
    ],
)  # fmt: skip
def test_masks_that_are_refused(mask, words):
    x = torch.zeros(1, 3, 2, 16)
    with pytest.raises(ValueError, match=words):
        masked_attention(x, x, x, mask, None, True, (-1, -1), 0.0, None)
