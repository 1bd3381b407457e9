"""Every way of the example: transformers models with these kernels give the tokens that they give with sdpa."""

import pathlib
import sys

import pytest

reason = "transformers and torch are not installed (pip install torch transformers): the example is left out"
torch = pytest.importorskip("torch", reason=reason)
transformers = pytest.importorskip("transformers", minversion="5.22.2", reason=reason)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))


def test_tokens_of_sdpa_in_every_way():
    import generate

    results = generate.main()
    functions = {
        "generate": {"masked_attention"},
        "one by one": {"flash_attn_func"},
        "continuous batching, gathered keys": {"flash_attn_varlen_func"},
        "continuous batching, pages": {"flash_attn_varlen_func", "flash_attn_with_kvcache"},
    }
    for name, used in functions.items():
        same, calls = results[name]
        assert same, f"{name}: other tokens than sdpa"
        assert set(calls) == used, f"{name} ran {calls}"
    assert results["continuous batching, pages"][1]["flash_attn_with_kvcache"] > 50


def test_sliding_window():
    import generate
    import quire_kernels.transformers

    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, use_sliding_window=True, sliding_window=9, max_window_layers=1, initializer_range=0.2,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config).eval()
    quire_kernels.transformers.register()
    tokens = {}
    for name in ("sdpa", "quire"):
        model.set_attn_implementation(name)
        tokens[name] = generate.generate(model, [list(range(1, 41)), [5, 6, 7]])
    assert tokens["sdpa"] == tokens["quire"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinks(dtype):
    """As in gpt-oss: a score per head that takes its share of the softmax and gives no value."""
    import quire_kernels.transformers as qt

    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, 9, 16, generator=generator).to(dtype) for heads in (4, 2, 2))
    sinks = torch.randn(4, generator=generator).to(dtype)
    out, _ = qt.attention(None, q, k, v, None, scaling=0.25, is_causal=True, s_aux=sinks)
    scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(2, 3) * 0.25
    scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    column = sinks.double().reshape(1, 4, 1, 1).expand(2, 4, 9, 1)
    p = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    want = (p @ v.double().repeat_interleave(2, 1)).transpose(1, 2)
    torch.testing.assert_close(out.double(), want, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=1e-2)


def tiny_model():
    import generate
    import quire_kernels.transformers

    quire_kernels.transformers.register()
    model = generate.make_model()
    model.set_attn_implementation("quire")
    return model


def test_sequences_packed_into_one_row():
    """By position_ids, as transformers' own FlashAttention takes them: none sees another."""
    model = tiny_model()
    sequences = [list(range(5, 30)), [7], list(range(100, 140))]
    ids, positions = ([i for s in sequences for i in s], [i for s in sequences for i in range(len(s))])
    with torch.no_grad():
        packed = model(torch.tensor([ids]), position_ids=torch.tensor([positions]), use_cache=False).logits[0]
        cached = model(torch.tensor([ids]), position_ids=torch.tensor([positions])).logits[0]  # transformers makes no mask here
        alone = [model(torch.tensor([s]), use_cache=False).logits[0] for s in sequences]
    for logits in (packed, cached):
        torch.testing.assert_close(logits, torch.cat(alone), atol=1e-4, rtol=1e-4)
    with torch.no_grad():  # positions that go on where an earlier call ended are one sequence
        cache = model(torch.tensor([ids[:9]])).past_key_values
        rest = model(torch.tensor([ids[9:25]]), past_key_values=cache).logits[0]
    torch.testing.assert_close(rest, alone[0][9:], atol=1e-4, rtol=1e-4)


def test_training_fails_where_it_would_miss_a_gradient():
    """A forward pass needs no torch.no_grad(); a backward pass must not leave attention out in silence."""
    model = tiny_model()
    logits = model(torch.tensor([[5, 6, 7]])).logits
    with pytest.raises(RuntimeError, match="no backward pass"):
        logits.sum().backward()


def test_refuses_what_it_has_not():
    import quire_kernels.transformers as qt

    x = torch.zeros(1, 2, 3, 16)
    with pytest.raises(ValueError, match="s_aux"):
        qt.attention(None, x, x, x, None, is_causal=True, s_aux=torch.zeros(3))
    with pytest.raises(ValueError, match="attention_mask"):
        qt.attention(None, x, x, x, torch.full((1, 1, 3, 3), 0.5), is_causal=True)
    for name in ("position_bias", "head_mask", "indices", "block_indices", "sinks"):
        with pytest.raises(ValueError, match=f"^{name} is not supported"):
            qt.attention(None, x, x, x, None, is_causal=True, **{name: torch.zeros(1)})
    with pytest.raises(ValueError, match="output_attentions"):
        qt.attention(None, x, x, x, None, is_causal=True, output_attentions=True)
    with pytest.raises(ValueError, match="dropout"):
        qt.attention(None, x, x, x, None, dropout=0.1)
    with pytest.raises(ValueError, match="flash"):
        qt.register_for_continuous_batching("quire")
