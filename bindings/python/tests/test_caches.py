"""transformers' caches, paddings and ways of generating: the tokens of sdpa, and logits as good as sdpa's.

The yardstick is sdpa's own error in float32, against sdpa in float64: two correct orders of summation differ by as much.
"""

import copy
import pathlib
import sys

import pytest

from reference import assert_as_good

reason = "transformers and torch are not installed: left out"
torch = pytest.importorskip("torch", reason=reason)
transformers = pytest.importorskip("transformers", minversion="5.22.2", reason=reason)

import quire_kernels.transformers as qt  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

LENGTHS = (5, 17, 40, 1)
NEW_TOKENS = 14


def make_model(**changes):
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, max_position_embeddings=512, initializer_range=0.2, **changes,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


# Layers with a window see 9 tokens, fewer than most prompts have.
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {"full": {}, "sliding": {"use_sliding_window": True, "sliding_window": 9, "layer_types": KINDS}}


@pytest.fixture(scope="module", autouse=True)
def registered():
    qt.register()


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return make_model(**MODELS[request.param])


def batch(padding):
    """Prompts of several lengths as ids and mask [4, 40], or the longest one alone."""
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, 256, (n,), generator=generator) for n in LENGTHS]
    if padding == "none":
        return prompts[2][None], torch.ones(1, 40, dtype=torch.int64)
    ids, mask = torch.zeros(2, 4, 40, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        part = slice(40 - len(prompt), 40) if padding == "left" else slice(0, len(prompt))
        ids[row, part], mask[row, part] = prompt, 1
    return ids, mask


def generate(model, implementation, ids, mask, **options):
    model.set_attn_implementation(implementation)
    return model.generate(
        ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0, return_dict_in_generate=True,
        output_logits=True, **options,
    )  # fmt: skip


def run_all(model, run):
    """run(model, implementation) by these kernels, by sdpa, and by sdpa in float64."""
    exact = copy.deepcopy(model).double()
    return run(model, "quire"), run(model, "sdpa"), run(exact, "sdpa")


CACHES = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "larger static": {"cache_implementation": "static", "max_cache_len": 300},
    "chunked prefill": {"prefill_chunk_size": 16},
    "static, chunked prefill": {"cache_implementation": "static", "prefill_chunk_size": 16},
    "none": {"use_cache": False},
}


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("cache", CACHES)
def test_tokens_and_logits_of_sdpa(model, cache, padding):
    ids, mask = batch(padding)
    ours, sdpa, exact = run_all(model, lambda m, name: generate(m, name, ids, mask, **CACHES[cache]))
    assert ours.sequences.tolist() == sdpa.sequences.tolist() == exact.sequences.tolist()
    logits = [torch.stack(x.logits).double().numpy() for x in (ours, exact, sdpa)]
    assert_as_good(*logits)


def tokens_are_those_of_sdpa(model, padding, **options):
    ids, mask = batch(padding)
    tokens = {name: generate(model, name, ids, mask, **options).sequences.tolist() for name in ("quire", "sdpa")}
    assert tokens["quire"] == tokens["sdpa"]


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_beams(model, cache, padding):
    tokens_are_those_of_sdpa(model, padding, num_beams=3, **CACHES[cache])
    tokens_are_those_of_sdpa(model, padding, num_beams=4, num_return_sequences=2, length_penalty=0.5, **CACHES[cache])


def test_prompt_lookup(model):
    """Several tokens a step, and a cache that is cut back."""
    tokens_are_those_of_sdpa(model, "none", prompt_lookup_num_tokens=4)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("beams", [1, 2])
def test_quantised_cache(beams, padding):
    """Tokens only: a cache in 8 bits turns one different last bit of a key into a different step."""
    options = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    tokens_are_those_of_sdpa(make_model(), padding, num_beams=beams, **options)


@pytest.mark.parametrize("given_mask", [False, True])
@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_calls_of_a_model_with_a_cache(model, kind, given_mask):
    """Without generate(), which keeps the mask for some implementations: a prompt in three calls of 7, 1 and 5 tokens."""
    ids = torch.arange(26).reshape(2, 13) + 3

    def run(model, name):
        model.set_attn_implementation(name)
        cache = transformers.StaticCache(model.config, 50) if kind == "static" else transformers.DynamicCache(config=model.config)
        parts = []
        with torch.no_grad():
            for begin, end in ((0, 7), (7, 8), (8, 13)):
                mask = torch.ones(2, end) if given_mask else None
                parts.append(model(ids[:, begin:end], attention_mask=mask, past_key_values=cache).logits)
        return torch.cat(parts, dim=1).double().numpy()

    ours, sdpa, exact = run_all(model, run)
    assert_as_good(ours, exact, sdpa)


def four_dimensions(kind):
    """[2, 1, 12, 12] and what transformers calls it: True for what a query sees."""
    causal = torch.ones(12, 12, dtype=torch.bool).tril()
    if kind == "prefix":  # the first 5 tokens see each other
        causal[:5, :5] = True
    elif kind == "tree":  # two branches behind 4 tokens
        causal[8:, 4:8] = False
    elif kind == "chunks":
        causal &= torch.arange(12)[:, None] // 5 == torch.arange(12) // 5
    both = torch.stack([causal, causal])[:, None]
    both[1, :, :, :2] = False
    both[1, :, :2, :2] = True
    return both


@pytest.mark.parametrize("as_bias", [False, True])
@pytest.mark.parametrize("kind", ["causal", "prefix", "tree", "chunks"])
def test_masks_of_four_dimensions(kind, as_bias):
    model, ids = make_model(), torch.arange(24).reshape(2, 12) + 7
    mask = four_dimensions(kind)

    def run(model, name):
        model.set_attn_implementation(name)
        given = torch.zeros(mask.shape, dtype=model.dtype).masked_fill(~mask, torch.finfo(model.dtype).min) if as_bias else mask
        with torch.no_grad():
            return model(ids, attention_mask=given).logits.double().numpy()

    ours, sdpa, exact = run_all(model, run)
    assert_as_good(ours, exact, sdpa)


def test_compiled():
    """torch.compile leaves the kernels alone, and does not trace through what they do with numpy."""
    q, k, v = torch.randn(3, 2, 4, 9, 16)
    mask = torch.ones(2, 9).tril(3)
    want = qt.attention(None, q, k, v, mask, scaling=0.25, is_causal=True)[0]
    compiled = torch.compile(lambda *args: qt.attention(None, *args, scaling=0.25, is_causal=True)[0] * 2, backend="eager")
    assert torch.equal(compiled(q, k, v, mask), want * 2)
    torch._dynamo.reset()


@pytest.mark.parametrize("use_pages", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_continuous_batching(kind, use_pages):
    """Prompts and steps of decoding mixed: the tokens of sdpa one by one. Layers with a window have no block tables in transformers."""
    import generate as example

    qt.register_for_continuous_batching()
    model, prompts = make_model(**MODELS[kind]), example.make_prompts((5, 17, 40, 1, 33))
    model.set_attn_implementation("sdpa")
    want = [example.generate(model, [p])[0] for p in prompts]
    model.set_attn_implementation("quire_flash")
    assert example.generate_continuously(model, prompts, use_pages) == want
    assert [example.generate(model, [p])[0] for p in prompts] == want  # generate() under that name, too


def test_continuous_batching_under_another_name_is_refused():
    import generate as example

    model = make_model()
    model.set_attn_implementation("quire")
    with pytest.raises(ValueError, match="quire is not supported for continuous batching"):
        example.generate_continuously(model, [[5, 6, 7]], use_pages=False)
