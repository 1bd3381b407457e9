"""The kernel repository as the `kernels` package and transformers load it. tests/requirements-torch.txt pins both."""

import functools
import pathlib
import re
import sys

import pytest

import quire_kernels as qk
from hub_wheel import make_repository

reason = "torch, transformers and kernels are not installed (tests/requirements-torch.txt): left out"
torch = pytest.importorskip("torch", reason=reason)
transformers = pytest.importorskip("transformers", reason=reason)
kernels = pytest.importorskip("kernels", reason=reason)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
import generate  # noqa: E402

NAME = "quire/flash-attention"  # transformers asks for "flash" in it, where it batches continuously
FUNCTIONS = ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache")


def test_versions():
    """What is said to be pinned is what runs here."""
    pins = (pathlib.Path(__file__).parent / "requirements-torch.txt").read_text()
    for package in (transformers, kernels):
        assert re.search(f"^{package.__name__}=={re.escape(package.__version__)}$", pins, re.MULTILINE), package.__version__


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_repository(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="module")
def kernel(repository):
    return kernels.get_local_kernel(repository[0], backend="cpu")


def test_metadata_is_what_kernels_computes(tmp_path):
    """In a repository that nothing was loaded from, because Python writes its bytecode there."""
    from kernels._rust import Digest, DigestAlgorithm, Metadata

    _, variant = make_repository(tmp_path)
    metadata = Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    assert (str(metadata.name), metadata.version, metadata.license) == ("quire-kernels", 1, "Apache-2.0")
    (variant / "layers.py").write_text("other")
    with pytest.raises(Exception, match="layers.py"):
        metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


@pytest.mark.parametrize("version, accepted", [("2.9", False), ("2.10", True), ("2.15", True), ("3.0", True)])
def test_variant_is_for_torch_from_its_version_on(repository, version, accepted):
    from kernels import variants
    from packaging.version import Version

    variant = variants.parse_variant(repository[1].name)
    cpu = variant.arch.platform
    chosen = variants._resolve_variant_for_system([variant], variant.arch.backend, cpu, "linux", Version(version), True, None)[0]
    assert bool(chosen) == accepted
    other = variants._resolve_variant_for_system([variant], variant.arch.backend, "riscv64", "linux", Version(version), True, None)[0]
    assert not other


def test_local_kernel_computes(repository, kernel):
    """From its own files, beside the installed package, with its bits."""
    assert pathlib.Path(kernel.__file__).parent == repository[1] and kernel.isa_name() == qk.isa_name()
    assert kernel._functions._core is not qk._core
    generator = torch.Generator().manual_seed(0)
    k_cache, v_cache = torch.randn(2, 9, 16, 2, 64, generator=generator).to(torch.bfloat16)
    q = torch.randn(2, 1, 4, 64, generator=generator).to(torch.bfloat16)
    k, v = torch.randn(2, 2, 1, 2, 64, generator=generator).to(torch.bfloat16)
    where = {"cache_seqlens": torch.tensor([16, 30]), "block_table": torch.tensor([[5, 7], [2, 0]]), "causal": True}
    caches = k_cache.clone(), v_cache.clone()
    want = qk.flash_attn_with_kvcache(q, *caches, k, v, **where)
    kernel.kv_paged_write(k, v, k_cache, v_cache, where["block_table"], where["cache_seqlens"])
    assert torch.equal(k_cache, caches[0]) and torch.equal(v_cache, caches[1])
    where["cache_seqlens"] += 1
    assert torch.equal(kernel.flash_attn_with_kvcache(q, k_cache, v_cache, **where), want)


