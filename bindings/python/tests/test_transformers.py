"""Every way of the example: transformers models with these kernels give the tokens that they give with sdpa."""

import pathlib
import sys

import pytest

reason = "transformers and torch are not installed (pip install torch transformers): the example is left out"
torch = pytest.importorskip("torch", reason=reason)
transformers = pytest.importorskip("transformers", minversion="5.0", reason=reason)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))


def test_tokens_of_sdpa_in_every_way():
    import generate

    results = generate.main()
    functions = {
        "generate": {"flash_attn_varlen_func"},
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


def test_refuses_what_it_has_not():
    import quire_kernels.transformers as qt

    x = torch.zeros(1, 2, 3, 16)
    with pytest.raises(ValueError, match="s_aux"):
        qt.attention(None, x, x, x, None, s_aux=torch.zeros(2))
    with pytest.raises(ValueError, match="dropout"):
        qt.attention(None, x, x, x, None, dropout=0.1)
    with pytest.raises(ValueError, match="flash"):
        qt.register_for_continuous_batching("quire")
