"""A transformers model that attends with quire-kernels: generate(), and continuous batching with gathered keys and with pages.

    pip install ./bindings/python torch transformers
    python bindings/python/examples/generate.py

The model is a small Qwen3 with random weights, so that nothing is downloaded; greedy tokens in float32 are compared with those of
transformers' own `sdpa`.
"""

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

import quire_kernels
import quire_kernels.transformers

NEW_TOKENS = 24


def make_model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=512, initializer_range=0.1,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).eval()


def make_prompts(lengths=(5, 17, 60, 1)):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, 512, (n,), generator=generator).tolist() for n in lengths]


def generation_config():
    return GenerationConfig(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)


def generate(model, prompts):
    """model.generate() of all prompts as one batch, padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(ids, attention_mask=mask, generation_config=generation_config())
    return out[:, longest:].tolist()


def generate_continuously(model, prompts, use_pages):
    """generate_batch(): prompts and decoding steps mixed as they come, over a cache of pages of 16 tokens."""
    config = ContinuousBatchingConfig(
        page_size=16, num_blocks=64, max_batch_tokens=32, max_blocks_per_request=None if use_pages else 0
    )
    outputs = model.generate_batch(prompts, generation_config=generation_config(), continuous_batching_config=config)
    in_order = sorted(outputs.values(), key=lambda o: prompts.index(list(o.prompt_ids)))
    return [list(o.generated_tokens) for o in in_order]


def count_calls(calls):
    """Counts in `calls` how often each of the package's functions runs from here on: nothing may fall back unseen."""
    import functools

    for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "masked_attention"):
        function = getattr(quire_kernels.transformers, name)

        def counted(*args, _function=function, _name=name, **kwargs):
            calls[_name] = calls.get(_name, 0) + 1
            return _function(*args, **kwargs)

        setattr(quire_kernels.transformers, name, functools.wraps(function)(counted))


def main():
    model, prompts = make_model(), make_prompts()
    quire_kernels.transformers.register()
    quire_kernels.transformers.register_for_continuous_batching()
    calls = {}
    count_calls(calls)
    model.set_attn_implementation("sdpa")
    want = generate(model, prompts)
    print(f"kernels: {quire_kernels.isa_name()}, {quire_kernels.num_threads()} threads")
    results = {}
    for name, implementation, run in (
        ("generate", "quire", lambda: generate(model, prompts)),
        ("one by one", "quire", lambda: [generate(model, [p])[0] for p in prompts]),
        ("continuous batching, gathered keys", "quire_flash", lambda: generate_continuously(model, prompts, use_pages=False)),
        ("continuous batching, pages", "quire_flash", lambda: generate_continuously(model, prompts, use_pages=True)),
    ):
        model.set_attn_implementation(implementation)
        calls.clear()
        results[name] = (run() == want, dict(calls))
        print(f"{name}: {'the tokens of sdpa' if results[name][0] else 'OTHER TOKENS THAN SDPA'}; {results[name][1]}")
    return results


if __name__ == "__main__":
    raise SystemExit(0 if all(same for same, _ in main().values()) else 1)