def test_torch_built_for_cpus_finds_the_variant(repository, kernel, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert kernels.get_local_kernel(repository[0]) is kernel
    monkeypatch.setenv("LOCAL_KERNELS", f"{NAME}={repository[0]}")
    assert kernels.get_kernel(NAME, version=1) is kernel


@pytest.fixture
def calls(repository, monkeypatch):
    """How often each function of the kernel ran that transformers has loaded under NAME."""
    from transformers import modeling_flash_attention_utils as flash

    # The kernels package prefers torch's own backend, which may be CUDA's in a build that has no GPU: a path to the variant is
    # taken as it is.
    monkeypatch.setenv("LOCAL_KERNELS", f"{NAME}={repository[1]}")
    kernel, counts = kernels.get_kernel(NAME, version=1), {}
    for name in FUNCTIONS:
        function = getattr(kernel, name)

        def counted(*args, _function=function, _name=name, **kwargs):
            counts[_name] = counts.get(_name, 0) + 1
            return _function(*args, **kwargs)

        monkeypatch.setattr(kernel, name, functools.wraps(function)(counted))
    monkeypatch.setattr(flash, "_loaded_implementation", None)  # so that transformers takes the counted functions
    return counts


def use(model, implementation):
    model.set_attn_implementation(implementation)
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("way, functions", [("alone", {"flash_attn_func"}), ("batch", set(FUNCTIONS[:2]))])
def test_generate_gives_the_tokens_of_sdpa(calls, way, functions):
    model, prompts = generate.make_model(), generate.make_prompts()
    batches = [prompts] if way == "batch" else [[p] for p in prompts]
    tokens = {}
    for implementation in ("sdpa", NAME):
        use(model, implementation)
        tokens[implementation] = [generate.generate(model, batch) for batch in batches]
    assert tokens[NAME] == tokens["sdpa"]
    assert calls and set(calls) <= functions, f"ran {calls}"


@pytest.mark.parametrize("pages", [False, True])
def test_continuous_batching_gives_the_tokens_of_sdpa(calls, pages):
    model, prompts = generate.make_model(), generate.make_prompts()
    use(model, "sdpa")
    want = generate.generate(model, prompts)
    use(model, NAME)
    assert generate.generate_continuously(model, prompts, use_pages=pages) == want
    assert set(calls) == ({"flash_attn_varlen_func", "flash_attn_with_kvcache"} if pages else {"flash_attn_varlen_func"})
    assert not pages or calls["flash_attn_with_kvcache"] > 50


def test_pages_are_for_these_kernels_alone():
    """Under another implementation transformers decides as before: no block tables on a CPU."""
    from transformers.generation.continuous_batching import initialization

    model = generate.make_model()
    model.set_attn_implementation("sdpa")
    config = transformers.ContinuousBatchingConfig(max_blocks_per_request=8)
    initialization.ensure_decode_fast_path_is_available(model.config, config, False)
    assert config.max_blocks_per_request == 0


LAYERS = {"chunk_gated_delta_rule": "chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule": "recurrent_gated_delta_rule"}
SIZES = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 72,
    "initializer_range": 0.2, "max_position_embeddings": 512,
}  # fmt: skip


def make_hybrid(family):
    torch.manual_seed(0)
    if family == "qwen3_next":
        experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
        return transformers.Qwen3NextForCausalLM(transformers.Qwen3NextConfig(**SIZES, **experts)).eval()
    return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**SIZES)).eval()


@pytest.fixture
def kernelize(repository):
    """A function that puts the repository's layers into a model; afterwards its functions are transformers' own again."""
    mode, done = kernels.Mode.INFERENCE, []
    mapping = {
        name: {"cpu": {mode: kernels.LocalLayerRepository(repository[1], layer_name=layer)}} for name, layer in LAYERS.items()
    }

    def run(model, mapping=mapping):
        done.append(model)
        with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
            kernels.kernelize(model, mode=mode, device="cpu")

    yield run
    for model in done[:1]:
        run(model, {})


@pytest.fixture
def advanced(kernel, monkeypatch):
    """The tokens of each call of the kernel."""
    core, tokens = kernel.layers._core, []

    class Watched:
        def delta_rule(self, arrays, kind, plain, shape, *where):
            tokens.append(shape[0])
            return core.delta_rule(arrays, kind, plain, shape, *where)

    monkeypatch.setattr(kernel.layers, "_core", Watched())
    return tokens


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
def test_what_a_model_hands_to_all_layers_changes_no_bit(family, kernelize):
    """transformers hands every argument of its own that forward() was given to the delta rule, too."""
    model, ids = make_hybrid(family), torch.arange(3, 40)[None]
    every = {"num_items_in_batch": torch.tensor(37), "output_hidden_states": True, "use_cache": False, "return_dict": True}
    position = torch.arange(ids.shape[1])[None]
    kernelize(model)
    with torch.no_grad():
        logits = model(ids).logits
        assert torch.equal(model(ids, position_ids=position, **every).logits, logits)
        with pytest.raises(TypeError, match="state_scale is no argument"):
            model(ids, state_scale=2.0)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
def test_gated_delta_nets_run_on_the_kernel(family, kernelize, advanced):
    """Greedy tokens alone, and of a padded batch, and logits, against transformers' own functions."""
    model, prompts = make_hybrid(family), generate.make_prompts((5, 17, 70))
    linear = sum(kind == "linear_attention" for kind in model.config.layer_types)
    assert linear == 3
    ids = torch.tensor([prompts[2]]) % 256
    prompts = [[i % 256 for i in p] for p in prompts]

    def run():
        with torch.no_grad():
            return model(ids).logits, [generate.generate(model, [p]) for p in prompts], generate.generate(model, prompts)

    want, *tokens = run()
    assert not advanced
    kernelize(model)
    logits, *ours = run()
    assert ours == tokens
    torch.testing.assert_close(logits, want, atol=2e-3, rtol=2e-3)
    steps = generate.NEW_TOKENS - 1  # the first new token comes from the prompt
    assert advanced[:linear] == [70] * linear
    assert sorted(advanced) == sorted(
        [70] * linear + [len(p) for p in prompts for _ in range(linear)] + [1] * (3 * steps * linear)
        + [3 * 70] * linear + [3] * (steps * linear)
    )  # fmt: skip


def draw(dtype, batch, tokens, k_heads, heads, k_dim, v_dim):
    generator = torch.Generator().manual_seed(3)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    q, k = normal(2, batch, tokens, k_heads, k_dim).to(dtype)
    v, beta = normal(batch, tokens, heads, v_dim).to(dtype), normal(batch, tokens, heads).sigmoid().to(dtype)
    g = -torch.nn.functional.softplus(normal(batch, tokens, heads)) * 2
    return (q, k, v, g, beta), normal(batch, heads, k_dim, v_dim)


def in_float64(q, k, v, g, beta, state):
    """The rule of layers.py, token after token."""
    group = v.shape[2] // q.shape[2]
    q, k, v, g, beta, state = (x.double() for x in (q, k, v, g, beta, state))
    q, k = ((x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()).repeat_interleave(group, 2) for x in (q, k))
    out = []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        seen = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], (v[:, t] - seen) * beta[:, t, :, None])
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]) * q.shape[-1] ** -0.5)
    return torch.stack(out, 1), state


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 4, 1), (2, 4, 32, 48), (2, 6, 64, 100), (4, 4, 128, 128)])
@pytest.mark.parametrize("fresh", [False, True])
def test_layers_against_float64(kernel, dtype, tolerance, sizes, fresh):
    for isa in kernel.available_isas():
        kernel.force_isa(isa)
        given, state = draw(dtype, 2, 37, *sizes)
        kept = state.clone()
        layer = kernel.layers.chunk_gated_delta_rule()
        out, new = layer(*given, initial_state=None if fresh else state, output_final_state=True, use_qk_l2norm_in_kernel=True)
        want, want_state = in_float64(*given, torch.zeros_like(state) if fresh else state)
        assert out.dtype == dtype and new.dtype == torch.float32 and torch.equal(state, kept)
        torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
        torch.testing.assert_close(new.double(), want_state, atol=1e-4, rtol=1e-4)
    kernel.force_isa("")


def test_layers_cut_and_packed_change_no_bit(kernel):
    given, state = draw(torch.bfloat16, 1, 60, 2, 4, 64, 96)
    chunk, step = kernel.layers.chunk_gated_delta_rule(), kernel.layers.recurrent_gated_delta_rule()
    always = {"output_final_state": True, "use_qk_l2norm_in_kernel": True}
    whole, whole_state = chunk(*given, initial_state=state, **always)
    outs, new = [], state
    for begin, end, layer in ((0, 33, chunk), (33, 34, step), (34, 60, chunk)):
        out, new = layer(*(x[:, begin:end] for x in given), initial_state=new, **always)
        outs.append(out)
    assert torch.equal(torch.cat(outs, 1), whole) and torch.equal(new, whole_state)
    states = torch.stack([state[0], state[0] * 2])
    packed, new = chunk(*given, initial_state=states, cu_seqlens=torch.tensor([0, 33, 60]), **always)
    first, first_state = chunk(*(x[:, :33] for x in given), initial_state=states[:1], **always)
    last, last_state = chunk(*(x[:, 33:] for x in given), initial_state=states[1:], **always)
    assert torch.equal(packed, torch.cat([first, last], 1)) and torch.equal(new, torch.cat([first_state, last_state]))


def test_layers_refuse(kernel):
    given, state = draw(torch.float32, 2, 3, 2, 4, 8, 8)
    names = dict(zip(("query", "key", "value", "g", "beta"), given))
    good = {**names, "initial_state": state, "use_qk_l2norm_in_kernel": True}
    layer = kernel.layers.chunk_gated_delta_rule()
    for error, words, changed in (
        (ValueError, "use_qk_l2norm_in_kernel", {"use_qk_l2norm_in_kernel": False}),
        (ValueError, "seq_idx", {"seq_idx": torch.zeros(1)}),
        (TypeError, "scale is no argument", {"scale": 1.0}),
        (TypeError, "use_gate_in_kernel is no argument", {"use_gate_in_kernel": False}),
        (ValueError, "cu_seqlens needs a batch of 1", {"cu_seqlens": torch.tensor([0, 6])}),
        (ValueError, "key has shape", {"key": names["key"][:, :, :1]}),
        (ValueError, "value has shape", {"value": names["value"][:, :, :3]}),
        (TypeError, "value is float16", {"value": names["value"].half()}),
        (ValueError, "g must have shape", {"g": names["g"][..., :1]}),
        (ValueError, "head dimension of 6", {"query": names["query"][..., :6], "key": names["key"][..., :6]}),
        (ValueError, "initial_state must have shape", {"initial_state": state[:1]}),
        (TypeError, "query must be a", {"query": None}),
    ):
        with pytest.raises(error, match=words):
            layer(**{**good, **changed})
    handed_on = {"position_ids": torch.arange(3)[None], "max_length_q": 3, "output_attentions": False, "scale": None}
    for one in (layer, kernel.layers.recurrent_gated_delta_rule()):
        assert torch.equal(one(**good, **handed_on)[0], layer(**good)[0])
        with pytest.raises(TypeError, match="scale is no argument"):
            one(**good, scale=0.5)
    leaf = names["query"].clone().requires_grad_()
    out, _ = layer(**{**good, "query": leaf})
    with pytest.raises(RuntimeError, match="no backward pass"):
        out.sum().backward()
